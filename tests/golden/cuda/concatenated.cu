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

/* As many blocks as items, or as a grid can have: each takes several then. */
static inline unsigned noyau_blocks(int64_t items)
{
    return (unsigned)(items < 2147483647 ? items : 2147483647);
}
#endif
#define NOYAU_INLINE static __device__ __forceinline__

/* The bits of a float, and the float of some bits. */
NOYAU_INLINE uint32_t noyau_bits_f32(float x) {
    union { float value; uint32_t bits; } cell = {x};
    return cell.bits;
}

/* (e^r - 1) / r for |r| <= log(2)/2: 1 + r p(r), p minimax. */
NOYAU_INLINE float noyau_exp_slope_f32(float r) {
    float p = 0.001393817f;
    p = p * r + 0.0083689885f;
    p = p * r + 0.04166643f;
    p = p * r + 0.16666518f;
    p = p * r + 0.5f;
    return p * r + 1;
}

NOYAU_INLINE float noyau_from_bits_f32(uint32_t x) {
    union { uint32_t bits; float value; } cell = {x};
    return cell.value;
}

/* x, rounded: no compiler knows this -0, so that a product in x is fused with the sum, which is x, and with nothing
   that follows. 0.0 ulp. */
NOYAU_INLINE float noyau_rounded_f32(float x) {
    return __fadd_rn(x, -0.0f);
}

/* x, but the limit where it is less; NaN stays. No compiler knows the limit: where it does, gcc computes what becomes
   of it apart, and chooses between the two at the end of a function, by six instructions instead of one. */
NOYAU_INLINE float noyau_from_limit_f32(float x, float limit) {
    const float least = noyau_rounded_f32(limit);
    return x < least ? least : x;
}

/* x, but the limit where it is greater; NaN stays. Nor is this limit known. */
NOYAU_INLINE float noyau_to_limit_f32(float x, float limit) {
    const float most = noyau_rounded_f32(limit);
    return x > most ? most : x;
}

/* e^x = 2^n e^r with whole n and |r| <= log(2)/2. At the limits the scale is 0, or overflows: masks are full of -inf,
   and a product that is rounded to 0 takes a processor longer than one with 0. 2^n in two factors: a denormal result
   is rounded once; what is added to the first one is scaled while the slope is computed. 1.2 ulp. */
NOYAU_INLINE float noyau_exp_f32(float x) {
    const float t = noyau_to_limit_f32(noyau_from_limit_f32(x, -176.1f), 89);
    const float shifted = t * 1.442695f + (0x1.8p23f + 254);
    const float n = shifted - (0x1.8p23f + 254);
    const float r = t - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; /* log(2) in two parts */
    const uint32_t bits = noyau_bits_f32(shifted), half = bits >> 1;
    const float scale = noyau_from_bits_f32(half << 23);
    return (noyau_exp_slope_f32(r) * (r * scale) + scale) * noyau_from_bits_f32((bits - half) << 23);
}

extern "C" __global__ void __launch_bounds__(256) concatenated_0(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ v3, int64_t n, int64_t a, int64_t b)
{
    for (int64_t i0 = blockIdx.x; i0 < n; i0 += gridDim.x) {
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < a; i1 += blockDim.x) {
            const float x_i = x[a * i0 + i1];
            v3[a * i0 + b * i0 + i1] = noyau_exp_f32(x_i);
        }
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < b; i1 += blockDim.x) {
            const float y_i = y[b * i0 + i1];
            v3[(i0 + 1) * a + b * i0 + i1] = noyau_exp_f32(y_i);
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t concatenated(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ v3, int64_t n, int64_t a, int64_t b, cudaStream_t stream)
{
    if (n > 0) concatenated_0<<<noyau_blocks(n), 256, 0, stream>>>(x, y, v3, n, a, b);
    return cudaGetLastError();
}
#endif
