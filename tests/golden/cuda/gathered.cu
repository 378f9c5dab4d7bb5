/* the kernel gathered */

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

/* As many blocks as hold all items, or as a grid can have: each takes several rounds then. */
static inline unsigned noyau_blocks(int64_t items, int64_t of_block)
{
    const int64_t blocks = (items + of_block - 1) / of_block;
    return (unsigned)(blocks < 2147483647 ? blocks : 2147483647);
}
#endif
#define NOYAU_INLINE static __device__ __forceinline__

/* The states of the threads of a block, merged by halves: the upper half into the lower one, again and again. All
   threads come here, and each gets the result. A warp waits for itself alone: the last 32 states of a block are those of
   one, and where a warp has an item of its own, so are all. */
template <int LANES, class State> __device__ State noyau_merge_lanes(State own)
{
    __shared__ State shared[256];
    State *const states = shared + (LANES > 32 ? 0 : threadIdx.y * 32);
    const int lane = threadIdx.x;
    states[lane] = own;
    for (int half = LANES / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (lane < half) states[lane].merge(states[lane + half]);
    }
    if (LANES > 32) __syncthreads();
    else __syncwarp();
    for (int half = 16; half > 0 && lane < 32; half /= 2) {
        if (lane < half) states[lane].merge(states[lane + half]);
        __syncwarp();
    }
    if (LANES > 32) __syncthreads();
    const State all = states[0];
    if (LANES > 32) __syncthreads(); /* before the next merge takes the memory */
    else __syncwarp();
    return all;
}

struct noyau_sum_f64 {
    double s0;
    __device__ void merge(const noyau_sum_f64 &other)
    {
        double next0 = s0 + other.s0;
        s0 = next0;
    }
};

struct noyau_sum_f32 {
    float s0;
    __device__ void merge(const noyau_sum_f32 &other)
    {
        float next0 = s0 + other.s0;
        s0 = next0;
    }
};

extern "C" __global__ void __launch_bounds__(256) gathered_0(const float *__restrict__ table, const int64_t *__restrict__ ids, float *__restrict__ v5, float *__restrict__ v2, int64_t words, int64_t n, int64_t b, int64_t s)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i1 = blockIdx.x; i1 < b * s; i1 += gridDim.x) {
        const int64_t ids_i = ids[i1];
        const int64_t at = ids_i;
        [[maybe_unused]] const bool inside = (at >= 0 && at < words);
        double v4_sum;
        {
            v4_sum = 0.0;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const float table_i = inside ? table[at * n + r1 * 256 + lane] : 0.0f;
                const float v3 = table_i * table_i;
                v4_sum += (double)v3;
            }
        }
        v4_sum = noyau_merge_lanes<256>(noyau_sum_f64{v4_sum}).s0;
        if (threadIdx.x == 0) {
            v5[i1] = (float)v4_sum;
        }
        #pragma unroll 4
        for (int64_t i2 = threadIdx.x; i2 < n; i2 += blockDim.x) {
            v2[i1 * n + i2] = inside ? table[at * n + i2] : 0.0f;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) gathered_1(const float *__restrict__ table, const int64_t *__restrict__ ids, float *__restrict__ v5, float *__restrict__ v2, int64_t words, int64_t n, int64_t b, int64_t s)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i1 = (int64_t)blockIdx.x * 8 + threadIdx.y; i1 < b * s; i1 += (int64_t)gridDim.x * 8) {
        const int64_t ids_i = ids[i1];
        const int64_t at = ids_i;
        [[maybe_unused]] const bool inside = (at >= 0 && at < words);
        float v4_sum;
        {
            v4_sum = 0.0f;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const float table_i = inside ? table[at * n + r1 * 32 + lane] : 0.0f;
                const float v3 = table_i * table_i;
                v4_sum += v3;
            }
        }
        v4_sum = noyau_merge_lanes<32>(noyau_sum_f32{v4_sum}).s0;
        if (threadIdx.x == 0) {
            v5[i1] = v4_sum;
        }
        #pragma unroll 4
        for (int64_t i2 = threadIdx.x; i2 < n; i2 += blockDim.x) {
            v2[i1 * n + i2] = inside ? table[at * n + i2] : 0.0f;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t gathered(const float *__restrict__ table, const int64_t *__restrict__ ids, float *__restrict__ v5, float *__restrict__ v2, int64_t words, int64_t n, int64_t b, int64_t s, cudaStream_t stream)
{
    if ((!(n <= 1024)) && b * s > 0) gathered_0<<<noyau_blocks(b * s, 1), 256, 0, stream>>>(table, ids, v5, v2, words, n, b, s);
    if ((n <= 1024) && b * s > 0) gathered_1<<<noyau_blocks(b * s, 8), dim3(32, 8), 0, stream>>>(table, ids, v5, v2, words, n, b, s);
    return cudaGetLastError();
}
#endif
