/* the kernel scattered_labels */

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

/* The greater; NaN if either is NaN. 0.0 ulp. Where y is known, one comparison is left, by two instructions. */
NOYAU_INLINE float noyau_maximum_f32(float x, float y) {
#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
#else
    return ((x <= y) | (y != y)) ? y : x;
#endif
}

/* The states of the threads of a block, merged by halves: those of a warp by registers, then those of its warps. All
   threads come here, and each gets the result. Where a warp has an item of its own it waits for nobody. */
template <int LANES, class State> __device__ State noyau_merge_lanes(State own)
{
    for (int half = (LANES < 32 ? LANES : 32) / 2; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
    if (LANES > 32) {
        __shared__ State states[LANES > 32 ? LANES / 32 : 1];
        if (threadIdx.x % 32 == 0) states[threadIdx.x / 32] = own;
        __syncthreads();
        own = states[threadIdx.x % (LANES > 32 ? LANES / 32 : 1)];
        for (int half = LANES / 64; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
        __syncthreads(); /* before the next merge takes the memory */
    }
    return own.of_lane(0);
}

struct noyau_max_f32 {
    float s0;
    __device__ void merge(const noyau_max_f32 &other)
    {
        float next0 = noyau_maximum_f32(s0, other.s0);
        s0 = next0;
    }
    __device__ noyau_max_f32 of_lane(int from) const
    {
        noyau_max_f32 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        return state;
    }
};

struct noyau_sum_f32 {
    float s0;
    __device__ void merge(const noyau_sum_f32 &other)
    {
        float next0 = s0 + other.s0;
        s0 = next0;
    }
    __device__ noyau_sum_f32 of_lane(int from) const
    {
        noyau_sum_f32 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        return state;
    }
};

struct noyau_sum_f64 {
    double s0;
    __device__ void merge(const noyau_sum_f64 &other)
    {
        double next0 = s0 + other.s0;
        s0 = next0;
    }
    __device__ noyau_sum_f64 of_lane(int from) const
    {
        noyau_sum_f64 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        return state;
    }
};

extern "C" __global__ void __launch_bounds__(256) scattered_labels_0(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        const int64_t ids_i = ids[i0];
        const int64_t at = 0 < n ? ids_i : 0LL;
        [[maybe_unused]] const bool inside = !(0 < n) || (at >= 0 && at < n);
        float v3_max;
        const int length = n;
        const int until_v3 = noyau_until_aligned<4>(&x[i0 * n], length);
        const int vectors_v3 = ((until_v3 * 3 + length) / 4) - until_v3;
        {
            v3_max = -INFINITY;
            #pragma unroll 4
            for (int r1 = lane; r1 < vectors_v3; r1 += 32) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + r1 * 4 + until_v3]);
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    v3_max = noyau_maximum_f32(v3_max, x_i);
                }
            }
            #pragma unroll 4
            for (int r1_rest = lane; r1_rest < length - vectors_v3 * 4; r1_rest += 32) {
                const int r1_at = r1_rest < until_v3 ? r1_rest : (vectors_v3 * 4 + r1_rest);
                const float x_i = x[i0 * n + r1_at];
                v3_max = noyau_maximum_f32(v3_max, x_i);
            }
        }
        v3_max = noyau_merge_lanes<32>(noyau_max_f32{v3_max}).s0;
        const float v3 = v3_max;
        float v8_sum;
        const int length_2 = n;
        const int until_v8 = noyau_until_aligned<4>(&x[i0 * n], length_2);
        const int vectors_v8 = ((until_v8 * 3 + length_2) / 4) - until_v8;
        {
            v8_sum = 0.0f;
            #pragma unroll 4
            for (int r2 = lane; r2 < vectors_v8; r2 += 32) {
                float v8_of_vector_sum = 0.0f;
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + r2 * 4 + until_v8]);
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    const float v6 = x_i - v3;
                    const float v7 = expf(v6);
                    v8_of_vector_sum += v7;
                }
                v8_sum += v8_of_vector_sum;
            }
            #pragma unroll 4
            for (int r2_rest = lane; r2_rest < length_2 - vectors_v8 * 4; r2_rest += 32) {
                const int r2_at = r2_rest < until_v8 ? r2_rest : (vectors_v8 * 4 + r2_rest);
                const float x_i = x[i0 * n + r2_at];
                const float v6 = x_i - v3;
                const float v7 = expf(v6);
                v8_sum += v7;
            }
        }
        v8_sum = noyau_merge_lanes<32>(noyau_sum_f32{v8_sum}).s0;
        const float v8 = v8_sum;
        const float less_i = less[i0];
        const float v12 = -less_i;
        const int length_3 = n;
        const int until_i1 = noyau_until_aligned<4>(&x[i0 * n], length_3);
        const int until1_i1 = noyau_until_aligned<4>(&v14[i0 * n], length_3);
        const int vectors_i1 = until_i1 == until1_i1 ? (((until_i1 * 3 + length_3) / 4) - until_i1) : 0;
        {
            #pragma unroll 4
            for (int i1 = lane; i1 < vectors_i1; i1 += 32) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + i1 * 4 + until_i1]);
                noyau_vector<float, 4> v14_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    const float v6 = x_i - v3;
                    const float v7 = expf(v6);
                    const float v11 = v7 / v8;
                    const float v13 = (i1 * 4 + cell + until_i1) == at ? (v11 + v12) : v11;
                    v14_cells.at[cell] = v13 * v13;
                }
                noyau_store<float, 4>(&v14[i0 * n + i1 * 4 + until_i1], v14_cells);
            }
            #pragma unroll 4
            for (int i1_rest = lane; i1_rest < length_3 - vectors_i1 * 4; i1_rest += 32) {
                const int i1_at = i1_rest < until_i1 ? i1_rest : (vectors_i1 * 4 + i1_rest);
                const float x_i = x[i0 * n + i1_at];
                const float v6 = x_i - v3;
                const float v7 = expf(v6);
                const float v11 = v7 / v8;
                const float v13 = i1_at == at ? (v11 + v12) : v11;
                v14[i0 * n + i1_at] = v13 * v13;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_labels_1(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        const int64_t ids_i = ids[i0];
        const int64_t at = 0 < n ? ids_i : 0LL;
        [[maybe_unused]] const bool inside = !(0 < n) || (at >= 0 && at < n);
        float v3_max;
        const int64_t length = n;
        const int64_t until_v3 = noyau_until_aligned<4>(&x[i0 * n], length);
        const int64_t vectors_v3 = ((until_v3 * 3 + length) / 4) - until_v3;
        {
            v3_max = -INFINITY;
            #pragma unroll 4
            for (int64_t r1 = lane; r1 < vectors_v3; r1 += 256) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + r1 * 4 + until_v3]);
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    v3_max = noyau_maximum_f32(v3_max, x_i);
                }
            }
            #pragma unroll 4
            for (int64_t r1_rest = lane; r1_rest < length - vectors_v3 * 4; r1_rest += 256) {
                const int64_t r1_at = r1_rest < until_v3 ? r1_rest : (vectors_v3 * 4 + r1_rest);
                const float x_i = x[i0 * n + r1_at];
                v3_max = noyau_maximum_f32(v3_max, x_i);
            }
        }
        v3_max = noyau_merge_lanes<256>(noyau_max_f32{v3_max}).s0;
        const float v3 = v3_max;
        double v8_sum;
        const int64_t length_2 = n;
        const int64_t until_v8 = noyau_until_aligned<4>(&x[i0 * n], length_2);
        const int64_t vectors_v8 = ((until_v8 * 3 + length_2) / 4) - until_v8;
        {
            v8_sum = 0.0;
            #pragma unroll 4
            for (int64_t r2 = lane; r2 < vectors_v8; r2 += 256) {
                float v8_of_vector_sum = 0.0f;
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + r2 * 4 + until_v8]);
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    const float v6 = x_i - v3;
                    const float v7 = expf(v6);
                    v8_of_vector_sum += v7;
                }
                v8_sum += (double)v8_of_vector_sum;
            }
            #pragma unroll 4
            for (int64_t r2_rest = lane; r2_rest < length_2 - vectors_v8 * 4; r2_rest += 256) {
                const int64_t r2_at = r2_rest < until_v8 ? r2_rest : (vectors_v8 * 4 + r2_rest);
                const float x_i = x[i0 * n + r2_at];
                const float v6 = x_i - v3;
                const float v7 = expf(v6);
                v8_sum += (double)v7;
            }
        }
        v8_sum = noyau_merge_lanes<256>(noyau_sum_f64{v8_sum}).s0;
        const float v8 = (float)v8_sum;
        const float less_i = less[i0];
        const float v12 = -less_i;
        const int64_t length_3 = n;
        const int64_t until_i1 = noyau_until_aligned<4>(&x[i0 * n], length_3);
        const int64_t until1_i1 = noyau_until_aligned<4>(&v14[i0 * n], length_3);
        const int64_t vectors_i1 = until_i1 == until1_i1 ? (((until_i1 * 3 + length_3) / 4) - until_i1) : 0;
        {
            #pragma unroll 4
            for (int64_t i1 = lane; i1 < vectors_i1; i1 += 256) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + i1 * 4 + until_i1]);
                noyau_vector<float, 4> v14_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    const float v6 = x_i - v3;
                    const float v7 = expf(v6);
                    const float v11 = v7 / v8;
                    const float v13 = (i1 * 4 + cell + until_i1) == at ? (v11 + v12) : v11;
                    v14_cells.at[cell] = v13 * v13;
                }
                noyau_store<float, 4>(&v14[i0 * n + i1 * 4 + until_i1], v14_cells);
            }
            #pragma unroll 4
            for (int64_t i1_rest = lane; i1_rest < length_3 - vectors_i1 * 4; i1_rest += 256) {
                const int64_t i1_at = i1_rest < until_i1 ? i1_rest : (vectors_i1 * 4 + i1_rest);
                const float x_i = x[i0 * n + i1_at];
                const float v6 = x_i - v3;
                const float v7 = expf(v6);
                const float v11 = v7 / v8;
                const float v13 = i1_at == at ? (v11 + v12) : v11;
                v14[i0 * n + i1_at] = v13 * v13;
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t scattered_labels(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((n <= 1024) && rows > 0) scattered_labels_0<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, ids, less, v14, rows, n);
    if ((!(n <= 1024)) && rows > 0) scattered_labels_1<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, ids, less, v14, rows, n);
    return cudaGetLastError();
}
#endif
