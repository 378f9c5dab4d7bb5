/* To a float of 8 bits with `tail` bits after the point and normal numbers from 2^low: its code without the sign, to
   the nearest, halves to even. A denormal is rounded by an addition whose last bit is the least one. Where there is no
   such code the result is larger than all of them. `size`: the bits of a float without its sign. */
NOYAU_INLINE int32_t noyau_narrow8_f32(int32_t size, int tail, int low) {
    const int32_t half = (1 << (22 - tail)) - 1 + (size >> (23 - tail) & 1);
    const int32_t normal = (size - ((126 + low) << 23) + half) >> (23 - tail);
    const float unit = noyau_from_bits_f32((uint32_t)(150 + low - tail) << 23);
    const int32_t denormal = noyau_bits_f32(noyau_from_bits_f32(size) + unit) - noyau_bits_f32(unit);
    return size < (127 + low) << 23 ? denormal : normal;
}

/* The code of a float of 8 bits that has no infinity and one NaN of either sign, 0x7f. */
NOYAU_INLINE int32_t noyau_finite8(int32_t code, int32_t sign) {
    return (code > 0x7e ? 0x7f : code) | sign;
}

/* The code of a float of 8 bits that has no infinity, no negative zero, and in its place the only NaN. */
NOYAU_INLINE int32_t noyau_unsigned_zero8(int32_t code, int32_t sign) {
    const int32_t finite = code == 0 ? 0 : code | sign;
    return code > 0x7f ? 0x80 : finite;
}

/* A normal number's exponent moves by `bias`; a denormal is made normal by a subtraction. */
NOYAU_INLINE float noyau_widen8(int32_t size, int32_t sign, int bias) {
    const float denormal = noyau_from_bits_f32(size + ((bias + 1) << 23)) - noyau_from_bits_f32((bias + 1) << 23);
    const uint32_t bits = size < 0x00800000 ? noyau_bits_f32(denormal) : (uint32_t)(size + (bias << 23));
    return noyau_from_bits_f32(bits | (uint32_t)sign << 24);
}

/* Every number of float8_e4m3fn is a float. 0.0 ulp. */
NOYAU_INLINE float noyau_f8e4m3fn_to_f32(uint8_t x) {
    const float number = noyau_widen8((x & 0x7f) << 20, x & 0x80, 120);
    return (x & 0x7f) == 0x7f ? NAN : number;
}

/* To the nearest, halves to even; beyond 464, and of infinities, NaN. 0.5 ulp. */
NOYAU_INLINE uint8_t noyau_f32_to_f8e4m3fn(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const int32_t code = noyau_narrow8_f32(bits & 0x7fffffff, 3, -6);
    return (uint8_t)noyau_finite8(code, bits >> 24 & 0x80);
}

/* Every number of float8_e4m3fnuz is a float. 0.0 ulp. */
NOYAU_INLINE float noyau_f8e4m3fnuz_to_f32(uint8_t x) {
    const float number = noyau_widen8((x & 0x7f) << 20, x & 0x80, 119);
    return x == 0x80 ? NAN : number;
}

/* To the nearest, halves to even; from 248, and of infinities, NaN. 0.5 ulp. */
NOYAU_INLINE uint8_t noyau_f32_to_f8e4m3fnuz(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const int32_t code = noyau_narrow8_f32(bits & 0x7fffffff, 3, -7);
    return (uint8_t)noyau_unsigned_zero8(code, bits >> 24 & 0x80);
}

/* Every number of float8_e5m2 is a float; it is the upper half of a float16. 0.0 ulp. */
NOYAU_INLINE float noyau_f8e5m2_to_f32(uint8_t x) {
    return noyau_f16_to_f32((uint16_t)(x << 8));
}

/* To the nearest, halves to even; from 61440 infinity. 0.5 ulp. */
NOYAU_INLINE uint8_t noyau_f32_to_f8e5m2(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const int32_t code = noyau_narrow8_f32(bits & 0x7fffffff, 2, -14);
    const int32_t other = x != x ? 0x7e : 0x7c;
    return (uint8_t)((code > 0x7b ? other : code) | (bits >> 24 & 0x80));
}

/* Every number of float8_e5m2fnuz is a float. 0.0 ulp. */
NOYAU_INLINE float noyau_f8e5m2fnuz_to_f32(uint8_t x) {
    const float number = noyau_widen8((x & 0x7f) << 21, x & 0x80, 111);
    return x == 0x80 ? NAN : number;
}

/* To the nearest, halves to even; from 61440, and of infinities, NaN. 0.5 ulp. */
NOYAU_INLINE uint8_t noyau_f32_to_f8e5m2fnuz(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const int32_t code = noyau_narrow8_f32(bits & 0x7fffffff, 2, -15);
    return (uint8_t)noyau_unsigned_zero8(code, bits >> 24 & 0x80);
}
