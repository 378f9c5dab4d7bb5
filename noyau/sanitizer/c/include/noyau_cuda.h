/* CUDA C++ for a C++ compiler: what a kernel uses, so that it runs on the processor with every access watched.

   Other parts of CUDA are not supported, and the compiler names them. `<<<...>>>` and `extern __shared__` are rewritten
   before this text is compiled (noyau/sanitizer/c/build.py); the host's side is in noyau_cuda_host.h. */
#ifndef NOYAU_CUDA_H
#define NOYAU_CUDA_H

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <climits>
#include <math.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <tuple>
#include <type_traits>
#include <utility>

#define NOYAU_WATCHED 1
#define __CUDACC__ 1
#define __CUDA_ARCH__ 800
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 4
#define CUDART_VERSION 12040
#define CUDA_VERSION 12040
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define CUDARTAPI
#define CUDART_CB
#define CUDARTAPI_CDECL
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local __attribute__((used)) /* or gcc leaves out reads of what nobody writes */
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931

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
void *noyau_dynamic_shared(const char *name); /* of the running launch; its name in findings */
void *const *noyau_dynamic_place(const char *name);
int noyau_lane(void);
int noyau_sync(int how, int value, const void *pc);
void noyau_device_map(const void *at);
void noyau_sync_grid(const void *pc);
void noyau_sync_cluster(const void *pc);
void noyau_sleep(void);
const uint64_t *noyau_gather(unsigned mask, uint64_t value, const void *pc);
uint64_t noyau_warp(int operation, unsigned mask, uint64_t value, int lane, int width, const void *pc);
unsigned noyau_active(const void *pc);
void noyau_fence(void);
void noyau_copy_begin(void *to, const void *from, int64_t bytes, int64_t zeros, const void *pc);
void noyau_copy_commit(void);
void noyau_copy_wait(unsigned left);
void noyau_touch(const void *at, int bytes, int writes, const void *pc);
void noyau_atomic(void *at, int bytes, int reads, const void *pc); /* reads: 2 for a compare and swap */
void noyau_run_grid(uint3 grid, uint3 block, int64_t shared, int cooperates, void (*run)(void *), void *argument, int64_t bytes,
                    const void *pc); /* `bytes` of the argument; 0 if they do not determine the launch */
void noyau_not_again(void);
int64_t noyau_clock(void);
}

#define threadIdx (noyau_thread_index())
#define blockIdx (noyau_block_index())
#define blockDim (noyau_block_shape())
#define gridDim (noyau_grid_shape())
static const int warpSize = 32;

#define NOYAU_PC __builtin_return_address(0)
#define NOYAU_STATIC static inline NOYAU_CALLED
#include "noyau_cuda_launch.h"

/* Barriers, fences, warps. */
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

/* The exchange between blocks of a cluster in texts that noyau prints: see codegen/cuda/merge_blocks.h. */
struct noyau_meeting {};
NOYAU_UNSEEN static inline void noyau_open(noyau_meeting *) {}
inline unsigned char noyau_given_states[2][1 << 16][32];
template <int BLOCKS, class State>
NOYAU_CALLED State noyau_merge_blocks(State own, noyau_meeting *, int number) {
    unsigned char(*const states)[32] = noyau_given_states[number % 2] + blockIdx.x / BLOCKS * BLOCKS % (1 << 16);
    __builtin_memcpy(states[blockIdx.x % BLOCKS], &own, sizeof own);
    noyau_sync_cluster(NOYAU_PC);
    State all[BLOCKS];
    for (int at = 0; at < BLOCKS; ++at) __builtin_memcpy(all + at, states[at], sizeof own);
    for (int half = BLOCKS / 2; half > 0; half /= 2)
        for (int at = 0; at < half; ++at) all[at].merge(all[at + half]);
    return all[0];
}

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
template <class T> NOYAU_CALLED unsigned __match_all_sync(unsigned mask, T value, int *all) {
    const uint64_t *values = noyau_gather(mask, noyau_bits(value), NOYAU_PC);
    *all = 1;
    for (int i = 0; i < 32; ++i)
        if (mask >> i & 1 && values[i] != noyau_bits(value)) *all = 0;
    return *all ? mask : 0;
}
#define NOYAU_REDUCE(name, next)                                                                     \
    template <class T> NOYAU_CALLED T name(unsigned mask, T value) {                                 \
        const uint64_t *values = noyau_gather(mask, noyau_bits(value), NOYAU_PC);                    \
        const int first = __builtin_ctz(mask);                                                       \
        T was = noyau_value<T>(values[first]);                                                       \
        for (int i = first + 1; i < 32; ++i)                                                         \
            if (mask >> i & 1) value = noyau_value<T>(values[i]), was = (T)(next);                   \
        return was;                                                                                  \
    }
NOYAU_REDUCE(__reduce_add_sync, was + value)
NOYAU_REDUCE(__reduce_min_sync, value < was ? value : was)
NOYAU_REDUCE(__reduce_max_sync, was < value ? value : was)
NOYAU_REDUCE(__reduce_and_sync, was &value)
NOYAU_REDUCE(__reduce_or_sync, was | value)
NOYAU_REDUCE(__reduce_xor_sync, was ^ value)

/* Atomics: each happens at once, since threads take turns. */
#define NOYAU_ATOMIC_OF(name, next, reads)                                        \
    template <class T, class V> NOYAU_CALLED T name(T *at, V given) {             \
        const T value = (T)given;                                                 \
        noyau_atomic((void *)at, sizeof *at, reads, NOYAU_PC);                    \
        const T was = *at;                                                        \
        *at = (T)(next);                                                          \
        return was;                                                               \
    }
#define NOYAU_ATOMICS(name, next, reads) \
    NOYAU_ATOMIC_OF(name, next, reads)   \
    NOYAU_ATOMIC_OF(name##_block, next, reads) NOYAU_ATOMIC_OF(name##_system, next, reads)
#define NOYAU_ATOMIC(name, next) NOYAU_ATOMICS(name, next, 1)
NOYAU_ATOMIC(atomicAdd, was + value)
NOYAU_ATOMIC(atomicSub, was - value)
NOYAU_ATOMICS(atomicExch, value, 0) /* a kernel may drop the old value, which makes it an atomic store */
NOYAU_ATOMIC(atomicMin, value < was ? value : was)
NOYAU_ATOMIC(atomicMax, was < value ? value : was)
NOYAU_ATOMIC(atomicInc, was >= value ? 0 : was + 1)
NOYAU_ATOMIC(atomicDec, was == 0 || was > value ? value : was - 1)
NOYAU_ATOMIC(atomicAnd, was &value)
NOYAU_ATOMIC(atomicOr, was | value)
NOYAU_ATOMIC(atomicXor, was ^ value)
#define NOYAU_SWAP(name)                                                                        \
    template <class T, class A, class B> NOYAU_CALLED T name(T *at, A compare, B value) {       \
        noyau_atomic((void *)at, sizeof *at, 2, NOYAU_PC);                                      \
        const T was = *at;                                                                      \
        if (was == (T)compare) *at = (T)value;                                                  \
        return was;                                                                             \
    }
NOYAU_SWAP(atomicCAS)
NOYAU_SWAP(atomicCAS_block)
NOYAU_SWAP(atomicCAS_system)

/* Vectors. They are built where they are stored: a compiler does not report a call that fills memory by itself. */
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
NOYAU_VECTORS(long, long)
NOYAU_VECTORS(unsigned long, ulong)
NOYAU_VECTORS(long long, longlong)
NOYAU_VECTORS(unsigned long long, ulonglong)
NOYAU_VECTORS(float, float)
NOYAU_VECTORS(double, double)
struct uint1 {
    unsigned x;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
NOYAU_MADE uint1 make_uint1(unsigned x) { return {x}; }
NOYAU_MADE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
NOYAU_MADE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
NOYAU_MADE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* Loads through other caches are loads. */
#define NOYAU_LOAD(name) \
    template <class T> inline T name(const T *at) { return *at; }
#define NOYAU_STORE(name) \
    template <class T> inline void name(T *at, T value) { *at = value; }
NOYAU_LOAD(__ldg) NOYAU_LOAD(__ldcs) NOYAU_LOAD(__ldca) NOYAU_LOAD(__ldcg) NOYAU_LOAD(__ldlu) NOYAU_LOAD(__ldcv)
NOYAU_STORE(__stcs) NOYAU_STORE(__stcg) NOYAU_STORE(__stwb) NOYAU_STORE(__stwt)

#define __trap() abort()
#define __brkpt() ((void)0)
#define __builtin_assume(x) ((void)0)
static inline long long clock64() { return noyau_clock(); }
#define __globaltimer() ((unsigned long long)clock64())
#define __nanosleep(n) ((void)(n), noyau_sleep())

#include "noyau_cuda_math.h"

#include "noyau_cuda_host.h"

#endif
