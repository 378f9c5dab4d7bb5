# the kernel gathered

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32
f64 = np.float64


@numba.njit(error_model="numpy", nogil=True)
def gathered_0(table, ids, v5, v2, words, n, begin, end):
    ids_cells = ids.reshape(-1)
    v5_cells = v5.reshape(-1)
    v2_cells = v2.reshape(-1)
    v4_lanes_sum = np.empty(64, np.float32)
    for i1 in range(begin, end):
        ids_i = ids_cells[u64(i1)]
        at = ids_i
        if not 0 <= at < words:
            return 1
        v4_sum = 0.0
        for block in range(n // 512):
            for lane in range(64):
                v4_lanes_sum[lane] = f32(0.0)
            for r1 in range(8):
                for lane in range(64):
                    table_i = table[at, block * 512 + r1 * 64 + lane]
                    v3 = table_i * table_i
                    v4_lanes_sum[lane] += v3
            half = 32
            while half > 0:
                for lane in range(half):
                    v4_lanes_sum[lane] += v4_lanes_sum[u64(half + lane)]
                half //= 2
            v4_sum += f64(v4_lanes_sum[0])
        for lane in range(64):
            v4_lanes_sum[lane] = f32(0.0)
        for r1 in range((n % 512) // 64):
            for lane in range(64):
                table_i = table[at, u64((n // 512) * 512 + r1 * 64 + lane)]
                v3 = table_i * table_i
                v4_lanes_sum[lane] += v3
        for lane in range((n % 512) % 64):
            table_i = table[at, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)]
            v3 = table_i * table_i
            v4_lanes_sum[lane] += v3
        half = 32
        while half > 0:
            for lane in range(half):
                v4_lanes_sum[lane] += v4_lanes_sum[u64(half + lane)]
            half //= 2
        v4_sum += f64(v4_lanes_sum[0])
        v5_cells[u64(i1)] = f32(v4_sum)
        for i2 in range(n):
            v2_cells[u64(i1 * n + i2)] = table[at, i2]
    return 0


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def gathered(table, ids, v5, v2):
    # table: f32[words, n], input
    # ids: i64[b, s], input
    # v5: f32[b, s, 1], output
    # v2: f32[b, s, n], output
    words = table.shape[0]
    n = table.shape[1]
    b = ids.shape[0]
    s = ids.shape[1]
    if v5.shape != (b, s, 1):
        return 2
    if v2.shape != (b, s, n):
        return 2
    items = b * s
    parts = min(items, numba.get_num_threads())
    status = 0
    for part in prange(parts):
        status = max(status, gathered_0(table, ids, v5, v2, words, n, i64(part) * items // parts, (i64(part) + 1) * items // parts))
    if status != 0:
        return status
    return 0
