/* the kernel residual_rms_norm_bf16 */

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

NOYAU_INLINE float noyau_from_bits_f32(uint32_t x) {
    union { uint32_t bits; float value; } cell = {x};
    return cell.value;
}

/* A bfloat16 is the upper half of a float. 0.0 ulp. */
NOYAU_INLINE float noyau_bf16_to_f32(uint16_t x) {
    return noyau_from_bits_f32((uint32_t)x << 16);
}

/* The bits of a float, and the float of some bits. */
NOYAU_INLINE uint32_t noyau_bits_f32(float x) {
    union { float value; uint32_t bits; } cell = {x};
    return cell.bits;
}

/* To the nearest, halves to even. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f32_to_bf16(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (x != x ? bits | 0x00400000 : rounded) >> 16;
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

struct noyau_sum_f32 {
    float s0;
    __device__ void merge(const noyau_sum_f32 &other)
    {
        float next0 = s0 + other.s0;
        s0 = next0;
    }
};

extern "C" __global__ void __launch_bounds__(256) residual_rms_norm_bf16_0(const uint16_t *__restrict__ x, const uint16_t *__restrict__ r, const uint16_t *__restrict__ w, const uint16_t *__restrict__ v10, uint16_t *__restrict__ v3, uint16_t *__restrict__ v17, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        const float v8 = (float)n;
        const float v10_i = noyau_bf16_to_f32(v10[0]);
        double v5_sum;
        {
            v5_sum = 0.0;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const float x_i = noyau_bf16_to_f32(x[i0 * n + r1 * 256 + lane]);
                const float v_r_i = noyau_bf16_to_f32(r[i0 * n + r1 * 256 + lane]);
                const float v3_2 = x_i + v_r_i;
                const float v4 = v3_2 * v3_2;
                v5_sum += (double)v4;
            }
        }
        v5_sum = noyau_merge_lanes<256>(noyau_sum_f64{v5_sum}).s0;
        const float v5 = (float)v5_sum;
        const float v9 = v5 / v8;
        const float v12 = v9 + v10_i;
        const float v13 = rsqrtf(v12);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = noyau_bf16_to_f32(x[i0 * n + i1]);
            const float v_r_i = noyau_bf16_to_f32(r[i0 * n + i1]);
            const float v3_2 = x_i + v_r_i;
            v3[i0 * n + i1] = noyau_f32_to_bf16(v3_2);
            const float w_i = noyau_bf16_to_f32(w[i1]);
            const float v15 = v3_2 * v13;
            v17[i0 * n + i1] = noyau_f32_to_bf16(w_i * v15);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) residual_rms_norm_bf16_1(const uint16_t *__restrict__ x, const uint16_t *__restrict__ r, const uint16_t *__restrict__ w, const uint16_t *__restrict__ v10, uint16_t *__restrict__ v3, uint16_t *__restrict__ v17, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        const float v8 = (float)n;
        const float v10_i = noyau_bf16_to_f32(v10[0]);
        float v5_sum;
        {
            v5_sum = 0.0f;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const float x_i = noyau_bf16_to_f32(x[i0 * n + r1 * 32 + lane]);
                const float v_r_i = noyau_bf16_to_f32(r[i0 * n + r1 * 32 + lane]);
                const float v3_2 = x_i + v_r_i;
                const float v4 = v3_2 * v3_2;
                v5_sum += v4;
            }
        }
        v5_sum = noyau_merge_lanes<32>(noyau_sum_f32{v5_sum}).s0;
        const float v5 = v5_sum;
        const float v9 = v5 / v8;
        const float v12 = v9 + v10_i;
        const float v13 = rsqrtf(v12);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const float x_i = noyau_bf16_to_f32(x[i0 * n + i1]);
            const float v_r_i = noyau_bf16_to_f32(r[i0 * n + i1]);
            const float v3_2 = x_i + v_r_i;
            v3[i0 * n + i1] = noyau_f32_to_bf16(v3_2);
            const float w_i = noyau_bf16_to_f32(w[i1]);
            const float v15 = v3_2 * v13;
            v17[i0 * n + i1] = noyau_f32_to_bf16(w_i * v15);
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t residual_rms_norm_bf16(const uint16_t *__restrict__ x, const uint16_t *__restrict__ r, const uint16_t *__restrict__ w, const uint16_t *__restrict__ v10, uint16_t *__restrict__ v3, uint16_t *__restrict__ v17, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((!(n <= 1024)) && rows > 0) residual_rms_norm_bf16_0<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, r, w, v10, v3, v17, rows, n);
    if ((n <= 1024) && rows > 0) residual_rms_norm_bf16_1<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, r, w, v10, v3, v17, rows, n);
    return cudaGetLastError();
}
#endif
