/* the kernel log_softmax_f64 */

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
NOYAU_INLINE double noyau_maximum_f64(double x, double y) {
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

struct noyau_max_f64 {
    double s0;
    __device__ void merge(const noyau_max_f64 &other)
    {
        double next0 = noyau_maximum_f64(s0, other.s0);
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

extern "C" __global__ void __launch_bounds__(256) log_softmax_f64_0(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        double v1_max;
        {
            v1_max = -INFINITY;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const double x_i = x[i0 * n + r1 * 256 + lane];
                v1_max = noyau_maximum_f64(v1_max, x_i);
            }
        }
        v1_max = noyau_merge_lanes<256>(noyau_max_f64{v1_max}).s0;
        const double v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 256; ++r2) {
                const double x_i = x[i0 * n + r2 * 256 + lane];
                const double v4 = x_i - v1;
                const double v5 = exp(v4);
                v6_sum += v5;
            }
        }
        v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
        const double v6 = v6_sum;
        const double v8 = log(v6);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const double x_i = x[i0 * n + i1];
            const double v4 = x_i - v1;
            v10[i0 * n + i1] = v4 - v8;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) log_softmax_f64_1(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        double v1_max;
        {
            v1_max = -INFINITY;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const double x_i = x[i0 * n + r1 * 32 + lane];
                v1_max = noyau_maximum_f64(v1_max, x_i);
            }
        }
        v1_max = noyau_merge_lanes<32>(noyau_max_f64{v1_max}).s0;
        const double v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 32; ++r2) {
                const double x_i = x[i0 * n + r2 * 32 + lane];
                const double v4 = x_i - v1;
                const double v5 = exp(v4);
                v6_sum += v5;
            }
        }
        v6_sum = noyau_merge_lanes<32>(noyau_sum_f64{v6_sum}).s0;
        const double v6 = v6_sum;
        const double v8 = log(v6);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const double x_i = x[i0 * n + i1];
            const double v4 = x_i - v1;
            v10[i0 * n + i1] = v4 - v8;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t log_softmax_f64(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((!(n <= 1024)) && rows > 0) log_softmax_f64_0<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v10, rows, n);
    if ((n <= 1024) && rows > 0) log_softmax_f64_1<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, v10, rows, n);
    return cudaGetLastError();
}
#endif
