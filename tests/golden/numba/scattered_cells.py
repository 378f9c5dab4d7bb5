# the kernel scattered_cells

import numba
import numpy as np
from numba import prange

i32 = np.int32
i64 = np.int64
u64 = np.uint64
f32 = np.float32


@numba.njit(error_model="numpy", nogil=True)
def scattered_cells_0(data, v3, a, n, begin, end):
    data_cells = data.reshape(-1)
    v3_cells = v3.reshape(-1)
    for i1w in range(begin, end):
        i1_count = min(256, a * n - i1w * 256)
        for i1 in range(i1_count):
            v3_cells[u64(i1w * 256 + i1)] = data_cells[u64(i1w * 256 + i1)]


@numba.njit(error_model="numpy", nogil=True)
def scattered_cells_1(ids, x, v3, n, b, begin, end):
    for i0 in range(begin, end):
        for i1 in range(b):
            ids_i = ids[i0, i1]
            at = i64(ids_i)
            if not 0 <= at < n:
                return 1
            v3[i0, u64(at)] = x[i0, i1]
    return 0


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def scattered_cells(data, ids, x, v3):
    # data: f32[a, n], input
    # ids: i32[a, b], input
    # x: f32[a, b], input
    # v3: f32[a, n], output
    a = data.shape[0]
    n = data.shape[1]
    b = ids.shape[1]
    if ids.shape != (a, b):
        return 2
    if x.shape != (a, b):
        return 2
    if v3.shape != (a, n):
        return 2
    items = (a * n + 255) // 256
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        scattered_cells_0(data, v3, a, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    items = a
    parts = min(items, numba.get_num_threads())
    status = 0
    for part in prange(parts):
        status = max(status, scattered_cells_1(ids, x, v3, n, b, i64(part) * items // parts, (i64(part) + 1) * items // parts))
    if status != 0:
        return status
    return 0
