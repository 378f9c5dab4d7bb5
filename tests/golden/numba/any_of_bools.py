# the kernel any_of_bools

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64


@numba.njit(error_model="numpy", nogil=True)
def any_of_bools_0(x, v1, n, begin, end):
    v1_2_any = np.empty(64, np.bool_)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_2_any[lane] = False
        for r1 in range(n // 64):
            for lane in range(64):
                x_i = x[i0, r1 * 64 + lane]
                v1_2_any[lane] = v1_2_any[lane] | x_i
        for lane in range(n % 64):
            x_i = x[i0, u64((n // 64) * 64 + lane)]
            v1_2_any[lane] = v1_2_any[lane] | x_i
        half = 32
        while half > 0:
            for lane in range(half):
                v1_2_any[lane] = v1_2_any[lane] | v1_2_any[u64(half + lane)]
            half //= 2
        v1[u64(i0)] = v1_2_any[0]


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def any_of_bools(x, v1):
    # x: bool[rows, n], input
    # v1: bool[rows], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows,):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        any_of_bools_0(x, v1, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
