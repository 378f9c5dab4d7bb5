# the kernel residual_rms_norm_bf16

import math

import numba
import numpy as np
from numba import prange, types
from numba.extending import intrinsic

i64 = np.int64
u16 = np.uint16
u32 = np.uint32
u64 = np.uint64
f32 = np.float32
f64 = np.float64

# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _bits(kind, result):
    """The bits of a scalar as another type of the same width."""

    @intrinsic
    def cast(context, x):
        return result(kind), lambda target, builder, signature, args: builder.bitcast(
            args[0], target.get_value_type(result)
        )

    return cast


noyau_bits_f32 = _bits(types.float32, types.uint32)
noyau_from_bits_f32 = _bits(types.uint32, types.float32)


# A bfloat16 is the upper half of a float. 0.0 ulp.
@scalar
def noyau_bf16_to_f32(x):
    return noyau_from_bits_f32(u32(u32(x) << u32(16)))


# To the nearest, halves to even. 0.5 ulp.
@scalar
def noyau_f32_to_bf16(x):
    bits = noyau_bits_f32(x)
    rounded = u32(u32(bits + u32(32767)) + u32(u32(bits >> u32(16)) & u32(1)))
    return u16(u32((u32(bits | u32(4194304)) if x != x else rounded) >> u32(16)))


# 1 / sqrt(x). 1.5 ulp.
@scalar
def noyau_rsqrt_f32(x):
    return f32(1.0) / math.sqrt(x)


@numba.njit(error_model="numpy", nogil=True)
def residual_rms_norm_bf16_0(x, r, w, v10, v3, v17, n, begin, end):
    v5_lanes_sum = np.empty(64, np.float32)
    for i0 in range(begin, end):
        v8 = f32(n)
        v10_i = noyau_bf16_to_f32(v10)
        v5_sum = 0.0
        for block in range(n // 512):
            for lane in range(64):
                v5_lanes_sum[lane] = f32(0.0)
            for r1 in range(8):
                for lane in range(64):
                    x_i = noyau_bf16_to_f32(x[i0, block * 512 + r1 * 64 + lane])
                    v_r_i = noyau_bf16_to_f32(r[i0, block * 512 + r1 * 64 + lane])
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
                x_i = noyau_bf16_to_f32(x[i0, u64((n // 512) * 512 + r1 * 64 + lane)])
                v_r_i = noyau_bf16_to_f32(r[i0, u64((n // 512) * 512 + r1 * 64 + lane)])
                v3_2 = x_i + v_r_i
                v4 = v3_2 * v3_2
                v5_lanes_sum[lane] += v4
        for lane in range((n % 512) % 64):
            x_i = noyau_bf16_to_f32(x[i0, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)])
            v_r_i = noyau_bf16_to_f32(r[i0, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)])
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
        v12 = v9 + v10_i
        v13 = noyau_rsqrt_f32(v12)
        for i1 in range(n):
            x_i = noyau_bf16_to_f32(x[i0, i1])
            v_r_i = noyau_bf16_to_f32(r[i0, i1])
            v3_2 = x_i + v_r_i
            v3[i0, i1] = noyau_f32_to_bf16(v3_2)
            w_i = noyau_bf16_to_f32(w[i1])
            v15 = v3_2 * v13
            v17[i0, i1] = noyau_f32_to_bf16(w_i * v15)


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def residual_rms_norm_bf16(x, r, w, v10, v3, v17):
    # x: bf16[rows, n], input
    # r: bf16[rows, n], input
    # w: bf16[n], input
    # v10: bf16[], input
    # v3: bf16[rows, n], output
    # v17: bf16[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if r.shape != (rows, n):
        return 2
    if w.shape != (n,):
        return 2
    if v3.shape != (rows, n):
        return 2
    if v17.shape != (rows, n):
        return 2
    v10_value = v10[()]
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        residual_rms_norm_bf16_0(x, r, w, v10_value, v3, v17, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
