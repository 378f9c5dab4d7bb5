# the kernel log_softmax_kept

import numba
import numpy as np
from numba import prange, types
from numba.extending import intrinsic

i32 = np.int32
i64 = np.int64
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


# e^r for |r| <= log(2)/2: 1 + r + r^2 p(r), p minimax.
@scalar
def noyau_exp_part_f32(r):
    p = f32(0.001393817)
    p = p * r + f32(0.0083689885)
    p = p * r + f32(0.04166643)
    p = p * r + f32(0.16666518)
    p = p * r + f32(0.5)
    return p * (r * r) + r + f32(1.0)


# value 2^n, where shifted is n + 254 + 1.5 2^23, so that n is in its low bits.
# In two factors: a denormal result is rounded once.
@scalar
def noyau_scale_f32(value, shifted):
    bits = noyau_bits_f32(shifted)
    half = u32(bits >> u32(1))
    return value * noyau_from_bits_f32(u32(half << u32(23))) * noyau_from_bits_f32(u32(u32(bits - half) << u32(23)))


# e^x = 2^n e^r with whole n and |r| <= log(2)/2, for x < 89.
@scalar
def noyau_exp_below_f32(x):
    shifted = x * f32(1.442695) + (f32(12582912.0) + f32(254.0))
    n = shifted - (f32(12582912.0) + f32(254.0))
    r = x - n * f32(0.69314575) - n * f32(1.4286068e-06)  # log(2) in two parts
    y = noyau_scale_f32(noyau_exp_part_f32(r), shifted)
    return f32(0.0) if x < f32(-104.0) else y


# e^x. 1.1 ulp.
@scalar
def noyau_exp_f32(x):
    low = noyau_exp_below_f32(x)
    return f32(np.inf) if x > f32(89.0) else low


# n log(2) + log(1 + f) for |f| <= 1/3; the latter is f - f^2/2 + f^3 p(f), p minimax.
@scalar
def noyau_log_part_f32(f, n):
    p = f32(-0.13200602)
    p = p * f + f32(0.1396217)
    p = p * f - f32(0.12113095)
    p = p * f + f32(0.14010991)
    p = p * f - f32(0.1668561)
    p = p * f + f32(0.20010038)
    p = p * f - f32(0.24999686)
    p = p * f + f32(0.33333224)
    return f * f * (p * f - f32(0.5)) + n * f32(1.4286068e-06) + f + n * f32(0.69314575)


# log(x) = n log(2) + log(1 + f) with |f| <= 1/3. 1.0 ulp.
@scalar
def noyau_log_f32(x):
    normal = (x * f32(8388608.0)) if x < f32(1.1754944e-38) else x
    bits = u32(noyau_bits_f32(normal) - u32(1059760811))  # 2/3 becomes 0
    n = f32(i32(i32(bits) >> i32(23))) - (f32(23.0) if x < f32(1.1754944e-38) else f32(0.0))
    f = noyau_from_bits_f32(u32(u32(bits & u32(8388607)) + u32(1059760811))) - f32(1.0)
    y = noyau_log_part_f32(f, n)
    most = y if x < f32(np.inf) else x
    none = f32(-np.inf) if x == f32(0.0) else f32(np.nan)
    return most if x > f32(0.0) else none


@numba.njit(error_model="numpy", nogil=True)
def log_softmax_kept_0(x, v10, n, begin, end):
    v1_max = np.empty(64, np.float32)
    v1_nan = np.empty(64, np.int32)
    v6_lanes_sum = np.empty(64, np.float32)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_max[lane] = f32(-np.inf)
            v1_nan[lane] = i32(0)
        for r1 in range(n // 64):
            for lane in range(64):
                x_i = x[i0, r1 * 64 + lane]
                v1_max[lane] = v1_max[lane] if v1_max[lane] > x_i else x_i
                v1_nan[lane] = i32(v1_nan[lane] | i32(x_i != x_i))
        for lane in range(n % 64):
            x_i = x[i0, u64((n // 64) * 64 + lane)]
            v1_max[lane] = v1_max[lane] if v1_max[lane] > x_i else x_i
            v1_nan[lane] = i32(v1_nan[lane] | i32(x_i != x_i))
        half = 32
        while half > 0:
            for lane in range(half):
                v1_max[lane] = v1_max[lane] if v1_max[lane] > v1_max[u64(half + lane)] else v1_max[u64(half + lane)]
                v1_nan[lane] = i32(v1_nan[lane] | v1_nan[u64(half + lane)])
            half //= 2
        v1 = f32(np.nan) if v1_nan[0] != i32(0) else v1_max[0]
        v6_sum = 0.0
        for block in range(n // 512):
            for lane in range(64):
                v6_lanes_sum[lane] = f32(0.0)
            for r2 in range(8):
                for lane in range(64):
                    x_i = x[i0, block * 512 + r2 * 64 + lane]
                    v4 = x_i - v1
                    v5 = noyau_exp_f32(v4)
                    v6_lanes_sum[lane] += v5
            half = 32
            while half > 0:
                for lane in range(half):
                    v6_lanes_sum[lane] += v6_lanes_sum[u64(half + lane)]
                half //= 2
            v6_sum += f64(v6_lanes_sum[0])
        for lane in range(64):
            v6_lanes_sum[lane] = f32(0.0)
        for r2 in range((n % 512) // 64):
            for lane in range(64):
                x_i = x[i0, u64((n // 512) * 512 + r2 * 64 + lane)]
                v4 = x_i - v1
                v5 = noyau_exp_f32(v4)
                v6_lanes_sum[lane] += v5
        for lane in range((n % 512) % 64):
            x_i = x[i0, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)]
            v4 = x_i - v1
            v5 = noyau_exp_f32(v4)
            v6_lanes_sum[lane] += v5
        half = 32
        while half > 0:
            for lane in range(half):
                v6_lanes_sum[lane] += v6_lanes_sum[u64(half + lane)]
            half //= 2
        v6_sum += f64(v6_lanes_sum[0])
        v6 = f32(v6_sum)
        v8 = noyau_log_f32(v6)
        for i1 in range(n):
            x_i = x[i0, i1]
            v4 = x_i - v1
            v10[i0, i1] = v4 - v8


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def log_softmax_kept(x, v10):
    # x: f32[rows, n], input
    # v10: f32[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v10.shape != (rows, n):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        log_softmax_kept_0(x, v10, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
