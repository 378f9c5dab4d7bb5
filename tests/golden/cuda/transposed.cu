/* the kernel transposed */

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

extern "C" __global__ void __launch_bounds__(256) transposed_0(const float *__restrict__ x, float *__restrict__ v2, int64_t a, int64_t b, int64_t c)
{
    const int lane = threadIdx.x;
    const int64_t items = a * ((c + 31) / 32) * ((b + 31) / 32);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (((c + 31) / 32) * ((b + 31) / 32));
        const int64_t i1b = item / (((b + 31) / 32)) % ((c + 31) / 32);
        const int64_t i2b = item % ((b + 31) / 32);
        __shared__ float tile[1056];
        {
            #pragma unroll 4
            for (int64_t turn = 0; turn < 4; ++turn) {
                if (((i1b * 32 + (lane % 32)) < c) & ((i2b * 32 + turn * 8 + (lane / 32)) < b)) {
                    const float x_i = x[(b * i0 + i2b * 32 + turn * 8 + (lane / 32)) * c + i1b * 32 + (lane % 32)];
                    tile[turn * 264 + (lane / 32) * 33 + (lane % 32)] = -x_i;
                }
            }
        }
        __syncthreads();
        {
            #pragma unroll 4
            for (int64_t turn = 0; turn < 4; ++turn) {
                if (((i1b * 32 + turn * 8 + (lane / 32)) < c) & ((i2b * 32 + (lane % 32)) < b)) {
                    v2[(c * i0 + i1b * 32 + turn * 8 + (lane / 32)) * b + i2b * 32 + (lane % 32)] = tile[(lane % 32) * 33 + turn * 8 + (lane / 32)];
                }
            }
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) transposed_1(const float *__restrict__ x, float *__restrict__ v2, int64_t a, int64_t b, int64_t c)
{
    const int lane = threadIdx.x;
    const int64_t items = a * c * ((b + 2047) / 2048);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (c * ((b + 2047) / 2048));
        const int64_t i1 = item / (((b + 2047) / 2048)) % c;
        const int64_t i2b = item % ((b + 2047) / 2048);
        const int64_t length = noyau_minimum_i64(2048, b - i2b * 2048);
        const int length_2 = length;
        const int until_i2b = noyau_until_aligned<4>(&v2[(c * i0 + i1) * b + i2b * 2048], length_2);
        const int vectors_i2b = ((until_i2b * 3 + length_2) / 4) - until_i2b;
        {
            #pragma unroll 4
            for (int i2 = lane; i2 < vectors_i2b; i2 += 256) {
                noyau_vector<float, 4> v2_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x[(b * i0 + i2b * 2048 + i2 * 4 + cell + until_i2b) * c + i1];
                    v2_cells.at[cell] = -x_i;
                }
                noyau_store<float, 4>(&v2[(c * i0 + i1) * b + i2b * 2048 + i2 * 4 + until_i2b], v2_cells);
            }
            #pragma unroll 4
            for (int i2_rest = lane; i2_rest < length_2 - vectors_i2b * 4; i2_rest += 256) {
                const int i2_at = i2_rest < until_i2b ? i2_rest : (vectors_i2b * 4 + i2_rest);
                const float x_i = x[(b * i0 + i2b * 2048 + i2_at) * c + i1];
                v2[(c * i0 + i1) * b + i2b * 2048 + i2_at] = -x_i;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) transposed_2(const float *__restrict__ x, float *__restrict__ v2, int64_t a, int64_t b, int64_t c)
{
    const int lane = threadIdx.x;
    for (int64_t itemb = blockIdx.x; itemb < (a * b * c + 2047) / 2048; itemb += gridDim.x) {
        const int64_t length = noyau_minimum_i64(2048, a * b * c - itemb * 2048);
        const int length_2 = length;
        const int until_itemb = noyau_until_aligned<4>(&v2[itemb * 2048], length_2);
        const int vectors_itemb = ((until_itemb * 3 + length_2) / 4) - until_itemb;
        {
            #pragma unroll 4
            for (int v_item = lane; v_item < vectors_itemb; v_item += 256) {
                noyau_vector<float, 4> v2_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x[(b * noyau_floor_divide_i64(itemb * 2048 + v_item * 4 + cell + until_itemb, b * c) + noyau_floor_mod_i64(itemb * 2048 + v_item * 4 + cell + until_itemb, b)) * c + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 2048 + v_item * 4 + cell + until_itemb, b), c)];
                    v2_cells.at[cell] = -x_i;
                }
                noyau_store<float, 4>(&v2[itemb * 2048 + v_item * 4 + until_itemb], v2_cells);
            }
            #pragma unroll 4
            for (int item_rest = lane; item_rest < length_2 - vectors_itemb * 4; item_rest += 256) {
                const int item_at = item_rest < until_itemb ? item_rest : (vectors_itemb * 4 + item_rest);
                const float x_i = x[(b * noyau_floor_divide_i64(itemb * 2048 + item_at, b * c) + noyau_floor_mod_i64(itemb * 2048 + item_at, b)) * c + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 2048 + item_at, b), c)];
                v2[itemb * 2048 + item_at] = -x_i;
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t transposed(const float *__restrict__ x, float *__restrict__ v2, int64_t a, int64_t b, int64_t c, cudaStream_t stream)
{
    if (((32 <= c) & (32 <= b)) && a * ((b + 31) / 32) * ((c + 31) / 32) > 0) transposed_0<<<noyau_blocks(a * ((b + 31) / 32) * ((c + 31) / 32), 1), 256, 0, stream>>>(x, v2, a, b, c);
    if (((!((32 <= c) & (32 <= b))) & (!(b <= 128))) && a * c * ((b + 2047) / 2048) > 0) transposed_1<<<noyau_blocks(a * c * ((b + 2047) / 2048), 1), 256, 0, stream>>>(x, v2, a, b, c);
    if (((!((32 <= c) & (32 <= b))) & (b <= 128)) && (a * b * c + 2047) / 2048 > 0) transposed_2<<<noyau_blocks((a * b * c + 2047) / 2048, 1), 256, 0, stream>>>(x, v2, a, b, c);
    return cudaGetLastError();
}
#endif
