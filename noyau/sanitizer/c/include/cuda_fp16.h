/* Halves: kept in 16 bits, computed with as float, rounded to nearest even. */
#ifndef NOYAU_FP16_H
#define NOYAU_FP16_H
#include "noyau_cuda.h"

NOYAU_UNSEEN static inline float noyau_from_half(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, rest = h & 1023;
    if (exponent == 31) return noyau_value<float>(sign | 0x7F800000u | rest << 13);
    if (exponent) return noyau_value<float>(sign | (exponent + 112) << 23 | rest << 13);
    const float small = (float)rest * 0x1p-24f;
    return sign ? -small : small;
}
NOYAU_UNSEEN static inline uint16_t noyau_to_half(float value) {
    const uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return (uint16_t)(sign | 0x7E00);
    if (rest >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
    if (rest < 0x38800000) return (uint16_t)(sign | (uint32_t)nearbyintf(__uint_as_float(rest) * 0x1p24f));
    const uint32_t even = rest + 0xFFF + (rest >> 13 & 1);
    return (uint16_t)(sign | (even - 0x38000000) >> 13);
}
struct __half {
    uint16_t bits;
    __half() = default;
    NOYAU_UNSEEN __half(float value) : bits(noyau_to_half(value)) {}
    NOYAU_UNSEEN __half(double value) : bits(noyau_to_half((float)value)) {}
    NOYAU_UNSEEN __half(int value) : bits(noyau_to_half((float)value)) {}
    operator float() const { return noyau_from_half(bits); }
    __half &operator+=(__half y) { return *this = __half((float)*this + (float)y); }
    __half &operator-=(__half y) { return *this = __half((float)*this - (float)y); }
    __half &operator*=(__half y) { return *this = __half((float)*this * (float)y); }
};
typedef __half half;
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half2 half2;
#define NOYAU_HALF(sign) \
    static inline __half operator sign(__half x, __half y) { return __half((float)x sign (float)y); }
NOYAU_HALF(+)
NOYAU_HALF(-)
NOYAU_HALF(*)
NOYAU_HALF(/)
static inline float __half2float(__half x) { return x; }
static inline __half __float2half(float x) { return x; }
static inline __half __float2half_rn(float x) { return x; }
static inline __half __hadd(__half x, __half y) { return x + y; }
static inline __half __hsub(__half x, __half y) { return x - y; }
static inline __half __hmul(__half x, __half y) { return x * y; }
static inline __half __hfma(__half x, __half y, __half z) { return __half(fmaf((float)x, (float)y, (float)z)); }
static inline bool __hgt(__half x, __half y) { return (float)x > (float)y; }
static inline bool __hlt(__half x, __half y) { return (float)x < (float)y; }
static inline __half2 make_half2(__half x, __half y) { return {x, y}; }
static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
static inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
static inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
static inline float __low2float(__half2 a) { return a.x; }
static inline float __high2float(__half2 a) { return a.y; }
static inline float2 __half22float2(__half2 a) { return {(float)a.x, (float)a.y}; }
#endif
