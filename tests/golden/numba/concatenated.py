# the kernel concatenated

import numba
import numpy as np
from numba import prange, types
from numba.extending import intrinsic

i64 = np.int64
u32 = np.uint32
u64 = np.uint64
f32 = np.float32

# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(
    error_model="numpy", fastmath={"contract"}, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)


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


# e^x = 2^n e^r with whole n and |r| <= log(2)/2. At the limits the scale is 0, or overflows: masks are full of -inf,
# and a product that is rounded to 0 takes a processor longer than one with 0. 2^n in two factors: a denormal result
# is rounded once; what is added to the first one is scaled while the slope is computed. 1.2 ulp.
@scalar
def noyau_exp_f32(x):
    # x, but the limit where it is less; NaN stays. No compiler knows the limit: where it does, gcc computes what becomes
    # of it apart, and chooses between the two at the end of a function, by six instructions instead of one.
    # x, rounded: no compiler knows this -0, so that a product in x is fused with the sum, which is x, and with nothing
    # that follows. 0.0 ulp.
    least = f32(-176.1) + f32(-0.0)
    x_2 = least if x < least else x
    # x, but the limit where it is greater; NaN stays. Nor is this limit known.
    most = f32(89.0) + f32(-0.0)
    t = most if x_2 > most else x_2
    shifted = t * f32(1.442695) + (f32(12582912.0) + f32(254.0))
    n = shifted - (f32(12582912.0) + f32(254.0))
    r = t - n * f32(0.69314575) - n * f32(1.4286068e-06)  # log(2) in two parts
    bits = noyau_bits_f32(shifted)
    half = u32(bits >> u32(1))
    scale = noyau_from_bits_f32(u32(half << u32(23)))
    # (e^r - 1) / r for |r| <= log(2)/2: 1 + r p(r), p minimax.
    p = f32(0.001393817)
    p = p * r + f32(0.0083689885)
    p = p * r + f32(0.04166643)
    p = p * r + f32(0.16666518)
    p = p * r + f32(0.5)
    exp_slope = p * r + f32(1.0)
    return (exp_slope * (r * scale) + scale) * noyau_from_bits_f32(u32(u32(bits - half) << u32(23)))


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def concatenated_0(x, y, v3, a, b, begin, end):
    for i0 in range(begin, end):
        for i1 in range(a):
            x_i = x[i0, i1]
            v3[i0, i1] = noyau_exp_f32(x_i)
        for i1 in range(b):
            y_i = y[i0, i1]
            v3[i0, u64(a + i1)] = noyau_exp_f32(y_i)


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def concatenated(x, y, v3):
    # x: f32[n, a], input
    # y: f32[n, b], input
    # v3: f32[n, a + b], output
    n = x.shape[0]
    a = x.shape[1]
    b = y.shape[1]
    if y.shape != (n, b):
        return 2
    if v3.shape != (n, a + b):
        return 2
    items = n
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        concatenated_0(x, y, v3, a, b, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
