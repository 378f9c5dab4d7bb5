/* the kernel concatenated */

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

extern "C" __global__ void __launch_bounds__(256) concatenated_0(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ v3, int64_t n, int64_t a, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < n; i0 += (int64_t)gridDim.x * 8) {
        const int length = a;
        const int until_i1 = noyau_until_aligned<4>(&x[a * i0], length);
        const int until1_i1 = noyau_until_aligned<4>(&v3[a * i0 + b * i0], length);
        const int vectors_i1 = until_i1 == until1_i1 ? (((until_i1 * 3 + length) / 4) - until_i1) : 0;
        {
            #pragma unroll 4
            for (int i1 = lane; i1 < vectors_i1; i1 += 32) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[a * i0 + i1 * 4 + until_i1]);
                noyau_vector<float, 4> v3_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    v3_cells.at[cell] = expf(x_i);
                }
                noyau_store<float, 4>(&v3[a * i0 + b * i0 + i1 * 4 + until_i1], v3_cells);
            }
            #pragma unroll 4
            for (int i1_rest = lane; i1_rest < length - vectors_i1 * 4; i1_rest += 32) {
                const int i1_at = i1_rest < until_i1 ? i1_rest : (vectors_i1 * 4 + i1_rest);
                const float x_i = x[a * i0 + i1_at];
                v3[a * i0 + b * i0 + i1_at] = expf(x_i);
            }
        }
        const int length_2 = b;
        const int until_i1_2 = noyau_until_aligned<4>(&y[b * i0], length_2);
        const int until1_i1_2 = noyau_until_aligned<4>(&v3[(i0 + 1) * a + b * i0], length_2);
        const int vectors_i1_2 = until_i1_2 == until1_i1_2 ? (((until_i1_2 * 3 + length_2) / 4) - until_i1_2) : 0;
        {
            #pragma unroll 4
            for (int i1 = lane; i1 < vectors_i1_2; i1 += 32) {
                const noyau_vector<float, 4> y_cells = noyau_load<float, 4>(&y[b * i0 + i1 * 4 + until_i1_2]);
                noyau_vector<float, 4> v3_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float y_i = y_cells.at[cell];
                    v3_cells.at[cell] = expf(y_i);
                }
                noyau_store<float, 4>(&v3[(i0 + 1) * a + b * i0 + i1 * 4 + until_i1_2], v3_cells);
            }
            #pragma unroll 4
            for (int i1_rest = lane; i1_rest < length_2 - vectors_i1_2 * 4; i1_rest += 32) {
                const int i1_at = i1_rest < until_i1_2 ? i1_rest : (vectors_i1_2 * 4 + i1_rest);
                const float y_i = y[b * i0 + i1_at];
                v3[(i0 + 1) * a + b * i0 + i1_at] = expf(y_i);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) concatenated_1(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ v3, int64_t n, int64_t a, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < n; i0 += gridDim.x) {
        const int64_t length = a;
        const int64_t until_i1 = noyau_until_aligned<4>(&x[a * i0], length);
        const int64_t until1_i1 = noyau_until_aligned<4>(&v3[a * i0 + b * i0], length);
        const int64_t vectors_i1 = until_i1 == until1_i1 ? (((until_i1 * 3 + length) / 4) - until_i1) : 0;
        {
            #pragma unroll 4
            for (int64_t i1 = lane; i1 < vectors_i1; i1 += 256) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[a * i0 + i1 * 4 + until_i1]);
                noyau_vector<float, 4> v3_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    v3_cells.at[cell] = expf(x_i);
                }
                noyau_store<float, 4>(&v3[a * i0 + b * i0 + i1 * 4 + until_i1], v3_cells);
            }
            #pragma unroll 4
            for (int64_t i1_rest = lane; i1_rest < length - vectors_i1 * 4; i1_rest += 256) {
                const int64_t i1_at = i1_rest < until_i1 ? i1_rest : (vectors_i1 * 4 + i1_rest);
                const float x_i = x[a * i0 + i1_at];
                v3[a * i0 + b * i0 + i1_at] = expf(x_i);
            }
        }
        const int64_t length_2 = b;
        const int64_t until_i1_2 = noyau_until_aligned<4>(&y[b * i0], length_2);
        const int64_t until1_i1_2 = noyau_until_aligned<4>(&v3[(i0 + 1) * a + b * i0], length_2);
        const int64_t vectors_i1_2 = until_i1_2 == until1_i1_2 ? (((until_i1_2 * 3 + length_2) / 4) - until_i1_2) : 0;
        {
            #pragma unroll 4
            for (int64_t i1 = lane; i1 < vectors_i1_2; i1 += 256) {
                const noyau_vector<float, 4> y_cells = noyau_load<float, 4>(&y[b * i0 + i1 * 4 + until_i1_2]);
                noyau_vector<float, 4> v3_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float y_i = y_cells.at[cell];
                    v3_cells.at[cell] = expf(y_i);
                }
                noyau_store<float, 4>(&v3[(i0 + 1) * a + b * i0 + i1 * 4 + until_i1_2], v3_cells);
            }
            #pragma unroll 4
            for (int64_t i1_rest = lane; i1_rest < length_2 - vectors_i1_2 * 4; i1_rest += 256) {
                const int64_t i1_at = i1_rest < until_i1_2 ? i1_rest : (vectors_i1_2 * 4 + i1_rest);
                const float y_i = y[b * i0 + i1_at];
                v3[(i0 + 1) * a + b * i0 + i1_at] = expf(y_i);
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t concatenated(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ v3, int64_t n, int64_t a, int64_t b, cudaStream_t stream)
{
    if (((a <= 1024) & (b <= 1024)) && n > 0) concatenated_0<<<noyau_blocks(n, 8), dim3(32, 8), 0, stream>>>(x, y, v3, n, a, b);
    if ((!((a <= 1024) & (b <= 1024))) && n > 0) concatenated_1<<<noyau_blocks(n, 1), 256, 0, stream>>>(x, y, v3, n, a, b);
    return cudaGetLastError();
}
#endif
