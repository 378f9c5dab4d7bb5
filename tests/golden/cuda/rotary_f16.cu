/* the kernel rotary_f16 */

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

/* The bits of a float, and the float of some bits. */
NOYAU_INLINE uint32_t noyau_bits_f32(float x) {
    union { float value; uint32_t bits; } cell = {x};
    return cell.bits;
}

NOYAU_INLINE float noyau_from_bits_f32(uint32_t x) {
    union { uint32_t bits; float value; } cell = {x};
    return cell.value;
}

/* Every float16 is a float: the exponent moves by 112, that of infinity and NaN by 224, and a denormal is made
   normal by a subtraction. The sign is spread over the bits that the exponent does not have. 0.0 ulp. */
NOYAU_INLINE float noyau_f16_to_f32(uint16_t x) {
    const int32_t cell = (int32_t)((uint32_t)x << 16) >> 3;
    const int32_t size = cell & 0x0fffe000;
    const float denormal = noyau_from_bits_f32(size + (113 << 23)) - 0x1p-14f;
    const float normal = noyau_from_bits_f32(size + (112 << 23));
    const float finite = size < 0x00800000 ? denormal : normal;
    const float number = size >= 0x0f800000 ? noyau_from_bits_f32(size + (224 << 23)) : finite;
    return noyau_from_bits_f32(noyau_bits_f32(number) | ((uint32_t)cell & 0x80000000));
}

/* To the nearest, halves to even, by the addition of a power of two whose last bit is that of the result: 2^13 times
   the float's own, and of a denormal that of the least normal number. What is left is the significand. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f32_to_f16(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t size = bits & 0x7fffffff;
    const uint32_t power = size < 0x38800000 ? 0x38800000 : size & 0x7f800000;
    const float large = noyau_from_bits_f32(power + (13 << 23));
    const uint32_t significand = noyau_bits_f32(noyau_from_bits_f32(size) + large) - noyau_bits_f32(large);
    const uint32_t code = significand + ((power - 0x38800000) >> 13);
    const uint32_t finite = code > 0x7c00 ? 0x7c00 : code;
    return (size > 0x7f800000 ? 0x7e00 : finite) | (bits >> 16 & 0x8000);
}

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

extern "C" __global__ void __launch_bounds__(256) rotary_f16_0(const uint16_t *__restrict__ x, const uint16_t *__restrict__ v_sin, const uint16_t *__restrict__ v_cos, uint16_t *__restrict__ v12, int64_t b, int64_t s)
{
    const int64_t items = b * 2 * ((s + 255) / 256);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (2 * ((s + 255) / 256));
        const int64_t i1 = item / (((s + 255) / 256)) % 2;
        const int64_t i2b = item % ((s + 255) / 256);
        const int64_t length = noyau_minimum_i64(256, s - i2b * 256);
        for (int64_t i2 = threadIdx.x; i2 < length; i2 += blockDim.x) {
            #pragma unroll 4
            for (int64_t i3 = 0; i3 < 4; ++i3) {
                const float x_i = noyau_f16_to_f32(x[i0 * s * 16 + i2b * 4096 + i2 * 16 + i1 * 8 + i3 + 4]);
                const float v6 = -x_i;
                const float v_sin_i = noyau_f16_to_f32(v_sin[i2b * 2048 + i2 * 8 + i3]);
                const float v11 = v6 * v_sin_i;
                const float v_cos_i = noyau_f16_to_f32(v_cos[i2b * 2048 + i2 * 8 + i3]);
                const float x_i_2 = noyau_f16_to_f32(x[i0 * s * 16 + i2b * 4096 + i2 * 16 + i1 * 8 + i3]);
                const float v9 = v_cos_i * x_i_2;
                v12[(i0 * 16 + i1 * 8) * s + i2b * 2048 + i2 * 8 + i3] = noyau_f32_to_f16(v11 + v9);
            }
            #pragma unroll 4
            for (int64_t i3 = 0; i3 < 4; ++i3) {
                const float x_i = noyau_f16_to_f32(x[i0 * s * 16 + i2b * 4096 + i2 * 16 + i1 * 8 + i3]);
                const float v_sin_i = noyau_f16_to_f32(v_sin[i2b * 2048 + i2 * 8 + i3 + 4]);
                const float v11 = x_i * v_sin_i;
                const float v_cos_i = noyau_f16_to_f32(v_cos[i2b * 2048 + i2 * 8 + i3 + 4]);
                const float x_i_2 = noyau_f16_to_f32(x[i0 * s * 16 + i2b * 4096 + i2 * 16 + i1 * 8 + i3 + 4]);
                const float v9 = v_cos_i * x_i_2;
                v12[(i0 * 16 + i1 * 8) * s + i2b * 2048 + i2 * 8 + i3 + 4] = noyau_f32_to_f16(v11 + v9);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) rotary_f16_1(const uint16_t *__restrict__ x, const uint16_t *__restrict__ v_sin, const uint16_t *__restrict__ v_cos, uint16_t *__restrict__ v12, int64_t b, int64_t s)
{
    for (int64_t itemb = blockIdx.x; itemb < (b * s * 2 + 255) / 256; itemb += gridDim.x) {
        const int64_t length = noyau_minimum_i64(256, b * s * 2 - itemb * 256);
        for (int64_t v_item = threadIdx.x; v_item < length; v_item += blockDim.x) {
            #pragma unroll 4
            for (int64_t i3 = 0; i3 < 4; ++i3) {
                const float x_i = noyau_f16_to_f32(x[noyau_floor_divide_i64(itemb * 256 + v_item, s * 2) * s * 16 + noyau_floor_mod_i64(itemb * 256 + v_item, s) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, s), 2) * 8 + i3 + 4]);
                const float v6 = -x_i;
                const float v_sin_i = noyau_f16_to_f32(v_sin[noyau_floor_mod_i64(itemb * 256 + v_item, s) * 8 + i3]);
                const float v11 = v6 * v_sin_i;
                const float v_cos_i = noyau_f16_to_f32(v_cos[noyau_floor_mod_i64(itemb * 256 + v_item, s) * 8 + i3]);
                const float x_i_2 = noyau_f16_to_f32(x[noyau_floor_divide_i64(itemb * 256 + v_item, s * 2) * s * 16 + noyau_floor_mod_i64(itemb * 256 + v_item, s) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, s), 2) * 8 + i3]);
                const float v9 = v_cos_i * x_i_2;
                v12[(noyau_floor_divide_i64(itemb * 256 + v_item, s * 2) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, s), 2) * 8) * s + noyau_floor_mod_i64(itemb * 256 + v_item, s) * 8 + i3] = noyau_f32_to_f16(v11 + v9);
            }
            #pragma unroll 4
            for (int64_t i3 = 0; i3 < 4; ++i3) {
                const float x_i = noyau_f16_to_f32(x[noyau_floor_divide_i64(itemb * 256 + v_item, s * 2) * s * 16 + noyau_floor_mod_i64(itemb * 256 + v_item, s) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, s), 2) * 8 + i3]);
                const float v_sin_i = noyau_f16_to_f32(v_sin[noyau_floor_mod_i64(itemb * 256 + v_item, s) * 8 + i3 + 4]);
                const float v11 = x_i * v_sin_i;
                const float v_cos_i = noyau_f16_to_f32(v_cos[noyau_floor_mod_i64(itemb * 256 + v_item, s) * 8 + i3 + 4]);
                const float x_i_2 = noyau_f16_to_f32(x[noyau_floor_divide_i64(itemb * 256 + v_item, s * 2) * s * 16 + noyau_floor_mod_i64(itemb * 256 + v_item, s) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, s), 2) * 8 + i3 + 4]);
                const float v9 = v_cos_i * x_i_2;
                v12[(noyau_floor_divide_i64(itemb * 256 + v_item, s * 2) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 256 + v_item, s), 2) * 8) * s + noyau_floor_mod_i64(itemb * 256 + v_item, s) * 8 + i3 + 4] = noyau_f32_to_f16(v11 + v9);
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t rotary_f16(const uint16_t *__restrict__ x, const uint16_t *__restrict__ v_sin, const uint16_t *__restrict__ v_cos, uint16_t *__restrict__ v12, int64_t b, int64_t s, cudaStream_t stream)
{
    if ((!(s <= 128)) && b * ((s + 255) / 256) * 2 > 0) rotary_f16_0<<<noyau_blocks(b * ((s + 255) / 256) * 2, 1), 256, 0, stream>>>(x, v_sin, v_cos, v12, b, s);
    if ((s <= 128) && (b * s * 2 + 255) / 256 > 0) rotary_f16_1<<<noyau_blocks((b * s * 2 + 255) / 256, 1), 256, 0, stream>>>(x, v_sin, v_cos, v12, b, s);
    return cudaGetLastError();
}
#endif
