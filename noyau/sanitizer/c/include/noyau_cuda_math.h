/* The mathematical functions of CUDA, on the processor. */
#ifndef NOYAU_CUDA_MATH_H
#define NOYAU_CUDA_MATH_H

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
using std::signbit;
/* Not templates, so that a program's own functions of these names take precedence, as in CUDA. */
#define NOYAU_MIXED(a, b, both)                                                  \
    static inline constexpr both min(a x, b y) { return (both)x < (both)y ? (both)x : (both)y; } \
    static inline constexpr both max(a x, b y) { return (both)x < (both)y ? (both)y : (both)x; }
NOYAU_MIXED(int, int, int)
NOYAU_MIXED(unsigned, unsigned, unsigned)
NOYAU_MIXED(long, long, long)
NOYAU_MIXED(unsigned long, unsigned long, unsigned long)
NOYAU_MIXED(long long, long long, long long)
NOYAU_MIXED(unsigned long long, unsigned long long, unsigned long long)
NOYAU_MIXED(float, float, float)
NOYAU_MIXED(double, double, double)
NOYAU_MIXED(int, unsigned, unsigned)
NOYAU_MIXED(unsigned, int, unsigned)
NOYAU_MIXED(int, long long, long long)
NOYAU_MIXED(long long, int, long long)
NOYAU_MIXED(int, long, long)
NOYAU_MIXED(long, int, long)
NOYAU_MIXED(long, unsigned long, unsigned long)
NOYAU_MIXED(unsigned long, long, unsigned long)
NOYAU_MIXED(int, unsigned long, unsigned long)
NOYAU_MIXED(unsigned long, int, unsigned long)
NOYAU_MIXED(unsigned, unsigned long, unsigned long)
NOYAU_MIXED(unsigned long, unsigned, unsigned long)
NOYAU_MIXED(long long, unsigned long long, unsigned long long)
NOYAU_MIXED(unsigned long long, long long, unsigned long long)
NOYAU_MIXED(float, double, double)
NOYAU_MIXED(double, float, double)
NOYAU_MIXED(float, int, float)
NOYAU_MIXED(int, float, float)
/* Templates, since a program may have its own functions of these names. */
template <int = 0> inline unsigned umin(unsigned x, unsigned y) { return x < y ? x : y; }
template <int = 0> inline unsigned umax(unsigned x, unsigned y) { return x < y ? y : x; }
template <int = 0> inline long long llmin(long long x, long long y) { return x < y ? x : y; }
template <int = 0> inline long long llmax(long long x, long long y) { return x < y ? y : x; }
template <int = 0> inline unsigned long long ullmin(unsigned long long x, unsigned long long y) { return x < y ? x : y; }
template <int = 0> inline unsigned long long ullmax(unsigned long long x, unsigned long long y) { return x < y ? y : x; }
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __exp10f(x) exp10f(x)
#define __tanhf(x) tanhf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float x, float y) { return x / y; }
/* Other rounding modes are replaced by round to nearest: they differ in the last bit. */
#define NOYAU_ROUNDED(way)                                                                       \
    static inline float __fdiv_##way(float x, float y) { return x / y; }                         \
    static inline float __frcp_##way(float x) { return 1.0f / x; }                               \
    static inline float __fsqrt_##way(float x) { return sqrtf(x); }                              \
    static inline float __fadd_##way(float x, float y) { return x + y; }                         \
    static inline float __fsub_##way(float x, float y) { return x - y; }                         \
    static inline float __fmul_##way(float x, float y) { return x * y; }                         \
    static inline float __fmaf_##way(float x, float y, float z) { return fmaf(x, y, z); }        \
    static inline double __ddiv_##way(double x, double y) { return x / y; }                      \
    static inline double __drcp_##way(double x) { return 1.0 / x; }                              \
    static inline double __dsqrt_##way(double x) { return sqrt(x); }                             \
    static inline double __dadd_##way(double x, double y) { return x + y; }                      \
    static inline double __dsub_##way(double x, double y) { return x - y; }                      \
    static inline double __dmul_##way(double x, double y) { return x * y; }                      \
    static inline double __fma_##way(double x, double y, double z) { return fma(x, y, z); }      \
    static inline float __double2float_##way(double x) { return (float)x; }                      \
    static inline float __int2float_##way(int x) { return (float)x; }                            \
    static inline float __uint2float_##way(unsigned x) { return (float)x; }                      \
    static inline float __ll2float_##way(long long x) { return (float)x; }                       \
    static inline float __ull2float_##way(unsigned long long x) { return (float)x; }             \
    static inline double __ll2double_##way(long long x) { return (double)x; }                    \
    static inline double __ull2double_##way(unsigned long long x) { return (double)x; }
NOYAU_ROUNDED(rn) NOYAU_ROUNDED(rz) NOYAU_ROUNDED(ru) NOYAU_ROUNDED(rd)
#define NOYAU_INTEGRAL(way, to)                                                                   \
    static inline int __float2int_##way(float x) { return (int)to##f(x); }                        \
    static inline unsigned __float2uint_##way(float x) { return (unsigned)to##f(x); }             \
    static inline long long __float2ll_##way(float x) { return (long long)to##f(x); }             \
    static inline int __double2int_##way(double x) { return (int)to(x); }                         \
    static inline unsigned __double2uint_##way(double x) { return (unsigned)to(x); }              \
    static inline long long __double2ll_##way(double x) { return (long long)to(x); }
NOYAU_INTEGRAL(rn, nearbyint) NOYAU_INTEGRAL(rz, trunc) NOYAU_INTEGRAL(ru, ceil) NOYAU_INTEGRAL(rd, floor)
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
#define rsqrtf noyau_rsqrtf
static inline float noyau_rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define rsqrt noyau_rsqrt
static inline double noyau_rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1.0f : 0.0f; }
#define sinpif noyau_sinpif
static inline float noyau_sinpif(float x) { return (float)sin(M_PI * (double)x); }
#define cospif noyau_cospif
static inline float noyau_cospif(float x) { return (float)cos(M_PI * (double)x); }
static inline float fdividef(float x, float y) { return x / y; }
#define sincospif noyau_sincospif
static inline void noyau_sincospif(float x, float *s, float *c) { *s = noyau_sinpif(x), *c = noyau_cospif(x); }
static inline float norm3df(float x, float y, float z) { return sqrtf(x * x + y * y + z * z); }
static inline float norm4df(float x, float y, float z, float w) { return sqrtf(x * x + y * y + z * z + w * w); }
static inline float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
static inline float rnorm4df(float x, float y, float z, float w) { return 1.0f / norm4df(x, y, z, w); }
static inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
static inline double noyau_normcdfinv(double p) {
    double low = -40, high = 40;
    for (int i = 0; i < 80; ++i) (normcdf((low + high) / 2) < p ? low : high) = (low + high) / 2;
    return (low + high) / 2;
}
static inline double normcdfinv(double p) { return noyau_normcdfinv(p); }
static inline float normcdfinvf(float p) { return (float)noyau_normcdfinv(p); }
static inline double erfinv(double x) { return noyau_normcdfinv((x + 1) / 2) * 0.70710678118654752; }
static inline float erfinvf(float x) { return (float)erfinv(x); }
static inline float erfcinvf(float x) { return -(float)erfinv(x - 1.0); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
    return y;
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (by & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned made = 0;
    for (int i = 0; i < 4; ++i) made |= (unsigned)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return made;
}
static inline int __dp4a(int x, int y, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (signed char)(x >> i) * (signed char)(y >> i);
    return sum;
}
static inline unsigned __dp4a(unsigned x, unsigned y, unsigned sum) {
    for (int i = 0; i < 32; i += 8) sum += (x >> i & 255) * (y >> i & 255);
    return sum;
}
static inline unsigned __usad(unsigned x, unsigned y, unsigned sum) { return sum + (x < y ? y - x : x - y); }
static inline unsigned __sad(int x, int y, unsigned sum) { return sum + (unsigned)(x < y ? y - x : x - y); }
static inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xFFFFFF) * (y & 0xFFFFFF); }
static inline long long __mul64hi(long long x, long long y) { return (long long)(((__int128)x * y) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}
static inline int __hadd(int x, int y) { return (x + y) >> 1; }
static inline int __mul24(int x, int y) { return x * y; }
static inline int __mulhi(int x, int y) { return (int)(((long long)x * y) >> 32); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x * y) >> 32); }
NOYAU_UNSEEN static inline int __float_as_int(float x) { return noyau_value<int>(noyau_bits(x)); }
NOYAU_UNSEEN static inline unsigned __float_as_uint(float x) { return noyau_value<unsigned>(noyau_bits(x)); }
NOYAU_UNSEEN static inline float __int_as_float(int x) { return noyau_value<float>(noyau_bits(x)); }
NOYAU_UNSEEN static inline float __uint_as_float(unsigned x) { return noyau_value<float>(noyau_bits(x)); }
NOYAU_UNSEEN static inline long long __double_as_longlong(double x) { return noyau_value<long long>(noyau_bits(x)); }
NOYAU_UNSEEN static inline double __longlong_as_double(long long x) { return noyau_value<double>(noyau_bits(x)); }
NOYAU_UNSEEN static inline int __double2hiint(double x) { return (int)(noyau_bits(x) >> 32); }
NOYAU_UNSEEN static inline int __double2loint(double x) { return (int)noyau_bits(x); }
NOYAU_UNSEEN static inline double __hiloint2double(int high, int low) {
    return noyau_value<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}

#endif
