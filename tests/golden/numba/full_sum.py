# the kernel full_sum

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32
f64 = np.float64


@numba.njit(error_model="numpy", nogil=True)
def full_sum_0(x, v1_2_sum_of_block, n, begin, end):
    v1_2_lanes_sum = np.empty(64, np.float32)
    for block in range(begin, end):
        length = min(65536, n - block * 65536)
        v1_2_sum = 0.0
        for block_2 in range(length // 512):
            for lane in range(64):
                v1_2_lanes_sum[lane] = f32(0.0)
            for r1 in range(8):
                for lane in range(64):
                    x_i = x[u64(block * 65536 + block_2 * 512 + r1 * 64 + lane)]
                    v1_2_lanes_sum[lane] += x_i
            half = 32
            while half > 0:
                for lane in range(half):
                    v1_2_lanes_sum[lane] += v1_2_lanes_sum[u64(half + lane)]
                half //= 2
            v1_2_sum += f64(v1_2_lanes_sum[0])
        for lane in range(64):
            v1_2_lanes_sum[lane] = f32(0.0)
        for r1 in range((length % 512) // 64):
            for lane in range(64):
                x_i = x[u64(block * 65536 + (length // 512) * 512 + r1 * 64 + lane)]
                v1_2_lanes_sum[lane] += x_i
        for lane in range((length % 512) % 64):
            x_i = x[u64(block * 65536 + (length // 512) * 512 + ((length % 512) // 64) * 64 + lane)]
            v1_2_lanes_sum[lane] += x_i
        half = 32
        while half > 0:
            for lane in range(half):
                v1_2_lanes_sum[lane] += v1_2_lanes_sum[u64(half + lane)]
            half //= 2
        v1_2_sum += f64(v1_2_lanes_sum[0])
        v1_2_sum_of_block[u64(block)] = v1_2_sum


@numba.njit(error_model="numpy", nogil=True)
def full_sum_1(v1, v1_2_sum_of_block, n):
    v1_2_sum = 0.0
    for block in range((n + 65535) // 65536):
        v1_2_sum += v1_2_sum_of_block[block]
    v1[()] = f32(v1_2_sum)


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def full_sum(x, v1):
    # x: f32[n], input
    # v1: f32[], output
    n = x.shape[0]
    v1_2_sum_of_block = np.empty(((n + 65535) // 65536,), np.float64)
    items = (n + 65535) // 65536
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        full_sum_0(x, v1_2_sum_of_block, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    full_sum_1(v1, v1_2_sum_of_block, n)
    return 0
