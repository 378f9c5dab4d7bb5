# the kernel sum_of_i32

import numba
import numpy as np
from numba import prange

i32 = np.int32
i64 = np.int64
u64 = np.uint64


@numba.njit(error_model="numpy", nogil=True)
def sum_of_i32_0(x, v1, n, begin, end):
    v1_2_sum = np.empty(64, np.int32)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_2_sum[lane] = i32(0)
        for r1 in range(n // 64):
            for lane in range(64):
                x_i = x[i0, r1 * 64 + lane]
                v1_2_sum[lane] = i32(v1_2_sum[lane] + x_i)
        for lane in range(n % 64):
            x_i = x[i0, u64((n // 64) * 64 + lane)]
            v1_2_sum[lane] = i32(v1_2_sum[lane] + x_i)
        half = 32
        while half > 0:
            for lane in range(half):
                v1_2_sum[lane] = i32(v1_2_sum[lane] + v1_2_sum[u64(half + lane)])
            half //= 2
        v1[u64(i0)] = v1_2_sum[0]


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def sum_of_i32(x, v1):
    # x: i32[rows, n], input
    # v1: i32[rows], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows,):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        sum_of_i32_0(x, v1, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
