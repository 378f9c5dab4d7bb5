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

/* As many blocks as hold all items, or as a grid can have: each takes several rounds then. */
static inline unsigned noyau_blocks(int64_t items, int64_t of_block)
{
    const int64_t blocks = (items + of_block - 1) / of_block;
    return (unsigned)(blocks < 2147483647 ? blocks : 2147483647);
}
#endif
#define NOYAU_INLINE static __device__ __forceinline__

extern "C" __global__ void __launch_bounds__(256) padded_0(const float *__restrict__ x, float *__restrict__ v6, int64_t rows, int64_t n)
{
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < 2; i1 += blockDim.x) {
            v6[i0 * n + i0 * 4 + i1] = 7.0f * 7.0f;
        }
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = x[i0 * n + i1];
            v6[i0 * n + i0 * 4 + i1 + 2] = x_i * x_i;
        }
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < 2; i1 += blockDim.x) {
            v6[(i0 + 1) * n + i0 * 4 + i1 + 2] = (-7.0f) * (-7.0f);
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t padded(const float *__restrict__ x, float *__restrict__ v6, int64_t rows, int64_t n, cudaStream_t stream)
{
    if (rows > 0) padded_0<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v6, rows, n);
    return cudaGetLastError();
}
#endif
