/* the kernel log_softmax_f64 */

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

/* e^x as 2^n (high + *low), n in shifted as noyau_scale_f64 has it: e^r is 1 + r + r^2 p(r), p minimax,
   where 1 + r is high and what it was rounded by goes to low. */
NOYAU_INLINE double noyau_exp_parts_f64(double x, double *low, double *shifted) {
    *shifted = x * 1.4426950408889634 + (0x1.8p52 + 2046);
    const double n = *shifted - (0x1.8p52 + 2046);
    const double most = x - n * 0x1.62e42fefa38p-1, rest = n * 0x1.ef35793c7673p-45; /* log(2) in two parts */
    const double r = most - rest;
    double p = 2.511554176208322e-8;
    p = p * r + 2.76265487794339e-7;
    p = p * r + 2.755722477418294e-6;
    p = p * r + 2.4801503946616203e-5;
    p = p * r + 0.00019841269906335115;
    p = p * r + 0.0013888888932724966;
    p = p * r + 0.0083333333333132;
    p = p * r + 0.041666666666572906;
    p = p * r + 0.16666666666666688;
    p = p * r + 0.5000000000000006;
    const double high = 1 + most;
    *low = (most - (high - 1)) + (p * (r * r) - rest);
    return high;
}

NOYAU_INLINE uint64_t noyau_bits_f64(double x) {
    union { double value; uint64_t bits; } cell = {x};
    return cell.bits;
}

NOYAU_INLINE double noyau_from_bits_f64(uint64_t x) {
    union { uint64_t bits; double value; } cell = {x};
    return cell.value;
}

/* value 2^n, where shifted is n + 2046 + 1.5 2^52: as noyau_scale_f32. */
NOYAU_INLINE double noyau_scale_f64(double value, double shifted) {
    const uint64_t bits = noyau_bits_f64(shifted), half = bits >> 1;
    return value * noyau_from_bits_f64(half << 52) * noyau_from_bits_f64((bits - half) << 52);
}

/* e^x. 0.8 ulp. */
NOYAU_INLINE double noyau_exp_f64(double x) {
    double low, shifted;
    const double high = noyau_exp_parts_f64(x, &low, &shifted);
    const double y = noyau_scale_f64(high + low, shifted);
    const double tail = x < -746 ? 0 : y;
    return x > 710 ? INFINITY : tail;
}

/* As noyau_wide_log, with more terms and log(2) in two parts. 1.0 ulp. */
NOYAU_INLINE double noyau_log_f64(double x) {
    const double normal = x < 0x1p-1022 ? x * 0x1p54 : x;
    const uint64_t bits = noyau_bits_f64(normal) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const double whole = noyau_from_bits_f64((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
    const double n = whole - (x < 0x1p-1022 ? 54 : 0);
    const double f = noyau_from_bits_f64((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
    const double s = f / (f + 2);
    const double z = s * s;
    double p = 0.14796007714623774;
    p = p * z + 0.15314050324702402;
    p = p * z + 0.1818356405404158;
    p = p * z + 0.2222219858558514;
    p = p * z + 0.2857142874217077;
    p = p * z + 0.3999999999941628;
    p = p * z + 0.6666666666666734;
    const double half = 0.5 * f * f;
    const double low = s * (half + p * z) + n * 0x1.ef35793c7673p-45;
    const double y = n * 0x1.62e42fefa38p-1 - (half - low - f);
    const double most = x < INFINITY ? y : x, none = x == 0 ? -INFINITY : NAN;
    return x > 0 ? most : none;
}

/* The greater; NaN if either is NaN. 0.0 ulp. */
NOYAU_INLINE double noyau_maximum_f64(double x, double y) {
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

struct noyau_max_f64 {
    double s0;
    __device__ void merge(const noyau_max_f64 &other)
    {
        double next0 = noyau_maximum_f64(s0, other.s0);
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

extern "C" __global__ void __launch_bounds__(256) log_softmax_f64_0(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        double v1_max;
        {
            v1_max = -INFINITY;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 256; ++r1) {
                const double x_i = x[i0 * n + r1 * 256 + lane];
                v1_max = noyau_maximum_f64(v1_max, x_i);
            }
        }
        v1_max = noyau_merge_lanes<256>(noyau_max_f64{v1_max}).s0;
        const double v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            const int64_t length = n + 255 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 256; ++r2) {
                const double x_i = x[i0 * n + r2 * 256 + lane];
                const double v4 = x_i - v1;
                const double v5 = noyau_exp_f64(v4);
                v6_sum += v5;
            }
        }
        v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
        const double v6 = v6_sum;
        const double v8 = noyau_log_f64(v6);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const double x_i = x[i0 * n + i1];
            const double v4 = x_i - v1;
            v10[i0 * n + i1] = v4 - v8;
        }
    }
}

extern "C" __global__ void __launch_bounds__(32) log_softmax_f64_1(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        double v1_max;
        {
            v1_max = -INFINITY;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r1 = 0; r1 < length / 32; ++r1) {
                const double x_i = x[i0 * n + r1 * 32 + lane];
                v1_max = noyau_maximum_f64(v1_max, x_i);
            }
        }
        v1_max = noyau_merge_lanes<32>(noyau_max_f64{v1_max}).s0;
        const double v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            const int64_t length = n + 31 - lane;
            #pragma unroll 4
            for (int64_t r2 = 0; r2 < length / 32; ++r2) {
                const double x_i = x[i0 * n + r2 * 32 + lane];
                const double v4 = x_i - v1;
                const double v5 = noyau_exp_f64(v4);
                v6_sum += v5;
            }
        }
        v6_sum = noyau_merge_lanes<32>(noyau_sum_f64{v6_sum}).s0;
        const double v6 = v6_sum;
        const double v8 = noyau_log_f64(v6);
        #pragma unroll 4
        for (int64_t i1 = threadIdx.x; i1 < n; i1 += blockDim.x) {
            const double x_i = x[i0 * n + i1];
            const double v4 = x_i - v1;
            v10[i0 * n + i1] = v4 - v8;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
extern "C" cudaError_t log_softmax_f64(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((!(n <= 1024)) && rows > 0) log_softmax_f64_0<<<noyau_blocks(rows), 256, 0, stream>>>(x, v10, rows, n);
    if ((n <= 1024) && rows > 0) log_softmax_f64_1<<<noyau_blocks(rows), 32, 0, stream>>>(x, v10, rows, n);
    return cudaGetLastError();
}
#endif
