/* Every float16 is a float: the exponent moves by 112, that of infinity and NaN by 224, and a denormal is made
   normal by a subtraction. The sign is spread over the bits that the exponent does not have. 0.0 ulp. */
NOYAU_INLINE float noyau_f16_to_f32(uint16_t x) {
    const int32_t cell = (int32_t)((uint32_t)x << 16) >> 3;
    const int32_t size = cell & 0x0fffe000;
    const float denormal = noyau_from_bits_f32(size + (113 << 23)) - 0x1p-14f;
    const float normal = noyau_from_bits_f32(size + (112 << 23));
    const float finite = size < 0x00800000 ? denormal : normal;
    const float number = size >= 0x0f800000 ? noyau_from_bits_f32(size + (224 << 23)) : finite;
    return noyau_from_bits_f32(noyau_bits_f32(number) | ((uint32_t)cell & 0x80000000));
}

/* To the nearest, halves to even, by the addition of a power of two whose last bit is that of the result: 2^13 times
   the float's own, and of a denormal that of the least normal number. What is left is the significand. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f32_to_f16(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t size = bits & 0x7fffffff;
    const uint32_t power = size < 0x38800000 ? 0x38800000 : size & 0x7f800000;
    const float large = noyau_from_bits_f32(power + (13 << 23));
    const uint32_t significand = noyau_bits_f32(noyau_from_bits_f32(size) + large) - noyau_bits_f32(large);
    const uint32_t code = significand + ((power - 0x38800000) >> 13);
    const uint32_t finite = code > 0x7c00 ? 0x7c00 : code;
    return (size > 0x7f800000 ? 0x7e00 : finite) | (bits >> 16 & 0x8000);
}

/* The float that noyau_f32_to_f16 and back give, of a third of their operations: the power has bounds, so that
   65520 and all above become 2^16 or more, which is infinity. */
NOYAU_INLINE float noyau_f32_to_f16_to_f32(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t size = bits & 0x7fffffff;
    const uint32_t least = size < 0x38800000 ? 0x38800000 : size & 0x7f800000;
    const uint32_t power = least > 0x47800000 ? 0x47800000 : least;
    const float large = noyau_from_bits_f32(power + (13 << 23));
    const float near = noyau_from_bits_f32(size) + large - large;
    const float number = near >= 0x1p16f ? INFINITY : near;
    return noyau_from_bits_f32(noyau_bits_f32(number) | (bits & 0x80000000));
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

/* To a float of 16 bits with `tail` bits after the point and exponents from low to high: numbers, denormals, and
   what is neither. */
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
