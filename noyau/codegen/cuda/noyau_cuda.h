/* What NVRTC has no headers for, and nvcc finds in them. */
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT64_MIN (-9223372036854775807LL - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#else
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* As many blocks as hold all items, or as a grid can have: each takes several rounds then. */
static inline unsigned noyau_blocks(int64_t items, int64_t of_block)
{
    const int64_t blocks = (items + of_block - 1) / of_block;
    return (unsigned)(blocks < 2147483647 ? blocks : 2147483647);
}
#endif
#define NOYAU_INLINE [[maybe_unused]] static __device__ __forceinline__
#define NOYAU_BOTH static __host__ __device__ __forceinline__

/* Neighbouring cells, which move at once where their place is a multiple of their size. */
template <class T, int CELLS> struct alignas(sizeof(T) * CELLS < 16 ? sizeof(T) * CELLS : 16) noyau_vector {
    T at[CELLS];
};
template <int BYTES> struct noyau_word { typedef uint4 type; };
template <> struct noyau_word<8> { typedef uint2 type; };
template <> struct noyau_word<4> { typedef unsigned type; };
template <> struct noyau_word<2> { typedef unsigned short type; };
template <> struct noyau_word<1> { typedef unsigned char type; };

template <class T, int CELLS> __device__ __forceinline__ noyau_vector<T, CELLS> noyau_load(const T *place)
{
    typedef typename noyau_word<sizeof(T) * CELLS>::type word;
    noyau_vector<T, CELLS> cells;
    #pragma unroll
    for (int at = 0; at < (int)(sizeof cells / sizeof(word)); ++at) {
        const word bits = ((const word *)place)[at];
        memcpy((char *)&cells + at * sizeof(word), &bits, sizeof(word));
    }
    return cells;
}

template <class T, int CELLS> __device__ __forceinline__ void noyau_store(T *place, const noyau_vector<T, CELLS> &cells)
{
    typedef typename noyau_word<sizeof(T) * CELLS>::type word;
    #pragma unroll
    for (int at = 0; at < (int)(sizeof cells / sizeof(word)); ++at) {
        word bits;
        memcpy(&bits, (const char *)&cells + at * sizeof(word), sizeof(word));
        __stcg((word *)place + at, bits); /* else the compiler may move 4 bytes at once */
    }
}

/* A cell of a vector of bfloat16 as a float. */
template <int CELLS> __device__ __forceinline__ float noyau_bf16_of(const noyau_vector<uint16_t, CELLS> &cells, int cell)
{
    uint32_t both;
    memcpy(&both, cells.at + (cell & ~1), 4);
    const uint32_t bits = cell & 1 ? both & 0xffff0000u : both << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}

/* The cells from a place on that are before such a place; at most so many. */
template <int CELLS, class T> __device__ __forceinline__ int noyau_until_aligned(const T *place, int64_t most)
{
    const int cells = -(int)((unsigned long long)place / sizeof(T)) & (CELLS - 1);
    return cells < most ? cells : (int)most;
}

/* e^x, within 2**-17 of it. */
__device__ __forceinline__ float noyau_near_exp(float x)
{
#ifndef NOYAU_WATCHED
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.442695041f));
    return power;
#else
    return expf(x);
#endif
}
