/* Every float16 is a float. The exponent moves by 112; infinity and NaN move twice, and a denormal
   is made normal by a subtraction. 0.0 ulp. */
NOYAU_INLINE float noyau_f16_to_f32(uint16_t x) {
    const int32_t size = (x & 0x7fff) << 13;
    const int32_t normal = size + (size >= 0x0f800000 ? 224 << 23 : 112 << 23);
    const float denormal = noyau_from_bits_f32(size + (113 << 23)) - 0x1p-14f;
    const uint32_t bits = size < 0x00800000 ? noyau_bits_f32(denormal) : (uint32_t)normal;
    return noyau_from_bits_f32(bits | (uint32_t)(x & 0x8000) << 16);
}

/* To the nearest, halves to even. A denormal is rounded by an addition whose last bit is 2^-24. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f32_to_f16(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const int32_t size = bits & 0x7fffffff;
    const int32_t normal = (size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const int32_t denormal = noyau_bits_f32(noyau_from_bits_f32(size) + 0.5f) - 0x3f000000;
    const int32_t finite = size < 113 << 23 ? denormal : normal;
    const int32_t other = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (size >= 143 << 23 ? other : finite) | (bits >> 16 & 0x8000);
}

/* A bfloat16 is the upper half of a float. 0.0 ulp. */
NOYAU_INLINE float noyau_bf16_to_f32(uint16_t x) {
    return noyau_from_bits_f32((uint32_t)x << 16);
}

/* The first of two bfloat16 in a word. 0.0 ulp. */
NOYAU_INLINE float noyau_bf16_low_to_f32(uint32_t pair) {
    return noyau_from_bits_f32(pair << 16);
}

/* The second of two bfloat16 in a word. 0.0 ulp. */
NOYAU_INLINE float noyau_bf16_high_to_f32(uint32_t pair) {
    return noyau_from_bits_f32(pair & 0xffff0000);
}

/* The bits of a float that bfloat16 has, to the nearest, halves to even; those below are loose. */
NOYAU_INLINE uint32_t noyau_rounded_bf16(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return x != x ? bits | 0x00400000 : rounded;
}

/* Two floats as bfloat16 in a word, each as noyau_f32_to_bf16. */
NOYAU_INLINE uint32_t noyau_f32_to_bf16_pair(float low, float high) {
    return noyau_rounded_bf16(low) >> 16 | (noyau_rounded_bf16(high) & 0xffff0000);
}

/* To the nearest, halves to even. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f32_to_bf16(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (x != x ? bits | 0x00400000 : rounded) >> 16;
}

/* To a float of 16 bits with `tail` bits after the point and exponents from low to high; the same three
   cases as in noyau_f32_to_f16. */
NOYAU_INLINE uint16_t noyau_narrow_f64(double x, int tail, int low, int high) {
    const uint64_t bits = noyau_bits_f64(x);
    const int64_t size = bits & 0x7fffffffffffffff;
    const int64_t last = (uint64_t)size >> (52 - tail) & 1;
    const int64_t half = ((int64_t)1 << (51 - tail)) - 1;
    const int64_t normal = (uint64_t)(size - ((int64_t)(1022 + low) << 52) + half + last) >> (52 - tail);
    const double unit = noyau_from_bits_f64((uint64_t)(1023 + 52 + low - tail) << 52);
    const int64_t denormal = noyau_bits_f64(noyau_from_bits_f64(size) + unit) - noyau_bits_f64(unit);
    const int64_t finite = size < (int64_t)(1023 + low) << 52 ? denormal : normal;
    const int64_t infinity = (int64_t)(high - low + 2) << tail;
    const int64_t other = x != x ? infinity | (int64_t)1 << (tail - 1) : infinity;
    return (size >= (int64_t)(1024 + high) << 52 ? other : finite) | (bits >> 48 & 0x8000);
}

/* As noyau_f32_to_f16; rounded once. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f64_to_f16(double x) {
    return noyau_narrow_f64(x, 10, -14, 15);
}

/* As noyau_f32_to_bf16; rounded once. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f64_to_bf16(double x) {
    return noyau_narrow_f64(x, 7, -126, 127);
}
