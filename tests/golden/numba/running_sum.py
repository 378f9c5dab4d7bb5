# the kernel running_sum

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32


@numba.njit(error_model="numpy", nogil=True)
def running_sum_0(x, v1, v2, rows, n, begin, end):
    v1_sum = np.empty(16, np.float32)
    for i0t in range(begin, end):
        length = min(16, rows - i0t * 16)
        for i0 in range(16):
            v1_sum[i0] = f32(0.0)
        for i1 in range(n):
            for i0 in range(length):
                x_i = x[u64(i0t * 16 + i0), i1]
                v1_sum[i0] += x_i
                v1_2 = v1_sum[i0]
                v1[u64(i0t * 16 + i0), i1] = v1_2
                v2[u64(i0t * 16 + i0), i1] = v1_2 * v1_2


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def running_sum(x, v1, v2):
    # x: f32[rows, n], input
    # v1: f32[rows, n], output
    # v2: f32[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows, n):
        return 2
    if v2.shape != (rows, n):
        return 2
    items = (rows + 15) // 16
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        running_sum_0(x, v1, v2, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
