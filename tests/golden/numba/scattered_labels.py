# the kernel scattered_labels

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


@numba.njit(error_model="numpy", nogil=True)
def scattered_labels_0(x, ids, less, v14, n, begin, end):
    kept_v7_2 = np.empty(n, np.float32)
    v3_max = np.empty(64, np.float32)
    v3_nan = np.empty(64, np.int32)
    v8_lanes_sum = np.empty(64, np.float32)
    for i0 in range(begin, end):
        ids_i = ids[u64(i0)]
        at = ids_i if 0 < n else 0
        if 0 < n:
            if not 0 <= at < n:
                return 1
        for lane in range(64):
            v3_max[lane] = f32(-np.inf)
            v3_nan[lane] = i32(0)
        for r1 in range(n // 64):
            for lane in range(64):
                x_i = x[i0, r1 * 64 + lane]
                v3_max[lane] = v3_max[lane] if v3_max[lane] > x_i else x_i
                v3_nan[lane] = i32(v3_nan[lane] | i32(x_i != x_i))
        for lane in range(n % 64):
            x_i = x[i0, u64((n // 64) * 64 + lane)]
            v3_max[lane] = v3_max[lane] if v3_max[lane] > x_i else x_i
            v3_nan[lane] = i32(v3_nan[lane] | i32(x_i != x_i))
        half = 32
        while half > 0:
            for lane in range(half):
                v3_max[lane] = v3_max[lane] if v3_max[lane] > v3_max[u64(half + lane)] else v3_max[u64(half + lane)]
                v3_nan[lane] = i32(v3_nan[lane] | v3_nan[u64(half + lane)])
            half //= 2
        v3 = f32(np.nan) if v3_nan[0] != i32(0) else v3_max[0]
        v8_sum = 0.0
        for block in range(n // 512):
            for lane in range(64):
                v8_lanes_sum[lane] = f32(0.0)
            for r2 in range(8):
                for lane in range(64):
                    x_i = x[i0, block * 512 + r2 * 64 + lane]
                    v6 = x_i - v3
                    v7 = noyau_exp_f32(v6)
                    kept_v7_2[block * 512 + r2 * 64 + lane] = v7
                    v8_lanes_sum[lane] += v7
            half = 32
            while half > 0:
                for lane in range(half):
                    v8_lanes_sum[lane] += v8_lanes_sum[u64(half + lane)]
                half //= 2
            v8_sum += f64(v8_lanes_sum[0])
        for lane in range(64):
            v8_lanes_sum[lane] = f32(0.0)
        for r2 in range((n % 512) // 64):
            for lane in range(64):
                x_i = x[i0, u64((n // 512) * 512 + r2 * 64 + lane)]
                v6 = x_i - v3
                v7 = noyau_exp_f32(v6)
                kept_v7_2[u64((n // 512) * 512 + r2 * 64 + lane)] = v7
                v8_lanes_sum[lane] += v7
        for lane in range((n % 512) % 64):
            x_i = x[i0, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)]
            v6 = x_i - v3
            v7 = noyau_exp_f32(v6)
            kept_v7_2[u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)] = v7
            v8_lanes_sum[lane] += v7
        half = 32
        while half > 0:
            for lane in range(half):
                v8_lanes_sum[lane] += v8_lanes_sum[u64(half + lane)]
            half //= 2
        v8_sum += f64(v8_lanes_sum[0])
        v8 = f32(v8_sum)
        less_i = less[u64(i0)]
        v12 = -less_i
        for i1 in range(n):
            v7 = kept_v7_2[i1]
            v11 = v7 / v8
            v13 = (v11 + v12) if i1 == at else v11
            v14[i0, i1] = v13 * v13
    return 0


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def scattered_labels(x, ids, less, v14):
    # x: f32[rows, n], input
    # ids: i64[rows], input
    # less: f32[rows], input
    # v14: f32[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if ids.shape != (rows,):
        return 2
    if less.shape != (rows,):
        return 2
    if v14.shape != (rows, n):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    status = 0
    for part in prange(parts):
        status = max(status, scattered_labels_0(x, ids, less, v14, n, i64(part) * items // parts, (i64(part) + 1) * items // parts))
    if status != 0:
        return status
    return 0
