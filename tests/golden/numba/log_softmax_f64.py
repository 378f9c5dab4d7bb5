# the kernel log_softmax_f64

import numba
import numpy as np
from numba import prange, types
from numba.extending import intrinsic

i32 = np.int32
i64 = np.int64
u64 = np.uint64
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


noyau_bits_f64 = _bits(types.float64, types.uint64)
noyau_from_bits_f64 = _bits(types.uint64, types.float64)


# e^x as 2^n (high + *low), n in shifted as noyau_scale_f64 has it: e^r is 1 + r + r^2 p(r), p minimax,
# where 1 + r is high and what it was rounded by goes to low.
@scalar
def noyau_exp_parts_f64(x):
    shifted = x * 1.4426950408889634 + (6755399441055744.0 + 2046.0)
    n = shifted - (6755399441055744.0 + 2046.0)
    most = x - n * 0.6931471805598903  # log(2) in two parts
    rest = n * 5.497923018708371e-14  # log(2) in two parts
    r = most - rest
    p = 2.511554176208322e-08
    p = p * r + 2.76265487794339e-07
    p = p * r + 2.755722477418294e-06
    p = p * r + 2.4801503946616203e-05
    p = p * r + 0.00019841269906335115
    p = p * r + 0.0013888888932724966
    p = p * r + 0.0083333333333132
    p = p * r + 0.041666666666572906
    p = p * r + 0.16666666666666688
    p = p * r + 0.5000000000000006
    high = 1.0 + most
    low = most - (high - 1.0) + (p * (r * r) - rest)
    return high, low, shifted


# value 2^n, where shifted is n + 2046 + 1.5 2^52: as noyau_scale_f32.
@scalar
def noyau_scale_f64(value, shifted):
    bits = noyau_bits_f64(shifted)
    half = bits >> u64(1)
    return value * noyau_from_bits_f64(half << u64(52)) * noyau_from_bits_f64((bits - half) << u64(52))


# e^x. 0.8 ulp.
@scalar
def noyau_exp_f64(x):
    high, low, shifted = noyau_exp_parts_f64(x)
    y = noyau_scale_f64(high + low, shifted)
    tail = 0.0 if x < -746.0 else y
    return np.inf if x > 710.0 else tail


# As noyau_wide_log, with more terms and log(2) in two parts. 1.0 ulp.
@scalar
def noyau_log_f64(x):
    normal = (x * 1.8014398509481984e+16) if x < 2.2250738585072014e-308 else x
    bits = noyau_bits_f64(normal) + u64(4607182418800017408 - 4604544271217802189)
    whole = noyau_from_bits_f64((bits >> u64(52)) | u64(4841369599423283200)) - (4503599627370496.0 + 1023.0)
    n = whole - (54.0 if x < 2.2250738585072014e-308 else 0.0)
    f = noyau_from_bits_f64((bits & u64(4503599627370495)) + u64(4604544271217802189)) - 1.0
    s = f / (f + 2.0)
    z = s * s
    p = 0.14796007714623774
    p = p * z + 0.15314050324702402
    p = p * z + 0.1818356405404158
    p = p * z + 0.2222219858558514
    p = p * z + 0.2857142874217077
    p = p * z + 0.3999999999941628
    p = p * z + 0.6666666666666734
    half = 0.5 * f * f
    low = s * (half + p * z) + n * 5.497923018708371e-14
    y = n * 0.6931471805598903 - (half - low - f)
    most = y if x < np.inf else x
    none = -np.inf if x == 0.0 else np.nan
    return most if x > 0.0 else none


@numba.njit(error_model="numpy", nogil=True)
def log_softmax_f64_0(x, v10, n, begin, end):
    v1_max = np.empty(64, np.float64)
    v1_nan = np.empty(64, np.int32)
    v6_lanes_sum = np.empty(64, np.float64)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_max[lane] = -np.inf
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
        v1 = np.nan if v1_nan[0] != i32(0) else v1_max[0]
        v6_sum = 0.0
        for block in range(n // 512):
            for lane in range(64):
                v6_lanes_sum[lane] = 0.0
            for r2 in range(8):
                for lane in range(64):
                    x_i = x[i0, block * 512 + r2 * 64 + lane]
                    v4 = x_i - v1
                    v5 = noyau_exp_f64(v4)
                    v6_lanes_sum[lane] += v5
            half = 32
            while half > 0:
                for lane in range(half):
                    v6_lanes_sum[lane] += v6_lanes_sum[u64(half + lane)]
                half //= 2
            v6_sum += v6_lanes_sum[0]
        for lane in range(64):
            v6_lanes_sum[lane] = 0.0
        for r2 in range((n % 512) // 64):
            for lane in range(64):
                x_i = x[i0, u64((n // 512) * 512 + r2 * 64 + lane)]
                v4 = x_i - v1
                v5 = noyau_exp_f64(v4)
                v6_lanes_sum[lane] += v5
        for lane in range((n % 512) % 64):
            x_i = x[i0, u64((n // 512) * 512 + ((n % 512) // 64) * 64 + lane)]
            v4 = x_i - v1
            v5 = noyau_exp_f64(v4)
            v6_lanes_sum[lane] += v5
        half = 32
        while half > 0:
            for lane in range(half):
                v6_lanes_sum[lane] += v6_lanes_sum[u64(half + lane)]
            half //= 2
        v6_sum += v6_lanes_sum[0]
        v6 = v6_sum
        v8 = noyau_log_f64(v6)
        for i1 in range(n):
            x_i = x[i0, i1]
            v4 = x_i - v1
            v10[i0, i1] = v4 - v8


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def log_softmax_f64(x, v10):
    # x: f64[rows, n], input
    # v10: f64[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v10.shape != (rows, n):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        log_softmax_f64_0(x, v10, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
