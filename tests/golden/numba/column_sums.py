# the kernel column_sums

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32
f64 = np.float64


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def column_sums_0(x, v1_2_sum_of_block, rows, n, begin, end):
    v1_2_sum = np.empty(2048, np.float32)
    for item in range(begin, end):
        block = item // ((n + 2047) // 2048)
        i0t = item % ((n + 2047) // 2048)
        length = min(2048, n - i0t * 2048)
        length_2 = min(256, rows - block * 256)
        for i0 in range(2048):
            v1_2_sum[i0] = f32(0.0)
        for r1 in range(length_2):
            for i0 in range(length):
                x_i = x[u64(block * 256 + r1), u64(i0t * 2048 + i0)]
                v1_2_sum[i0] += x_i
        for i0 in range(length):
            v1_2_sum_of_block[block, u64(i0t * 2048 + i0)] = v1_2_sum[i0]


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def column_sums_1(v1, v1_2_sum_of_block, rows, n, begin, end):
    v1_2_sum = np.empty(2048, np.float64)
    for i0t in range(begin, end):
        length = min(2048, n - i0t * 2048)
        for i0 in range(2048):
            v1_2_sum[i0] = 0.0
        for block in range((rows + 255) // 256):
            for i0 in range(length):
                v1_2_sum[i0] += f64(v1_2_sum_of_block[block, u64(i0t * 2048 + i0)])
        for i0 in range(length):
            v1[u64(i0t * 2048 + i0)] = f32(v1_2_sum[i0])


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def column_sums(x, v1):
    # x: f32[rows, n], input
    # v1: f32[n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (n,):
        return 2
    v1_2_sum_of_block = np.empty(((rows + 255) // 256, n), np.float32)
    items = ((n + 2047) // 2048) * ((rows + 255) // 256)
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        column_sums_0(x, v1_2_sum_of_block, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    items = (n + 2047) // 2048
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        column_sums_1(v1, v1_2_sum_of_block, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
