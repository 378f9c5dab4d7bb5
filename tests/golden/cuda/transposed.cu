/* the kernel transposed */

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

NOYAU_INLINE int64_t noyau_floor_divide_i64(int64_t a, int64_t b)
{
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    if (!b) return a;
    return (int64_t)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

NOYAU_INLINE int64_t noyau_floor_mod_i64(int64_t a, int64_t b)
{
    if (b == -1 || !b) return 0;
    const int64_t m = (int64_t)(a % b);
    return m != 0 && (m < 0) != (b < 0) ? (int64_t)(m + b) : m;
}

NOYAU_INLINE int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

extern "C" __global__ void __launch_bounds__(256) transposed_0(const float *__restrict__ x, float *__restrict__ v2, int64_t a, int64_t b, int64_t c)
{
    const int64_t items = a * c * ((b + 255) / 256);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (c * ((b + 255) / 256));
        const int64_t i1 = item / (((b + 255) / 256)) % c;
        const int64_t i2b = item % ((b + 255) / 256);
        const int64_t length = noyau_minimum_i64(256, b - i2b * 256);
        #pragma unroll 4
        for (int64_t i2 = threadIdx.x; i2 < length; i2 += blockDim.x) {
            const float x_i = x[(b * i0 + i2b * 256 + i2) * c + i1];
            v2[(c * i0 + i1) * b + i2b * 256 + i2] = -x_i;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) transposed_1(const float *__restrict__ x, float *__restrict__ v2, int64_t a, int64_t b, int64_t c)
{
    for (int64_t itemb = blockIdx.x; itemb < (a * b * c + 255) / 256; itemb += gridDim.x) {
        const int64_t length = noyau_minimum_i64(256, a * b * c - itemb * 256);
        #pragma unroll 4
        for (int64_t v_item = threadIdx.x; v_item < length; v_item += blockDim.x) {
            const float x_i = x[(b * noyau_floor_divide_i64(itemb * 256 + v_item, b * c) + noyau_floor_mod_i64(itemb * 256 + v_item, b)) * c + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, b), c)];
            v2[(c * noyau_floor_divide_i64(itemb * 256 + v_item, b * c) + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, b), c)) * b + noyau_floor_mod_i64(itemb * 256 + v_item, b)] = -x_i;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t transposed(const float *__restrict__ x, float *__restrict__ v2, int64_t a, int64_t b, int64_t c, cudaStream_t stream)
{
    if ((!(b <= 128)) && a * c * ((b + 255) / 256) > 0) transposed_0<<<noyau_blocks(a * c * ((b + 255) / 256), 1), 256, 0, stream>>>(x, v2, a, b, c);
    if ((b <= 128) && (a * b * c + 255) / 256 > 0) transposed_1<<<noyau_blocks((a * b * c + 255) / 256, 1), 256, 0, stream>>>(x, v2, a, b, c);
    return cudaGetLastError();
}
#endif
