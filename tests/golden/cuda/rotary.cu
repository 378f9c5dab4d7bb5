/* the kernel rotary */

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

NOYAU_BOTH int64_t noyau_floor_divide_i64(int64_t a, int64_t b)
{
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    if (!b) return a;
    return (int64_t)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

NOYAU_BOTH int64_t noyau_floor_mod_i64(int64_t a, int64_t b)
{
    if (b == -1 || !b) return 0;
    const int64_t m = (int64_t)(a % b);
    return m != 0 && (m < 0) != (b < 0) ? (int64_t)(m + b) : m;
}

NOYAU_BOTH int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

extern "C" __global__ void __launch_bounds__(256) rotary_0(const float *__restrict__ x, const float *__restrict__ v_sin, const float *__restrict__ v_cos, float *__restrict__ v12, int64_t b, int64_t s)
{
    const int lane = threadIdx.x;
    const int64_t items = b * 2 * ((s * 4 + 2047) / 2048);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (2 * ((s * 4 + 2047) / 2048));
        const int64_t i1 = item / (((s * 4 + 2047) / 2048)) % 2;
        const int64_t itemb = item % ((s * 4 + 2047) / 2048);
        const int64_t length = noyau_minimum_i64(2048, s * 4 - itemb * 2048);
        {
            #pragma unroll 4
            for (int64_t v_item = lane; v_item < length; v_item += 256) {
                const float x_i = x[i0 * s * 16 + itemb * 8192 + (v_item / 4) * 16 + i1 * 8 + (v_item % 4) + 4];
                const float v6 = -x_i;
                const float v_sin_i = v_sin[itemb * 4096 + (v_item / 4) * 8 + (v_item % 4)];
                const float v11 = v6 * v_sin_i;
                const float x_i_2 = x[i0 * s * 16 + itemb * 8192 + (v_item / 4) * 16 + i1 * 8 + (v_item % 4)];
                const float v_cos_i = v_cos[itemb * 4096 + (v_item / 4) * 8 + (v_item % 4)];
                const float v9 = x_i_2 * v_cos_i;
                v12[(i0 * 16 + i1 * 8) * s + itemb * 4096 + (v_item / 4) * 8 + (v_item % 4)] = v11 + v9;
                const float v_sin_i_2 = v_sin[itemb * 4096 + (v_item / 4) * 8 + (v_item % 4) + 4];
                const float v11_2 = x_i_2 * v_sin_i_2;
                const float v_cos_i_2 = v_cos[itemb * 4096 + (v_item / 4) * 8 + (v_item % 4) + 4];
                const float v9_2 = x_i * v_cos_i_2;
                v12[(i0 * 16 + i1 * 8) * s + itemb * 4096 + (v_item / 4) * 8 + (v_item % 4) + 4] = v11_2 + v9_2;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) rotary_1(const float *__restrict__ x, const float *__restrict__ v_sin, const float *__restrict__ v_cos, float *__restrict__ v12, int64_t b, int64_t s)
{
    const int lane = threadIdx.x;
    for (int64_t itemb = blockIdx.x; itemb < (b * s * 8 + 2047) / 2048; itemb += gridDim.x) {
        const int64_t length = noyau_minimum_i64(2048, b * s * 8 - itemb * 2048);
        {
            #pragma unroll 4
            for (int64_t v_item = lane; v_item < length; v_item += 256) {
                const float x_i = x[noyau_floor_divide_i64(itemb * 2048 + v_item, s * 8) * s * 16 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 2048 + v_item, s * 4), 2) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4) + 4];
                const float v6 = -x_i;
                const float v_sin_i = v_sin[(noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4)];
                const float v11 = v6 * v_sin_i;
                const float x_i_2 = x[noyau_floor_divide_i64(itemb * 2048 + v_item, s * 8) * s * 16 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 2048 + v_item, s * 4), 2) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4)];
                const float v_cos_i = v_cos[(noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4)];
                const float v9 = x_i_2 * v_cos_i;
                v12[noyau_floor_divide_i64(itemb * 2048 + v_item, s * 4) * s * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4)] = v11 + v9;
                const float v_sin_i_2 = v_sin[(noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4) + 4];
                const float v11_2 = x_i_2 * v_sin_i_2;
                const float v_cos_i_2 = v_cos[(noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4) + 4];
                const float v9_2 = x_i * v_cos_i_2;
                v12[noyau_floor_divide_i64(itemb * 2048 + v_item, s * 4) * s * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 2048 + v_item, s * 4) % 4) + 4] = v11_2 + v9_2;
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t rotary(const float *__restrict__ x, const float *__restrict__ v_sin, const float *__restrict__ v_cos, float *__restrict__ v12, int64_t b, int64_t s, cudaStream_t stream)
{
    if ((!((s * 4) <= 128)) && b * ((s * 4 + 2047) / 2048) * 2 > 0) rotary_0<<<noyau_blocks(b * ((s * 4 + 2047) / 2048) * 2, 1), 256, 0, stream>>>(x, v_sin, v_cos, v12, b, s);
    if (((s * 4) <= 128) && (b * s * 8 + 2047) / 2048 > 0) rotary_1<<<noyau_blocks((b * s * 8 + 2047) / 2048, 1), 256, 0, stream>>>(x, v_sin, v_cos, v12, b, s);
    return cudaGetLastError();
}
#endif
