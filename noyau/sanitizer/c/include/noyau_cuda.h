/* CUDA C++ for a C++ compiler: what a kernel uses, so that it runs on the processor with every access watched.

   What is not here is not supported, and the compiler names it. `<<<...>>>`, and `extern __shared__`, are written anew
   before this text is compiled (noyau/sanitizer/c/build.py); the host's side is in noyau_cuda_host.h. */
#ifndef NOYAU_CUDA_H
#define NOYAU_CUDA_H

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>

#define __CUDACC__ 1
#define __CUDA_ARCH__ 800
#define CUDART_VERSION 12000
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()

#define NOYAU_UNSEEN __attribute__((no_sanitize("thread")))
#define NOYAU_CALLED __attribute__((no_sanitize("thread"), noinline))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    NOYAU_UNSEEN constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    NOYAU_UNSEEN constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    NOYAU_UNSEEN operator uint3() const { return uint3{x, y, z}; }
};

extern "C" {
uint3 noyau_thread_index(void) __attribute__((const));
uint3 noyau_block_index(void) __attribute__((const));
uint3 noyau_block_shape(void) __attribute__((const));
uint3 noyau_grid_shape(void) __attribute__((const));
uint3 noyau_given_grid(void);
uint3 noyau_given_block(void);
int64_t noyau_given_shared(void);
void *noyau_dynamic_shared(void);
int noyau_lane(void);
int noyau_sync(int how, int value, const void *pc);
uint64_t noyau_warp(int operation, unsigned mask, uint64_t value, int lane, int width, const void *pc);
unsigned noyau_active(const void *pc);
void noyau_fence(void);
void noyau_atomic(void *at, int bytes, const void *pc);
void noyau_run_grid(uint3 grid, uint3 block, int64_t shared, void (*run)(void *), void *argument, const void *pc);
void *noyau_device_memory(int64_t bytes, int unified, const void *pc);
void noyau_device_free(void *at, const void *pc);
void noyau_device_copy(void *to, const void *from, int64_t bytes, const void *pc);
void noyau_device_set(void *to, int value, int64_t bytes, const void *pc);
}

#define threadIdx (noyau_thread_index())
#define blockIdx (noyau_block_index())
#define blockDim (noyau_block_shape())
#define gridDim (noyau_grid_shape())
static const int warpSize = 32;

/* Launches. */
struct noyau_grid {
    dim3 grid, block;
    int64_t shared;
    template <class S = int>
    NOYAU_UNSEEN noyau_grid(dim3 grid, dim3 block, size_t shared = 0, S = S()) : grid(grid), block(block), shared(shared) {}
    template <class Run, class... Given> NOYAU_CALLED void call(Run run, Given... given) {
        struct Call {
            Run &run;
            std::tuple<Given...> given;
        } what{run, std::tuple<Given...>(given...)};
        noyau_run_grid(
            grid, block, shared, [](void *at) NOYAU_UNSEEN { run_one(*(Call *)at, std::index_sequence_for<Given...>()); },
            &what, __builtin_return_address(0));
    }

private:
    template <class Call, size_t... Number> NOYAU_UNSEEN static void run_one(Call &call, std::index_sequence<Number...>) {
        auto given = call.given;
        call.run(std::get<Number>(given)...);
    }
};

/* Barriers, fences, warps. */
#define NOYAU_PC __builtin_return_address(0)
#define NOYAU_STATIC static inline NOYAU_CALLED
NOYAU_STATIC void __syncthreads() { noyau_sync(0, 0, NOYAU_PC); }
NOYAU_STATIC int __syncthreads_count(int value) { return noyau_sync(1, value, NOYAU_PC); }
NOYAU_STATIC int __syncthreads_and(int value) { return noyau_sync(2, value, NOYAU_PC); }
NOYAU_STATIC int __syncthreads_or(int value) { return noyau_sync(3, value, NOYAU_PC); }
NOYAU_STATIC void __threadfence() { noyau_fence(); }
NOYAU_STATIC void __threadfence_system() { noyau_fence(); }
NOYAU_STATIC void __threadfence_block() {}
NOYAU_STATIC void __syncwarp(unsigned mask = 0xffffffffu) { noyau_warp(0, mask, 0, 0, 32, NOYAU_PC); }
NOYAU_STATIC unsigned __activemask() { return noyau_active(NOYAU_PC); }
NOYAU_STATIC unsigned __ballot_sync(unsigned mask, int value) {
    return (unsigned)noyau_warp(5, mask, value != 0, 0, 32, NOYAU_PC);
}
NOYAU_STATIC int __any_sync(unsigned mask, int value) { return noyau_warp(5, mask, value != 0, 0, 32, NOYAU_PC) != 0; }
NOYAU_STATIC int __all_sync(unsigned mask, int value) { return noyau_warp(5, mask, value == 0, 0, 32, NOYAU_PC) == 0; }

template <class T> NOYAU_UNSEEN static inline uint64_t noyau_bits(T value) {
    static_assert(sizeof(T) <= 8, "a shuffle moves values of up to 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> NOYAU_UNSEEN static inline T noyau_value(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> NOYAU_CALLED T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return noyau_value<T>(noyau_warp(1, mask, noyau_bits(value), lane, width, NOYAU_PC));
}
template <class T> NOYAU_CALLED T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    return noyau_value<T>(noyau_warp(2, mask, noyau_bits(value), (int)by, width, NOYAU_PC));
}
template <class T> NOYAU_CALLED T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    return noyau_value<T>(noyau_warp(3, mask, noyau_bits(value), (int)by, width, NOYAU_PC));
}
template <class T> NOYAU_CALLED T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
    return noyau_value<T>(noyau_warp(4, mask, noyau_bits(value), by, width, NOYAU_PC));
}
template <class T> NOYAU_CALLED unsigned __match_any_sync(unsigned mask, T value) {
    return (unsigned)noyau_warp(6, mask, noyau_bits(value), 0, 32, NOYAU_PC);
}
template <class T> NOYAU_CALLED T __reduce_add_sync(unsigned mask, T value) {
    const int lane = noyau_lane();
    T sum = 0;
    for (int i = 0; i < 32; ++i)
        if (mask >> i & 1) sum += noyau_value<T>(noyau_warp(1, mask, noyau_bits(value), i, 32, NOYAU_PC));
    (void)lane;
    return sum;
}

/* Atomics: each is done at once, for threads take turns. */
#define NOYAU_ATOMIC(name, next)                                                  \
    template <class T, class V> NOYAU_CALLED T name(T *at, V given) {             \
        const T value = (T)given;                                                 \
        noyau_atomic(at, sizeof *at, NOYAU_PC);                                   \
        const T was = *at;                                                        \
        *at = (T)(next);                                                          \
        return was;                                                               \
    }                                                                             \
    template <class T, class V> NOYAU_CALLED T name##_block(T *at, V given) {     \
        const T value = (T)given;                                                 \
        noyau_atomic(at, sizeof *at, NOYAU_PC);                                   \
        const T was = *at;                                                        \
        *at = (T)(next);                                                          \
        return was;                                                               \
    }
NOYAU_ATOMIC(atomicAdd, was + value)
NOYAU_ATOMIC(atomicSub, was - value)
NOYAU_ATOMIC(atomicExch, value)
NOYAU_ATOMIC(atomicMin, value < was ? value : was)
NOYAU_ATOMIC(atomicMax, was < value ? value : was)
NOYAU_ATOMIC(atomicInc, was >= value ? 0 : was + 1)
NOYAU_ATOMIC(atomicDec, was == 0 || was > value ? value : was - 1)
NOYAU_ATOMIC(atomicAnd, was &value)
NOYAU_ATOMIC(atomicOr, was | value)
NOYAU_ATOMIC(atomicXor, was ^ value)
template <class T, class A, class B> NOYAU_CALLED T atomicCAS(T *at, A compare, B value) {
    noyau_atomic(at, sizeof *at, NOYAU_PC);
    const T was = *at;
    if (was == (T)compare) *at = (T)value;
    return was;
}

/* Vectors. They are made where they are stored: a compiler does not tell of a call that fills memory by itself. */
#define NOYAU_MADE __attribute__((always_inline)) static inline
#define NOYAU_VECTORS(type, name)                                                                    \
    struct alignas(sizeof(type)) name##1 {                                                           \
        type x;                                                                                      \
    };                                                                                               \
    struct alignas(2 * sizeof(type)) name##2 {                                                       \
        type x, y;                                                                                   \
    };                                                                                               \
    struct name##3 {                                                                                 \
        type x, y, z;                                                                                \
    };                                                                                               \
    struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 {                          \
        type x, y, z, w;                                                                             \
    };                                                                                               \
    NOYAU_MADE name##1 make_##name##1(type x) { return {x}; }                        \
    NOYAU_MADE name##2 make_##name##2(type x, type y) { return {x, y}; }             \
    NOYAU_MADE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }  \
    NOYAU_MADE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
NOYAU_VECTORS(signed char, char)
NOYAU_VECTORS(unsigned char, uchar)
NOYAU_VECTORS(short, short)
NOYAU_VECTORS(unsigned short, ushort)
NOYAU_VECTORS(int, int)
NOYAU_VECTORS(long long, longlong)
NOYAU_VECTORS(float, float)
NOYAU_VECTORS(double, double)
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
NOYAU_MADE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
NOYAU_MADE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
NOYAU_MADE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* Loads by other ways are loads. */
template <class T> inline T __ldg(const T *at) { return *at; }
template <class T> inline T __ldcs(const T *at) { return *at; }
template <class T> inline T __ldca(const T *at) { return *at; }
template <class T> inline T __ldcg(const T *at) { return *at; }
template <class T> inline void __stcs(T *at, T value) { *at = value; }
template <class T> inline void __stcg(T *at, T value) { *at = value; }

/* Numbers. */
using std::max;
using std::min;
#define NOYAU_MIXED(a, b, both)                                                  \
    static inline constexpr both min(a x, b y) { return (both)x < (both)y ? (both)x : (both)y; } \
    static inline constexpr both max(a x, b y) { return (both)x < (both)y ? (both)y : (both)x; }
NOYAU_MIXED(int, unsigned, unsigned)
NOYAU_MIXED(unsigned, int, unsigned)
NOYAU_MIXED(int, long long, long long)
NOYAU_MIXED(long long, int, long long)
NOYAU_MIXED(int, long, long)
NOYAU_MIXED(long, int, long)
NOYAU_MIXED(float, double, double)
NOYAU_MIXED(double, float, double)
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
#define rsqrtf noyau_rsqrtf
static inline float noyau_rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define rsqrt noyau_rsqrt
static inline double noyau_rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1.0f : 0.0f; }
#define sinpif noyau_sinpif
static inline float noyau_sinpif(float x) { return (float)sin(M_PI * (double)x); }
#define cospif noyau_cospif
static inline float noyau_cospif(float x) { return (float)cos(M_PI * (double)x); }
static inline float fdividef(float x, float y) { return x / y; }
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
static inline int __mul24(int x, int y) { return x * y; }
static inline int __mulhi(int x, int y) { return (int)(((long long)x * y) >> 32); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x * y) >> 32); }
static inline int __float2int_rn(float x) { return (int)nearbyintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_ru(float x) { return (int)ceilf(x); }
static inline unsigned __float2uint_rn(float x) { return (unsigned)nearbyintf(x); }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }
NOYAU_UNSEEN static inline int __float_as_int(float x) { return noyau_value<int>(noyau_bits(x)); }
NOYAU_UNSEEN static inline unsigned __float_as_uint(float x) { return noyau_value<unsigned>(noyau_bits(x)); }
NOYAU_UNSEEN static inline float __int_as_float(int x) { return noyau_value<float>(noyau_bits(x)); }
NOYAU_UNSEEN static inline float __uint_as_float(unsigned x) { return noyau_value<float>(noyau_bits(x)); }
NOYAU_UNSEEN static inline long long __double_as_longlong(double x) { return noyau_value<long long>(noyau_bits(x)); }
NOYAU_UNSEEN static inline double __longlong_as_double(long long x) { return noyau_value<double>(noyau_bits(x)); }
#define __trap() abort()
#define __builtin_assume(x) ((void)0)
static inline long long clock64() {
    static long long ticks;
    return ++ticks;
}
#define __nanosleep(n) ((void)(n))

#include "noyau_cuda_host.h"

#endif
