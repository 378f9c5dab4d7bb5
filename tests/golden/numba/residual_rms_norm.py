# the kernel residual_rms_norm

import math

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32
f64 = np.float64

# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


# 1 / sqrt(x). 1.5 ulp.
@scalar
def noyau_rsqrt_f32(x):
    return f32(1.0) / math.sqrt(x)


@numba.njit(error_model="numpy", nogil=True)
def residual_rms_norm_0(v10, x, r, w, v17, v3, n, begin, end):
    v5_lanes_sum = np.empty(64, np.float32)
    for i0 in range(begin, end):
        v10_i = v10
        v8 = f32(n)
        v5_sum = 0.0
        for block in range(n // 512):
            for lane in range(64):
                v5_lanes_sum[lane] = f32(0.0)
            for r1 in range(8):
                for lane in range(64):
                    x_i = x[i0, block * 512 + r1 * 64 + lane]
                    v_r_i = r[i0, block * 512 + r1 * 64 + lane]
                    v3_2 = x_i + v_r_i
                    v4 = v3_2 * v3_2
                    v5_lanes_sum[lane] += v4
            half = 32
            while half > 0:
                for lane in range(half):
                    v5_lanes_sum[lane] += v5_lanes_sum[u64(half + lane)]
                half //= 2
            v5_sum += f64(v5_lanes_sum[0])
        for lane in range(64):
            v5_lanes_sum[lane] = f32(0.0)
        for r1 in range((n % 512) // 64):
            for lane in range(64):
                x_i = x[i0, u64((n // 512) * 512 + r1 * 64 + lane)]
                v_r_i = r[i0, u64((n // 512) * 512 + r1 * 64 + lane)]
                v3_2 = x_i + v_r_i
                v4 = v3_2 * v3_2
                v5_lanes_sum[lane] += v4
        for lane in range((n % 512) % 64):
            x_i = x[i0, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)]
            v_r_i = r[i0, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)]
            v3_2 = x_i + v_r_i
            v4 = v3_2 * v3_2
            v5_lanes_sum[lane] += v4
        half = 32
        while half > 0:
            for lane in range(half):
                v5_lanes_sum[lane] += v5_lanes_sum[u64(half + lane)]
            half //= 2
        v5_sum += f64(v5_lanes_sum[0])
        v5 = f32(v5_sum)
        v9 = v5 / v8
        v12 = v10_i + v9
        v13 = noyau_rsqrt_f32(v12)
        for i1 in range(n):
            x_i = x[i0, i1]
            v_r_i = r[i0, i1]
            v3_2 = x_i + v_r_i
            v15 = v13 * v3_2
            w_i = w[i1]
            v17[i0, i1] = v15 * w_i
            v3[i0, i1] = v3_2


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def residual_rms_norm(v10, x, r, w, v17, v3):
    # v10: f32[], input
    # x: f32[rows, n], input
    # r: f32[rows, n], input
    # w: f32[n], input
    # v17: f32[rows, n], output
    # v3: f32[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if r.shape != (rows, n):
        return 2
    if w.shape != (n,):
        return 2
    if v17.shape != (rows, n):
        return 2
    if v3.shape != (rows, n):
        return 2
    v10_value = v10[()]
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        residual_rms_norm_0(v10_value, x, r, w, v17, v3, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
