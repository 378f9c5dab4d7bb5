/* the kernel any_of_bools */

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

struct noyau_any_bool {
    bool s0;
    __device__ void merge(const noyau_any_bool &other)
    {
        bool next0 = s0 | other.s0;
        s0 = next0;
    }
};

extern "C" __global__ void __launch_bounds__(256) any_of_bools_0(const bool *__restrict__ x, bool *__restrict__ v1, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        bool v1_2_any;
        {
            v1_2_any = false;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const bool x_i = x[i0 * n + r1 * 256 + lane];
                v1_2_any |= x_i;
            }
        }
        v1_2_any = noyau_merge_lanes<256>(noyau_any_bool{v1_2_any}).s0;
        if (threadIdx.x == 0) {
            v1[i0] = v1_2_any;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) any_of_bools_1(const bool *__restrict__ x, bool *__restrict__ v1, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        bool v1_2_any;
        {
            v1_2_any = false;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const bool x_i = x[i0 * n + r1 * 32 + lane];
                v1_2_any |= x_i;
            }
        }
        v1_2_any = noyau_merge_lanes<32>(noyau_any_bool{v1_2_any}).s0;
        if (threadIdx.x == 0) {
            v1[i0] = v1_2_any;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t any_of_bools(const bool *__restrict__ x, bool *__restrict__ v1, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((!(n <= 1024)) && rows > 0) any_of_bools_0<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v1, rows, n);
    if ((n <= 1024) && rows > 0) any_of_bools_1<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, v1, rows, n);
    return cudaGetLastError();
}
#endif
