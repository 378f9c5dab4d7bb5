/* the kernel padded */

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

extern "C" __global__ void __launch_bounds__(256) padded_0(const float *__restrict__ x, float *__restrict__ v6, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        const int length = 2;
        const int until_i1 = noyau_until_aligned<4>(&v6[i0 * n + i0 * 4], length);
        const int vectors_i1 = ((until_i1 * 3 + length) / 4) - until_i1;
        {
            #pragma unroll 4
            for (int i1 = lane; i1 < vectors_i1; i1 += 32) {
                noyau_vector<float, 4> v6_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    v6_cells.at[cell] = 7.0f * 7.0f;
                }
                noyau_store<float, 4>(&v6[i0 * n + i0 * 4 + i1 * 4 + until_i1], v6_cells);
            }
            #pragma unroll 4
            for (int i1_rest = lane; i1_rest < length - vectors_i1 * 4; i1_rest += 32) {
                const int i1_at = i1_rest < until_i1 ? i1_rest : (vectors_i1 * 4 + i1_rest);
                v6[i0 * n + i0 * 4 + i1_at] = 7.0f * 7.0f;
            }
        }
        const int length_2 = n;
        const int until_i1_2 = noyau_until_aligned<4>(&x[i0 * n], length_2);
        const int until1_i1_2 = noyau_until_aligned<4>(&v6[i0 * n + i0 * 4 + 2], length_2);
        const int vectors_i1_2 = until_i1_2 == until1_i1_2 ? (((until_i1_2 * 3 + length_2) / 4) - until_i1_2) : 0;
        {
            #pragma unroll 4
            for (int i1 = lane; i1 < vectors_i1_2; i1 += 32) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + i1 * 4 + until_i1_2]);
                noyau_vector<float, 4> v6_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    v6_cells.at[cell] = x_i * x_i;
                }
                noyau_store<float, 4>(&v6[i0 * n + i0 * 4 + i1 * 4 + until_i1_2 + 2], v6_cells);
            }
            #pragma unroll 4
            for (int i1_rest = lane; i1_rest < length_2 - vectors_i1_2 * 4; i1_rest += 32) {
                const int i1_at = i1_rest < until_i1_2 ? i1_rest : (vectors_i1_2 * 4 + i1_rest);
                const float x_i = x[i0 * n + i1_at];
                v6[i0 * n + i0 * 4 + i1_at + 2] = x_i * x_i;
            }
        }
        const int length_3 = 2;
        const int until_i1_3 = noyau_until_aligned<4>(&v6[(i0 + 1) * n + i0 * 4 + 2], length_3);
        const int vectors_i1_3 = ((until_i1_3 * 3 + length_3) / 4) - until_i1_3;
        {
            #pragma unroll 4
            for (int i1 = lane; i1 < vectors_i1_3; i1 += 32) {
                noyau_vector<float, 4> v6_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    v6_cells.at[cell] = (-7.0f) * (-7.0f);
                }
                noyau_store<float, 4>(&v6[(i0 + 1) * n + i0 * 4 + i1 * 4 + until_i1_3 + 2], v6_cells);
            }
            #pragma unroll 4
            for (int i1_rest = lane; i1_rest < length_3 - vectors_i1_3 * 4; i1_rest += 32) {
                const int i1_at = i1_rest < until_i1_3 ? i1_rest : (vectors_i1_3 * 4 + i1_rest);
                v6[(i0 + 1) * n + i0 * 4 + i1_at + 2] = (-7.0f) * (-7.0f);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) padded_1(const float *__restrict__ x, float *__restrict__ v6, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        const int64_t length = 2;
        const int64_t until_i1 = noyau_until_aligned<4>(&v6[i0 * n + i0 * 4], length);
        const int64_t vectors_i1 = ((until_i1 * 3 + length) / 4) - until_i1;
        {
            #pragma unroll 4
            for (int64_t i1 = lane; i1 < vectors_i1; i1 += 256) {
                noyau_vector<float, 4> v6_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    v6_cells.at[cell] = 7.0f * 7.0f;
                }
                noyau_store<float, 4>(&v6[i0 * n + i0 * 4 + i1 * 4 + until_i1], v6_cells);
            }
            #pragma unroll 4
            for (int64_t i1_rest = lane; i1_rest < length - vectors_i1 * 4; i1_rest += 256) {
                const int64_t i1_at = i1_rest < until_i1 ? i1_rest : (vectors_i1 * 4 + i1_rest);
                v6[i0 * n + i0 * 4 + i1_at] = 7.0f * 7.0f;
            }
        }
        const int64_t length_2 = n;
        const int64_t until_i1_2 = noyau_until_aligned<4>(&x[i0 * n], length_2);
        const int64_t until1_i1_2 = noyau_until_aligned<4>(&v6[i0 * n + i0 * 4 + 2], length_2);
        const int64_t vectors_i1_2 = until_i1_2 == until1_i1_2 ? (((until_i1_2 * 3 + length_2) / 4) - until_i1_2) : 0;
        {
            #pragma unroll 4
            for (int64_t i1 = lane; i1 < vectors_i1_2; i1 += 256) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + i1 * 4 + until_i1_2]);
                noyau_vector<float, 4> v6_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    v6_cells.at[cell] = x_i * x_i;
                }
                noyau_store<float, 4>(&v6[i0 * n + i0 * 4 + i1 * 4 + until_i1_2 + 2], v6_cells);
            }
            #pragma unroll 4
            for (int64_t i1_rest = lane; i1_rest < length_2 - vectors_i1_2 * 4; i1_rest += 256) {
                const int64_t i1_at = i1_rest < until_i1_2 ? i1_rest : (vectors_i1_2 * 4 + i1_rest);
                const float x_i = x[i0 * n + i1_at];
                v6[i0 * n + i0 * 4 + i1_at + 2] = x_i * x_i;
            }
        }
        const int64_t length_3 = 2;
        const int64_t until_i1_3 = noyau_until_aligned<4>(&v6[(i0 + 1) * n + i0 * 4 + 2], length_3);
        const int64_t vectors_i1_3 = ((until_i1_3 * 3 + length_3) / 4) - until_i1_3;
        {
            #pragma unroll 4
            for (int64_t i1 = lane; i1 < vectors_i1_3; i1 += 256) {
                noyau_vector<float, 4> v6_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    v6_cells.at[cell] = (-7.0f) * (-7.0f);
                }
                noyau_store<float, 4>(&v6[(i0 + 1) * n + i0 * 4 + i1 * 4 + until_i1_3 + 2], v6_cells);
            }
            #pragma unroll 4
            for (int64_t i1_rest = lane; i1_rest < length_3 - vectors_i1_3 * 4; i1_rest += 256) {
                const int64_t i1_at = i1_rest < until_i1_3 ? i1_rest : (vectors_i1_3 * 4 + i1_rest);
                v6[(i0 + 1) * n + i0 * 4 + i1_at + 2] = (-7.0f) * (-7.0f);
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t padded(const float *__restrict__ x, float *__restrict__ v6, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((n <= 1024) && rows > 0) padded_0<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, v6, rows, n);
    if ((!(n <= 1024)) && rows > 0) padded_1<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v6, rows, n);
    return cudaGetLastError();
}
#endif
