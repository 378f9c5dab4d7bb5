/* Floats of 16 bits: stored as such, computed as float, rounded to nearest even. `Kind` is half or bfloat16. */
#ifndef NOYAU_SHORT_FLOATS_H
#define NOYAU_SHORT_FLOATS_H
#include "noyau_cuda.h"

template <class Kind> struct noyau_short {
    uint16_t bits;
    noyau_short() = default;
    template <class T, class = typename std::enable_if<std::is_arithmetic<T>::value>::type>
    NOYAU_UNSEEN constexpr noyau_short(T value) : bits(Kind::bits_of((float)value)) {}
    operator float() const { return Kind::value_of(bits); }
    noyau_short &operator+=(noyau_short y) { return *this = noyau_short((float)*this + (float)y); }
    noyau_short &operator-=(noyau_short y) { return *this = noyau_short((float)*this - (float)y); }
    noyau_short &operator*=(noyau_short y) { return *this = noyau_short((float)*this * (float)y); }
    noyau_short &operator/=(noyau_short y) { return *this = noyau_short((float)*this / (float)y); }
    NOYAU_UNSEEN static noyau_short of_bits(uint16_t bits) {
        noyau_short made;
        made.bits = bits;
        return made;
    }
};
template <class Kind> struct alignas(4) noyau_short2 {
    noyau_short<Kind> x, y;
    noyau_short2() = default;
    __attribute__((always_inline)) noyau_short2(noyau_short<Kind> x, noyau_short<Kind> y) : x(x), y(y) {}
};
#define NOYAU_K template <class K> NOYAU_MADE
#define NOYAU_1 noyau_short<K>
#define NOYAU_2 noyau_short2<K>
#define NOYAU_SIGN(sign, one, two)                                                                     \
    NOYAU_K NOYAU_1 operator sign(NOYAU_1 x, NOYAU_1 y) { return NOYAU_1((float)x sign (float)y); }    \
    NOYAU_K NOYAU_2 operator sign(NOYAU_2 x, NOYAU_2 y) { return {x.x sign y.x, x.y sign y.y}; }       \
    NOYAU_K NOYAU_2 &operator sign##=(NOYAU_2 &x, NOYAU_2 y) { return x = x sign y; }                  \
    NOYAU_K NOYAU_1 one(NOYAU_1 x, NOYAU_1 y) { return x sign y; }                                     \
    NOYAU_K NOYAU_1 one##_rn(NOYAU_1 x, NOYAU_1 y) { return x sign y; }                                \
    NOYAU_K NOYAU_2 two(NOYAU_2 x, NOYAU_2 y) { return x sign y; }                                     \
    NOYAU_K NOYAU_2 two##_rn(NOYAU_2 x, NOYAU_2 y) { return x sign y; }
NOYAU_SIGN(+, __hadd, __hadd2)
NOYAU_SIGN(-, __hsub, __hsub2)
NOYAU_SIGN(*, __hmul, __hmul2)
NOYAU_SIGN(/, __hdiv, __h2div)
#define NOYAU_TEST(sign, name)                                                                         \
    NOYAU_K bool operator sign(NOYAU_1 x, NOYAU_1 y) { return (float)x sign (float)y; }                \
    NOYAU_K bool __h##name(NOYAU_1 x, NOYAU_1 y) { return (float)x sign (float)y; }                    \
    NOYAU_K NOYAU_2 __h##name##2(NOYAU_2 x, NOYAU_2 y) { return {NOYAU_1(x.x sign y.x), NOYAU_1(x.y sign y.y)}; } \
    NOYAU_K bool __hb##name##2(NOYAU_2 x, NOYAU_2 y) { return x.x sign y.x && x.y sign y.y; }
NOYAU_TEST(<, lt) NOYAU_TEST(<=, le) NOYAU_TEST(>, gt) NOYAU_TEST(>=, ge) NOYAU_TEST(==, eq) NOYAU_TEST(!=, ne)
#define NOYAU_FUNCTION(name, value)                                                                    \
    NOYAU_K NOYAU_1 h##name(NOYAU_1 a) { const float x = a; return NOYAU_1(value); }                   \
    NOYAU_K NOYAU_2 h2##name(NOYAU_2 a) { return {h##name(a.x), h##name(a.y)}; }
NOYAU_FUNCTION(sqrt, sqrtf(x)) NOYAU_FUNCTION(rsqrt, 1.0f / sqrtf(x)) NOYAU_FUNCTION(rcp, 1.0f / x)
NOYAU_FUNCTION(exp, expf(x)) NOYAU_FUNCTION(exp2, exp2f(x)) NOYAU_FUNCTION(exp10, exp10f(x)) NOYAU_FUNCTION(log, logf(x))
NOYAU_FUNCTION(log2, log2f(x)) NOYAU_FUNCTION(log10, log10f(x)) NOYAU_FUNCTION(sin, sinf(x)) NOYAU_FUNCTION(cos, cosf(x))
NOYAU_FUNCTION(tanh, tanhf(x)) NOYAU_FUNCTION(floor, floorf(x)) NOYAU_FUNCTION(ceil, ceilf(x))
NOYAU_FUNCTION(trunc, truncf(x)) NOYAU_FUNCTION(rint, rintf(x))
NOYAU_K NOYAU_1 operator-(NOYAU_1 x) { return NOYAU_1(-(float)x); }
NOYAU_K NOYAU_2 operator-(NOYAU_2 x) { return {-x.x, -x.y}; }
NOYAU_K NOYAU_1 __hneg(NOYAU_1 x) { return -x; }
NOYAU_K NOYAU_2 __hneg2(NOYAU_2 x) { return -x; }
NOYAU_K NOYAU_1 __habs(NOYAU_1 x) { return NOYAU_1(fabsf((float)x)); }
NOYAU_K NOYAU_2 __habs2(NOYAU_2 x) { return {__habs(x.x), __habs(x.y)}; }
NOYAU_K NOYAU_1 __hmax(NOYAU_1 x, NOYAU_1 y) { return NOYAU_1(fmaxf((float)x, (float)y)); }
NOYAU_K NOYAU_1 __hmin(NOYAU_1 x, NOYAU_1 y) { return NOYAU_1(fminf((float)x, (float)y)); }
NOYAU_K NOYAU_2 __hmax2(NOYAU_2 x, NOYAU_2 y) { return {__hmax(x.x, y.x), __hmax(x.y, y.y)}; }
NOYAU_K NOYAU_2 __hmin2(NOYAU_2 x, NOYAU_2 y) { return {__hmin(x.x, y.x), __hmin(x.y, y.y)}; }
NOYAU_K NOYAU_1 __hfma(NOYAU_1 x, NOYAU_1 y, NOYAU_1 z) { return NOYAU_1(fmaf((float)x, (float)y, (float)z)); }
NOYAU_K NOYAU_2 __hfma2(NOYAU_2 x, NOYAU_2 y, NOYAU_2 z) { return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)}; }
NOYAU_K NOYAU_1 __hfma_relu(NOYAU_1 x, NOYAU_1 y, NOYAU_1 z) { return __hmax(__hfma(x, y, z), NOYAU_1(0)); }
NOYAU_K bool __hisnan(NOYAU_1 x) { return isnan((float)x); }
NOYAU_K int __hisinf(NOYAU_1 x) { return isinf((float)x) ? ((float)x > 0 ? 1 : -1) : 0; }
NOYAU_K float __low2float(NOYAU_2 a) { return a.x; }
NOYAU_K float __high2float(NOYAU_2 a) { return a.y; }

/* Names that differ by kind: `one` is its type in a name, `pair` that of two, `type` its own name. */
#define NOYAU_KIND(Kind, type, one, pair)                                                              \
    typedef noyau_short<Kind> type;                                                                    \
    typedef noyau_short2<Kind> type##2;                                                                \
    NOYAU_MADE type __float2##one(float x) { return type(x); }                                         \
    NOYAU_MADE type __float2##one##_rn(float x) { return type(x); }                                    \
    NOYAU_MADE type __float2##one##_rz(float x) { return type(x); }                                    \
    NOYAU_MADE type __double2##one(double x) { return type(x); }                                       \
    NOYAU_MADE type __int2##one##_rn(int x) { return type(x); }                                        \
    NOYAU_MADE type __uint2##one##_rn(unsigned x) { return type(x); }                                  \
    NOYAU_MADE type __short2##one##_rn(short x) { return type(x); }                                    \
    NOYAU_MADE type __ll2##one##_rn(long long x) { return type(x); }                                   \
    NOYAU_MADE type __ushort_as_##one(unsigned short x) { return type::of_bits(x); }                   \
    NOYAU_MADE type __short_as_##one(short x) { return type::of_bits((uint16_t)x); }                   \
    NOYAU_MADE float __##one##2float(type x) { return x; }                                             \
    NOYAU_MADE int __##one##2int_rn(type x) { return (int)nearbyintf((float)x); }                      \
    NOYAU_MADE int __##one##2int_rz(type x) { return (int)(float)x; }                                  \
    NOYAU_MADE unsigned short __##one##_as_ushort(type x) { return x.bits; }                           \
    NOYAU_MADE short __##one##_as_short(type x) { return (short)x.bits; }                              \
    NOYAU_MADE type##2 __##one##2##pair(type x) { return {x, x}; }                                     \
    NOYAU_MADE type##2 __float2##pair##_rn(float x) { return {type(x), type(x)}; }                     \
    NOYAU_MADE type##2 __floats2##pair##_rn(float x, float y) { return {type(x), type(y)}; }           \
    NOYAU_MADE type##2 __float22##pair##_rn(float2 v) { return {type(v.x), type(v.y)}; }               \
    NOYAU_MADE type##2 __halves2##pair(type x, type y) { return {x, y}; }                              \
    NOYAU_MADE float2 __##pair##2float2(type##2 a) { return {(float)a.x, (float)a.y}; }                \
    NOYAU_MADE type __low2##one(type##2 a) { return a.x; }                                             \
    NOYAU_MADE type __high2##one(type##2 a) { return a.y; }                                            \
    NOYAU_MADE type##2 __low2##pair(type##2 a) { return {a.x, a.x}; }                                  \
    NOYAU_MADE type##2 __high2##pair(type##2 a) { return {a.y, a.y}; }                                 \
    NOYAU_MADE type##2 __lows2##pair(type##2 a, type##2 b) { return {a.x, b.x}; }                      \
    NOYAU_MADE type##2 __highs2##pair(type##2 a, type##2 b) { return {a.y, b.y}; }                     \
    NOYAU_MADE type##2 __lowhigh2highlow(type##2 a) { return {a.y, a.x}; }

#endif
