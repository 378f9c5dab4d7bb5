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

/* As many blocks as hold all items, or as a grid can have: each takes several rounds then. */
static inline unsigned noyau_blocks(int64_t items, int64_t of_block)
{
    const int64_t blocks = (items + of_block - 1) / of_block;
    return (unsigned)(blocks < 2147483647 ? blocks : 2147483647);
}
#endif
#define NOYAU_INLINE static __device__ __forceinline__

/* The greater; NaN if either is NaN. 0.0 ulp. */
NOYAU_INLINE float noyau_maximum_f32(float x, float y) {
    return ((x > y) | (x != x)) ? x : y;
}

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

struct noyau_max_f32 {
    float s0;
    __device__ void merge(const noyau_max_f32 &other)
    {
        float next0 = noyau_maximum_f32(s0, other.s0);
        s0 = next0;
    }
};

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

extern "C" __global__ void __launch_bounds__(256) scattered_labels_0(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        const int64_t ids_i = ids[i0];
        const int64_t at = 0 < n ? ids_i : 0LL;
        [[maybe_unused]] const bool inside = !(0 < n) || (at >= 0 && at < n);
        float v3_max;
        {
            v3_max = -INFINITY;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const float x_i = x[i0 * n + r1 * 256 + lane];
                v3_max = noyau_maximum_f32(v3_max, x_i);
            }
        }
        v3_max = noyau_merge_lanes<256>(noyau_max_f32{v3_max}).s0;
        const float v3 = v3_max;
        double v8_sum;
        {
            v8_sum = 0.0;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 256; ++r2) {
                const float x_i = x[i0 * n + r2 * 256 + lane];
                const float v6 = x_i - v3;
                const float v7 = expf(v6);
                v8_sum += (double)v7;
            }
        }
        v8_sum = noyau_merge_lanes<256>(noyau_sum_f64{v8_sum}).s0;
        const float v8 = (float)v8_sum;
        const float less_i = less[i0];
        const float v12 = -less_i;
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = x[i0 * n + i1];
            const float v6 = x_i - v3;
            const float v7 = expf(v6);
            const float v11 = v7 / v8;
            const float v13 = i1 == at ? (v11 + v12) : v11;
            v14[i0 * n + i1] = v13 * v13;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_labels_1(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        const int64_t ids_i = ids[i0];
        const int64_t at = 0 < n ? ids_i : 0LL;
        [[maybe_unused]] const bool inside = !(0 < n) || (at >= 0 && at < n);
        float v3_max;
        {
            v3_max = -INFINITY;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const float x_i = x[i0 * n + r1 * 32 + lane];
                v3_max = noyau_maximum_f32(v3_max, x_i);
            }
        }
        v3_max = noyau_merge_lanes<32>(noyau_max_f32{v3_max}).s0;
        const float v3 = v3_max;
        float v8_sum;
        {
            v8_sum = 0.0f;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 32; ++r2) {
                const float x_i = x[i0 * n + r2 * 32 + lane];
                const float v6 = x_i - v3;
                const float v7 = expf(v6);
                v8_sum += v7;
            }
        }
        v8_sum = noyau_merge_lanes<32>(noyau_sum_f32{v8_sum}).s0;
        const float v8 = v8_sum;
        const float less_i = less[i0];
        const float v12 = -less_i;
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = x[i0 * n + i1];
            const float v6 = x_i - v3;
            const float v7 = expf(v6);
            const float v11 = v7 / v8;
            const float v13 = i1 == at ? (v11 + v12) : v11;
            v14[i0 * n + i1] = v13 * v13;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t scattered_labels(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((!(n <= 1024)) && rows > 0) scattered_labels_0<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, ids, less, v14, rows, n);
    if ((n <= 1024) && rows > 0) scattered_labels_1<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, ids, less, v14, rows, n);
    return cudaGetLastError();
}
#endif
