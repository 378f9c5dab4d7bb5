/* the kernel full_sum */

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

NOYAU_INLINE int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
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

struct noyau_sum_f64 {
    double s0;
    __device__ void merge(const noyau_sum_f64 &other)
    {
        double next0 = s0 + other.s0;
        s0 = next0;
    }
};

extern "C" __global__ void __launch_bounds__(256) full_sum_0(const float *__restrict__ x, const float *__restrict__ v1, double *__restrict__ v1_2_sum_of_block, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t block = blockIdx.x; block < (n + 32767) / 32768; block += gridDim.x) {
        const int64_t length = noyau_minimum_i64(32768, n - block * 32768);
        double v1_2_sum;
        {
            v1_2_sum = 0.0;
            const int64_t length_2 = length + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length_2 / 256; ++r1) {
                const float x_i = x[block * 32768 + r1 * 256 + lane];
                v1_2_sum += (double)x_i;
            }
        }
        v1_2_sum = noyau_merge_lanes<256>(noyau_sum_f64{v1_2_sum}).s0;
        if (threadIdx.x == 0) {
            v1_2_sum_of_block[block] = v1_2_sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) full_sum_1(const float *__restrict__ x, float *__restrict__ v1, const double *__restrict__ v1_2_sum_of_block, int64_t n)
{
    const int64_t lane = threadIdx.x;
    double v1_2_sum;
    {
        v1_2_sum = 0.0;
        const int64_t length = ((n + 32767) / 32768) + 255 - lane;
        #pragma unroll 4
        for (int64_t block = 0; block < length / 256; ++block) v1_2_sum += v1_2_sum_of_block[block * 256 + lane];
    }
    v1_2_sum = noyau_merge_lanes<256>(noyau_sum_f64{v1_2_sum}).s0;
    if (threadIdx.x == 0) {
        v1[0] = (float)v1_2_sum;
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t full_sum(const float *__restrict__ x, float *__restrict__ v1, int64_t n, cudaStream_t stream)
{
    double *v1_2_sum_of_block = 0;
    if (cudaError_t error = cudaMallocAsync((void **)&v1_2_sum_of_block, sizeof(*v1_2_sum_of_block) * ((n + 32767) / 32768), stream)) return error;
    if ((n + 32767) / 32768 > 0) full_sum_0<<<noyau_blocks((n + 32767) / 32768, 1), 256, 0, stream>>>(x, v1, v1_2_sum_of_block, n);
    if (1 > 0) full_sum_1<<<noyau_blocks(1, 1), 256, 0, stream>>>(x, v1, v1_2_sum_of_block, n);
    cudaFreeAsync(v1_2_sum_of_block, stream);
    return cudaGetLastError();
}
#endif
