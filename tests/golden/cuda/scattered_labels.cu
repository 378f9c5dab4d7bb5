/* the kernel scattered_labels */

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

extern "C" __global__ void __launch_bounds__(256) scattered_labels_0(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        const int64_t ids_i = ids[i0];
        const int64_t at = 0 < n ? ids_i : 0LL;
        [[maybe_unused]] const bool inside = !(0 < n) || (at >= 0 && at < n);
        float v3_max;
        {
            v3_max = -INFINITY;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const float x_i = x[i0 * n + r1 * 256 + lane];
                v3_max = noyau_maximum_f32(v3_max, x_i);
            }
        }
        v3_max = noyau_merge_lanes<256>(noyau_max_f32{v3_max}).s0;
        const float v3 = v3_max;
        double v8_sum;
        {
            v8_sum = 0.0;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 256; ++r2) {
                const float x_i = x[i0 * n + r2 * 256 + lane];
                const float v6 = x_i - v3;
                const float v7 = noyau_exp_f32(v6);
                v8_sum += (double)v7;
            }
        }
        v8_sum = noyau_merge_lanes<256>(noyau_sum_f64{v8_sum}).s0;
        const float v8 = (float)v8_sum;
        const float less_i = less[i0];
        const float v12 = -less_i;
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = x[i0 * n + i1];
            const float v6 = x_i - v3;
            const float v7 = noyau_exp_f32(v6);
            const float v11 = v7 / v8;
            const float v13 = i1 == at ? (v11 + v12) : v11;
            v14[i0 * n + i1] = v13 * v13;
        }
    }
}

extern "C" __global__ void __launch_bounds__(32) scattered_labels_1(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        const int64_t ids_i = ids[i0];
        const int64_t at = 0 < n ? ids_i : 0LL;
        [[maybe_unused]] const bool inside = !(0 < n) || (at >= 0 && at < n);
        float v3_max;
        {
            v3_max = -INFINITY;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const float x_i = x[i0 * n + r1 * 32 + lane];
                v3_max = noyau_maximum_f32(v3_max, x_i);
            }
        }
        v3_max = noyau_merge_lanes<32>(noyau_max_f32{v3_max}).s0;
        const float v3 = v3_max;
        double v8_sum;
        {
            v8_sum = 0.0;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 32; ++r2) {
                const float x_i = x[i0 * n + r2 * 32 + lane];
                const float v6 = x_i - v3;
                const float v7 = noyau_exp_f32(v6);
                v8_sum += (double)v7;
            }
        }
        v8_sum = noyau_merge_lanes<32>(noyau_sum_f64{v8_sum}).s0;
        const float v8 = (float)v8_sum;
        const float less_i = less[i0];
        const float v12 = -less_i;
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = x[i0 * n + i1];
            const float v6 = x_i - v3;
            const float v7 = noyau_exp_f32(v6);
            const float v11 = v7 / v8;
            const float v13 = i1 == at ? (v11 + v12) : v11;
            v14[i0 * n + i1] = v13 * v13;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t scattered_labels(const float *__restrict__ x, const int64_t *__restrict__ ids, const float *__restrict__ less, float *__restrict__ v14, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((!(n <= 1024)) && rows > 0) scattered_labels_0<<<noyau_blocks(rows), 256, 0, stream>>>(x, ids, less, v14, rows, n);
    if ((n <= 1024) && rows > 0) scattered_labels_1<<<noyau_blocks(rows), 32, 0, stream>>>(x, ids, less, v14, rows, n);
    return cudaGetLastError();
}
#endif
