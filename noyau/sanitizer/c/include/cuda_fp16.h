/* Halves. */
#ifndef NOYAU_FP16_H
#define NOYAU_FP16_H
#include "noyau_short_floats.h"

struct noyau_half_kind {
    NOYAU_UNSEEN static float value_of(uint16_t h) {
        const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, rest = h & 1023;
        if (exponent == 31) return noyau_value<float>(sign | 0x7F800000u | rest << 13);
        if (exponent) return noyau_value<float>(sign | (exponent + 112) << 23 | rest << 13);
        const float small = (float)rest * 0x1p-24f;
        return sign ? -small : small;
    }
    NOYAU_UNSEEN static uint16_t bits_of(float value) {
        const uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
        if (rest > 0x7F800000) return (uint16_t)(sign | 0x7E00);
        if (rest >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
        if (rest < 0x38800000) return (uint16_t)(sign | (uint32_t)nearbyintf(__uint_as_float(rest) * 0x1p24f));
        const uint32_t even = rest + 0xFFF + (rest >> 13 & 1);
        return (uint16_t)(sign | (even - 0x38000000) >> 13);
    }
};
NOYAU_KIND(noyau_half_kind, __half, half, half2)
typedef __half half;
typedef __half2 half2;
NOYAU_MADE half2 make_half2(half x, half y) { return {x, y}; }
#define CUDART_ZERO_FP16 __half(0.0f)
#define CUDART_ONE_FP16 __half(1.0f)
#define CUDART_INF_FP16 __half(__builtin_inff())
#endif
