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
#include <string.h>

/* As many blocks as hold all items, or as a grid can have: each takes several rounds then. */
static inline unsigned noyau_blocks(int64_t items, int64_t of_block)
{
    const int64_t blocks = (items + of_block - 1) / of_block;
    return (unsigned)(blocks < 2147483647 ? blocks : 2147483647);
}
#endif
#define NOYAU_INLINE [[maybe_unused]] static __device__ __forceinline__
#define NOYAU_BOTH static __host__ __device__ __forceinline__

/* Neighbouring cells, which move at once where their place is a multiple of their size. */
template <class T, int CELLS> struct alignas(sizeof(T) * CELLS < 16 ? sizeof(T) * CELLS : 16) noyau_vector {
    T at[CELLS];
};
template <int BYTES> struct noyau_word { typedef uint4 type; };
template <> struct noyau_word<8> { typedef uint2 type; };
template <> struct noyau_word<4> { typedef unsigned type; };
template <> struct noyau_word<2> { typedef unsigned short type; };
template <> struct noyau_word<1> { typedef unsigned char type; };

template <class T, int CELLS> __device__ __forceinline__ noyau_vector<T, CELLS> noyau_load(const T *place)
{
    typedef typename noyau_word<sizeof(T) * CELLS>::type word;
    noyau_vector<T, CELLS> cells;
    #pragma unroll
    for (int at = 0; at < (int)(sizeof cells / sizeof(word)); ++at) {
        const word bits = ((const word *)place)[at];
        memcpy((char *)&cells + at * sizeof(word), &bits, sizeof(word));
    }
    return cells;
}

template <class T, int CELLS> __device__ __forceinline__ void noyau_store(T *place, const noyau_vector<T, CELLS> &cells)
{
    typedef typename noyau_word<sizeof(T) * CELLS>::type word;
    #pragma unroll
    for (int at = 0; at < (int)(sizeof cells / sizeof(word)); ++at) {
        word bits;
        memcpy(&bits, (const char *)&cells + at * sizeof(word), sizeof(word));
        __stcg((word *)place + at, bits); /* else the compiler may move 4 bytes at once */
    }
}

/* A cell of a vector of bfloat16 as a float. */
template <int CELLS> __device__ __forceinline__ float noyau_bf16_of(const noyau_vector<uint16_t, CELLS> &cells, int cell)
{
    uint32_t both;
    memcpy(&both, cells.at + (cell & ~1), 4);
    const uint32_t bits = cell & 1 ? both & 0xffff0000u : both << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}

/* The cells from a place on that are before such a place; at most so many. */
template <int CELLS, class T> __device__ __forceinline__ int noyau_until_aligned(const T *place, int64_t most)
{
    const int cells = -(int)((unsigned long long)place / sizeof(T)) & (CELLS - 1);
    return cells < most ? cells : (int)most;
}

/* e^x, within 2**-17 of it. */
__device__ __forceinline__ float noyau_near_exp(float x)
{
#ifndef NOYAU_WATCHED
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.442695041f));
    return power;
#else
    return expf(x);
#endif
}

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
#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x));
    return result;
#else
    const int32_t cell = (int32_t)((uint32_t)x << 16) >> 3;
    const int32_t size = cell & 0x0fffe000;
    const float denormal = noyau_from_bits_f32(size + (113 << 23)) - 0x1p-14f;
    const float normal = noyau_from_bits_f32(size + (112 << 23));
    const float finite = size < 0x00800000 ? denormal : normal;
    const float number = size >= 0x0f800000 ? noyau_from_bits_f32(size + (224 << 23)) : finite;
    return noyau_from_bits_f32(noyau_bits_f32(number) | ((uint32_t)cell & 0x80000000));
#endif
}

/* To the nearest, halves to even, by the addition of a power of two whose last bit is that of the result: 2^13 times
   the float's own, and of a denormal that of the least normal number. What is left is the significand. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f32_to_f16(float x) {
#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800
    uint16_t result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(x));
    return result;
#else
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t size = bits & 0x7fffffff;
    const uint32_t power = size < 0x38800000 ? 0x38800000 : size & 0x7f800000;
    const float large = noyau_from_bits_f32(power + (13 << 23));
    const uint32_t significand = noyau_bits_f32(noyau_from_bits_f32(size) + large) - noyau_bits_f32(large);
    const uint32_t code = significand + ((power - 0x38800000) >> 13);
    const uint32_t finite = code > 0x7c00 ? 0x7c00 : code;
    return (size > 0x7f800000 ? 0x7e00 : finite) | (bits >> 16 & 0x8000);
#endif
}

NOYAU_BOTH int64_t noyau_floor_divide_i64(int64_t a, int64_t b)
{
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    if (!b) return a;
    return (int64_t)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

NOYAU_BOTH int64_t noyau_floor_mod_i64(int64_t a, int64_t b)
{
    if (b == -1 || !b) return 0;
    const int64_t m = (int64_t)(a % b);
    return m != 0 && (m < 0) != (b < 0) ? (int64_t)(m + b) : m;
}

NOYAU_BOTH int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

extern "C" __global__ void __launch_bounds__(256) rotary_f16_0(const uint16_t *__restrict__ x, const uint16_t *__restrict__ v_sin, const uint16_t *__restrict__ v_cos, uint16_t *__restrict__ v12, int64_t b, int64_t s)
{
    const int lane = threadIdx.x;
    const int64_t items = b * 2 * ((s * 4 + 4095) / 4096);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (2 * ((s * 4 + 4095) / 4096));
        const int64_t i1 = item / (((s * 4 + 4095) / 4096)) % 2;
        const int64_t itemb = item % ((s * 4 + 4095) / 4096);
        const int64_t length = noyau_minimum_i64(4096, s * 4 - itemb * 4096);
        {
            #pragma unroll 4
            for (int64_t v_item = lane; v_item < length; v_item += 256) {
                const float x_i = noyau_f16_to_f32(x[i0 * s * 16 + itemb * 16384 + (v_item / 4) * 16 + i1 * 8 + (v_item % 4) + 4]);
                const float v6 = -x_i;
                const float v_sin_i = noyau_f16_to_f32(v_sin[itemb * 8192 + (v_item / 4) * 8 + (v_item % 4)]);
                const float v11 = v6 * v_sin_i;
                const float v_cos_i = noyau_f16_to_f32(v_cos[itemb * 8192 + (v_item / 4) * 8 + (v_item % 4)]);
                const float x_i_2 = noyau_f16_to_f32(x[i0 * s * 16 + itemb * 16384 + (v_item / 4) * 16 + i1 * 8 + (v_item % 4)]);
                const float v9 = v_cos_i * x_i_2;
                v12[(i0 * 16 + i1 * 8) * s + itemb * 8192 + (v_item / 4) * 8 + (v_item % 4)] = noyau_f32_to_f16(v11 + v9);
                const float v_sin_i_2 = noyau_f16_to_f32(v_sin[itemb * 8192 + (v_item / 4) * 8 + (v_item % 4) + 4]);
                const float v11_2 = x_i_2 * v_sin_i_2;
                const float v_cos_i_2 = noyau_f16_to_f32(v_cos[itemb * 8192 + (v_item / 4) * 8 + (v_item % 4) + 4]);
                const float v9_2 = v_cos_i_2 * x_i;
                v12[(i0 * 16 + i1 * 8) * s + itemb * 8192 + (v_item / 4) * 8 + (v_item % 4) + 4] = noyau_f32_to_f16(v11_2 + v9_2);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) rotary_f16_1(const uint16_t *__restrict__ x, const uint16_t *__restrict__ v_sin, const uint16_t *__restrict__ v_cos, uint16_t *__restrict__ v12, int64_t b, int64_t s)
{
    const int lane = threadIdx.x;
    for (int64_t itemb = blockIdx.x; itemb < (b * s * 8 + 4095) / 4096; itemb += gridDim.x) {
        const int64_t length = noyau_minimum_i64(4096, b * s * 8 - itemb * 4096);
        {
            #pragma unroll 4
            for (int64_t v_item = lane; v_item < length; v_item += 256) {
                const float x_i = noyau_f16_to_f32(x[noyau_floor_divide_i64(itemb * 4096 + v_item, s * 8) * s * 16 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 4096 + v_item, s * 4), 2) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4) + 4]);
                const float v6 = -x_i;
                const float v_sin_i = noyau_f16_to_f32(v_sin[(noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4)]);
                const float v11 = v6 * v_sin_i;
                const float v_cos_i = noyau_f16_to_f32(v_cos[(noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4)]);
                const float x_i_2 = noyau_f16_to_f32(x[noyau_floor_divide_i64(itemb * 4096 + v_item, s * 8) * s * 16 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 16 + noyau_floor_mod_i64(noyau_floor_divide_i64(itemb * 4096 + v_item, s * 4), 2) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4)]);
                const float v9 = v_cos_i * x_i_2;
                v12[noyau_floor_divide_i64(itemb * 4096 + v_item, s * 4) * s * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4)] = noyau_f32_to_f16(v11 + v9);
                const float v_sin_i_2 = noyau_f16_to_f32(v_sin[(noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4) + 4]);
                const float v11_2 = x_i_2 * v_sin_i_2;
                const float v_cos_i_2 = noyau_f16_to_f32(v_cos[(noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4) + 4]);
                const float v9_2 = v_cos_i_2 * x_i;
                v12[noyau_floor_divide_i64(itemb * 4096 + v_item, s * 4) * s * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) / 4) * 8 + (noyau_floor_mod_i64(itemb * 4096 + v_item, s * 4) % 4) + 4] = noyau_f32_to_f16(v11_2 + v9_2);
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t rotary_f16(const uint16_t *__restrict__ x, const uint16_t *__restrict__ v_sin, const uint16_t *__restrict__ v_cos, uint16_t *__restrict__ v12, int64_t b, int64_t s, cudaStream_t stream)
{
    if ((!((s * 4) <= 128)) && b * ((s * 4 + 4095) / 4096) * 2 > 0) rotary_f16_0<<<noyau_blocks(b * ((s * 4 + 4095) / 4096) * 2, 1), 256, 0, stream>>>(x, v_sin, v_cos, v12, b, s);
    if (((s * 4) <= 128) && (b * s * 8 + 4095) / 4096 > 0) rotary_f16_1<<<noyau_blocks((b * s * 8 + 4095) / 4096, 1), 256, 0, stream>>>(x, v_sin, v_cos, v12, b, s);
    return cudaGetLastError();
}
#endif
