# the kernel padded

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32


@numba.njit(error_model="numpy", nogil=True)
def padded_0(x, v6, n, begin, end):
    for i0 in range(begin, end):
        for i1 in range(2):
            v6[i0, i1] = f32(7.0) * f32(7.0)
        for i1 in range(n):
            x_i = x[i0, i1]
            v6[i0, i1 + 2] = x_i * x_i
        for i1 in range(2):
            v6[i0, u64(i1 + n + 2)] = f32(-7.0) * f32(-7.0)


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def padded(x, v6):
    # x: f32[rows, n], input
    # v6: f32[rows, n + 4], output
    rows = x.shape[0]
    n = x.shape[1]
    if v6.shape != (rows, n + 4):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        padded_0(x, v6, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
