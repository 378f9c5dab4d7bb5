/* the kernel log_softmax_kept */

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

/* n log(2) + log(1 + f) for |f| <= 1/3; the latter is f - f^2/2 + f^3 p(f), p minimax. */
NOYAU_INLINE float noyau_log_part_f32(float f, float n) {
    float p = -0.13200602f;
    p = p * f + 0.1396217f;
    p = p * f - 0.12113095f;
    p = p * f + 0.14010991f;
    p = p * f - 0.1668561f;
    p = p * f + 0.20010038f;
    p = p * f - 0.24999686f;
    p = p * f + 0.33333224f;
    return f * f * (p * f - 0.5f) + n * 0x1.7f7d1cp-20f + f + n * 0x1.62e4p-1f;
}

/* log(x) = n log(2) + log(1 + f) with |f| <= 1/3. 1.0 ulp. */
NOYAU_INLINE float noyau_log_f32(float x) {
    const float normal = x < 0x1p-126f ? x * 0x1p23f : x;
    const uint32_t bits = noyau_bits_f32(normal) - 0x3f2aaaab; /* 2/3 becomes 0 */
    const float n = (float)((int32_t)bits >> 23) - (x < 0x1p-126f ? 23 : 0);
    const float f = noyau_from_bits_f32((bits & 0x007fffff) + 0x3f2aaaab) - 1;
    const float y = noyau_log_part_f32(f, n);
    const float most = x < INFINITY ? y : x, none = x == 0 ? -INFINITY : NAN;
    return x > 0 ? most : none;
}

/* The greater; NaN if either is NaN. 0.0 ulp. */
NOYAU_INLINE float noyau_maximum_f32(float x, float y) {
    return ((x > y) | (x != x)) ? x : y;
}

/* The states of the threads of a block, merged by halves: the upper half into the lower one, again and again. All
   threads come here, and each gets the result. The last 32 states are those of one warp, which needs no barrier of the
   block. */
template <int LANES, class State> __device__ State noyau_merge_lanes(State own)
{
    __shared__ State states[LANES];
    const int lane = threadIdx.x;
    states[lane] = own;
    for (int half = LANES / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (lane < half) states[lane].merge(states[lane + half]);
    }
    __syncthreads();
    for (int half = 16; half > 0 && lane < 32; half /= 2) {
        if (lane < half) states[lane].merge(states[lane + half]);
        __syncwarp();
    }
    __syncthreads();
    const State all = states[0];
    __syncthreads(); /* before the next merge takes the memory */
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

extern "C" __global__ void __launch_bounds__(256) log_softmax_kept_0(const float *__restrict__ x, float *__restrict__ v10, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        float v1_max;
        {
            v1_max = -INFINITY;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const float x_i = x[i0 * n + r1 * 256 + lane];
                v1_max = noyau_maximum_f32(v1_max, x_i);
            }
        }
        v1_max = noyau_merge_lanes<256>(noyau_max_f32{v1_max}).s0;
        const float v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 256; ++r2) {
                const float x_i = x[i0 * n + r2 * 256 + lane];
                const float v4 = x_i - v1;
                const float v5 = noyau_exp_f32(v4);
                v6_sum += (double)v5;
            }
        }
        v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
        const float v6 = (float)v6_sum;
        const float v8 = noyau_log_f32(v6);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = x[i0 * n + i1];
            const float v4 = x_i - v1;
            v10[i0 * n + i1] = v4 - v8;
        }
    }
}

extern "C" __global__ void __launch_bounds__(32) log_softmax_kept_1(const float *__restrict__ x, float *__restrict__ v10, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        float v1_max;
        {
            v1_max = -INFINITY;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const float x_i = x[i0 * n + r1 * 32 + lane];
                v1_max = noyau_maximum_f32(v1_max, x_i);
            }
        }
        v1_max = noyau_merge_lanes<32>(noyau_max_f32{v1_max}).s0;
        const float v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 32; ++r2) {
                const float x_i = x[i0 * n + r2 * 32 + lane];
                const float v4 = x_i - v1;
                const float v5 = noyau_exp_f32(v4);
                v6_sum += (double)v5;
            }
        }
        v6_sum = noyau_merge_lanes<32>(noyau_sum_f64{v6_sum}).s0;
        const float v6 = (float)v6_sum;
        const float v8 = noyau_log_f32(v6);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = x[i0 * n + i1];
            const float v4 = x_i - v1;
            v10[i0 * n + i1] = v4 - v8;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t log_softmax_kept(const float *__restrict__ x, float *__restrict__ v10, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((!(n <= 1024)) && rows > 0) log_softmax_kept_0<<<noyau_blocks(rows), 256, 0, stream>>>(x, v10, rows, n);
    if ((n <= 1024) && rows > 0) log_softmax_kept_1<<<noyau_blocks(rows), 32, 0, stream>>>(x, v10, rows, n);
    return cudaGetLastError();
}
#endif
