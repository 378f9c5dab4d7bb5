# the kernel scattered_rows

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32


@numba.njit(error_model="numpy", nogil=True)
def scattered_rows_0(data, v6, words, n, begin, end):
    data_cells = data.reshape(-1)
    v6_cells = v6.reshape(-1)
    for i1w in range(begin, end):
        i1_count = min(256, n * words - i1w * 256)
        for i1 in range(i1_count):
            v6_cells[u64(i1w * 256 + i1)] = data_cells[u64(i1w * 256 + i1)]


@numba.njit(error_model="numpy", nogil=True)
def scattered_rows_1(ids, scale, x, v6, words, n, rows, begin, end):
    x_cells = x.reshape(-1)
    v6_cells = v6.reshape(-1)
    for i1t in range(begin, end):
        for i0 in range(rows):
            ids_i = ids[i0]
            at = ids_i
            if not 0 <= at < words:
                return 1
            scale_i = scale[i0]
            for i1 in range(min(1024, n - i1t * 1024)):
                x_i = x_cells[u64(i0 * n + i1t * 1024 + i1)]
                v5 = scale_i * x_i
                v6_cells[u64(at * n + i1t * 1024 + i1)] += v5
    return 0


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def scattered_rows(data, ids, scale, x, v6):
    # data: f32[words, n], input
    # ids: i64[rows], input
    # scale: f32[rows], input
    # x: f32[rows, n], input
    # v6: f32[words, n], output
    words = data.shape[0]
    n = data.shape[1]
    rows = ids.shape[0]
    if scale.shape != (rows,):
        return 2
    if x.shape != (rows, n):
        return 2
    if v6.shape != (words, n):
        return 2
    items = (n * words + 255) // 256
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        scattered_rows_0(data, v6, words, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    items = (n + 1023) // 1024
    parts = min(items, numba.get_num_threads())
    status = 0
    for part in prange(parts):
        status = max(status, scattered_rows_1(ids, scale, x, v6, words, n, rows, i64(part) * items // parts, (i64(part) + 1) * items // parts))
    if status != 0:
        return status
    return 0
