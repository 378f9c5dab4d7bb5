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

/* As many blocks as hold all items, or as a grid can have: each takes several rounds then. */
static inline unsigned noyau_blocks(int64_t items, int64_t of_block)
{
    const int64_t blocks = (items + of_block - 1) / of_block;
    return (unsigned)(blocks < 2147483647 ? blocks : 2147483647);
}
#endif
#define NOYAU_INLINE static __device__ __forceinline__

extern "C" __global__ void __launch_bounds__(256) concatenated_0(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ v3, int64_t n, int64_t a, int64_t b)
{
    for (int64_t i0 = blockIdx.x; i0 < n; i0 += gridDim.x) {
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < a; i1 += blockDim.x) {
            const float x_i = x[a * i0 + i1];
            v3[a * i0 + b * i0 + i1] = expf(x_i);
        }
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < b; i1 += blockDim.x) {
            const float y_i = y[b * i0 + i1];
            v3[(i0 + 1) * a + b * i0 + i1] = expf(y_i);
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t concatenated(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ v3, int64_t n, int64_t a, int64_t b, cudaStream_t stream)
{
    if (n > 0) concatenated_0<<<noyau_blocks(n, 1), 256, 0, stream>>>(x, y, v3, n, a, b);
    return cudaGetLastError();
}
#endif
