# the kernel rotary_f16

import numba
import numpy as np
from numba import prange, types
from numba.extending import intrinsic

i32 = np.int32
i64 = np.int64
u16 = np.uint16
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


# Every float16 is a float: the exponent moves by 112, that of infinity and NaN by 224, and a denormal is made
# normal by a subtraction. The sign is spread over the bits that the exponent does not have. 0.0 ulp.
@scalar
def noyau_f16_to_f32(x):
    cell = i32(i32(u32(u32(x) << u32(16))) >> i32(3))
    size = i32(cell & i32(268427264))
    denormal = noyau_from_bits_f32(u32(i32(size + i32(i32(113) << i32(23))))) - f32(6.1035156e-05)
    normal = noyau_from_bits_f32(u32(i32(size + i32(i32(112) << i32(23)))))
    finite = denormal if size < i32(8388608) else normal
    number = noyau_from_bits_f32(u32(i32(size + i32(i32(224) << i32(23))))) if size >= i32(260046848) else finite
    return noyau_from_bits_f32(u32(noyau_bits_f32(number) | u32(u32(cell) & u32(2147483648))))


# To the nearest, halves to even, by the addition of a power of two whose last bit is that of the result: 2^13 times
# the float's own, and of a denormal that of the least normal number. What is left is the significand. 0.5 ulp.
@scalar
def noyau_f32_to_f16(x):
    bits = noyau_bits_f32(x)
    size = u32(bits & u32(2147483647))
    power = u32(947912704) if size < u32(947912704) else u32(size & u32(2139095040))
    large = noyau_from_bits_f32(u32(power + u32(i32(i32(13) << i32(23)))))
    significand = u32(noyau_bits_f32(noyau_from_bits_f32(size) + large) - noyau_bits_f32(large))
    code = u32(significand + u32(u32(power - u32(947912704)) >> u32(13)))
    finite = u32(31744) if code > u32(31744) else code
    return u16(u32((u32(32256) if size > u32(2139095040) else finite) | u32(u32(bits >> u32(16)) & u32(32768))))


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def rotary_f16_0(x, v_sin, v_cos, v12, s, begin, end):
    for item in range(begin, end):
        i0 = item // (s * 2)
        i2 = item // 2 % s
        i1 = item % 2
        for i3 in range(4):
            x_i = noyau_f16_to_f32(x[i0, i2, u64(i1 * 8 + i3 + 4)])
            v6 = -x_i
            v_sin_i = noyau_f16_to_f32(v_sin[i2, i3])
            v11 = v6 * v_sin_i
            v_cos_i = noyau_f16_to_f32(v_cos[i2, i3])
            x_i_2 = noyau_f16_to_f32(x[i0, i2, u64(i1 * 8 + i3)])
            v9 = v_cos_i * x_i_2
            v12[i0, i1, i2, i3] = noyau_f32_to_f16(v11 + v9)
        for i3 in range(4):
            x_i = noyau_f16_to_f32(x[i0, i2, u64(i1 * 8 + i3)])
            v_sin_i = noyau_f16_to_f32(v_sin[i2, i3 + 4])
            v11 = x_i * v_sin_i
            v_cos_i = noyau_f16_to_f32(v_cos[i2, i3 + 4])
            x_i_2 = noyau_f16_to_f32(x[i0, i2, u64(i1 * 8 + i3 + 4)])
            v9 = v_cos_i * x_i_2
            v12[i0, i1, i2, i3 + 4] = noyau_f32_to_f16(v11 + v9)


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def rotary_f16(x, v_sin, v_cos, v12):
    # x: f16[b, s, 16], input
    # v_sin: f16[s, 8], input
    # v_cos: f16[s, 8], input
    # v12: f16[b, 2, s, 8], output
    b = x.shape[0]
    s = x.shape[1]
    if x.shape != (b, s, 16):
        return 2
    if v_sin.shape != (s, 8):
        return 2
    if v_cos.shape != (s, 8):
        return 2
    if v12.shape != (b, 2, s, 8):
        return 2
    items = b * s * 2
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        rotary_f16_0(x, v_sin, v_cos, v12, s, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
