/* the kernel row_argmax */

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

/* The states of the threads of a block, merged by halves: those of a warp by registers, then those of its warps. All
   threads come here, and each gets the result. Where a warp has an item of its own it waits for nobody. */
template <int LANES, class State> __device__ State noyau_merge_lanes(State own)
{
    for (int half = (LANES < 32 ? LANES : 32) / 2; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
    if (LANES > 32) {
        __shared__ State states[LANES > 32 ? LANES / 32 : 1];
        if (threadIdx.x % 32 == 0) states[threadIdx.x / 32] = own;
        __syncthreads();
        own = states[threadIdx.x % (LANES > 32 ? LANES / 32 : 1)];
        for (int half = LANES / 64; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
        __syncthreads(); /* before the next merge takes the memory */
    }
    return own.of_lane(0);
}

struct noyau_argmax_f32_i64 {
    float s0;
    int64_t s1;
    __device__ void merge(const noyau_argmax_f32_i64 &other)
    {
        float next0 = (((other.s0 > s0) | ((other.s0 != other.s0) & (s0 == s0))) & (s0 == s0)) | (((s0 == other.s0) | ((s0 != s0) & (other.s0 != other.s0))) & (other.s1 < s1)) ? other.s0 : s0;
        int64_t next1 = (((other.s0 > s0) | ((other.s0 != other.s0) & (s0 == s0))) & (s0 == s0)) | (((s0 == other.s0) | ((s0 != s0) & (other.s0 != other.s0))) & (other.s1 < s1)) ? other.s1 : s1;
        s0 = next0;
        s1 = next1;
    }
    __device__ noyau_argmax_f32_i64 of_lane(int from) const
    {
        noyau_argmax_f32_i64 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        state.s1 = __shfl_sync(0xffffffffu, s1, from);
        return state;
    }
};

extern "C" __global__ void __launch_bounds__(256) row_argmax_0(const float *__restrict__ x, int64_t *__restrict__ v1, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        float v1_2_best;
        int64_t v1_2_at;
        const int length = n;
        const int until_v1_2 = noyau_until_aligned<4>(&x[i0 * n], length);
        const int vectors_v1_2 = ((until_v1_2 * 3 + length) / 4) - until_v1_2;
        {
            v1_2_best = -INFINITY;
            v1_2_at = 9223372036854775807LL;
            #pragma unroll 4
            for (int r1 = lane; r1 < vectors_v1_2; r1 += 32) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + r1 * 4 + until_v1_2]);
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    const bool part_0 = x_i != x_i;
                    const bool part_1 = v1_2_best == v1_2_best;
                    const bool part_2 = part_0 & part_1;
                    const bool part_3 = (v1_2_best != v1_2_best) & part_0;
                    const bool part_4 = (x_i > v1_2_best) | part_2;
                    const bool part_5 = (v1_2_best == x_i) | part_3;
                    const bool part_6 = part_4 & part_1;
                    const bool part_7 = part_5 & ((r1 * 4 + cell + until_v1_2) < v1_2_at);
                    const bool part_8 = part_6 | part_7;
                    const float next_v1_2_best = part_8 ? x_i : v1_2_best;
                    const int64_t next_v1_2_at = part_8 ? (r1 * 4 + cell + until_v1_2) : v1_2_at;
                    v1_2_best = next_v1_2_best;
                    v1_2_at = next_v1_2_at;
                }
            }
            #pragma unroll 4
            for (int r1_rest = lane; r1_rest < length - vectors_v1_2 * 4; r1_rest += 32) {
                const int r1_at = r1_rest < until_v1_2 ? r1_rest : (vectors_v1_2 * 4 + r1_rest);
                const float x_i = x[i0 * n + r1_at];
                const bool part_0 = x_i != x_i;
                const bool part_1 = v1_2_best == v1_2_best;
                const bool part_2 = part_0 & part_1;
                const bool part_3 = (v1_2_best != v1_2_best) & part_0;
                const bool part_4 = (x_i > v1_2_best) | part_2;
                const bool part_5 = (v1_2_best == x_i) | part_3;
                const bool part_6 = part_4 & part_1;
                const bool part_7 = part_5 & (r1_at < v1_2_at);
                const bool part_8 = part_6 | part_7;
                const float next_v1_2_best = part_8 ? x_i : v1_2_best;
                const int64_t next_v1_2_at = part_8 ? r1_at : v1_2_at;
                v1_2_best = next_v1_2_best;
                v1_2_at = next_v1_2_at;
            }
        }
        const noyau_argmax_f32_i64 merged = noyau_merge_lanes<32>(noyau_argmax_f32_i64{v1_2_best, v1_2_at});
        v1_2_best = merged.s0;
        v1_2_at = merged.s1;
        if (threadIdx.x == 0) {
            v1[i0] = v1_2_at;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) row_argmax_1(const float *__restrict__ x, int64_t *__restrict__ v1, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        float v1_2_best;
        int64_t v1_2_at;
        const int64_t length = n;
        const int64_t until_v1_2 = noyau_until_aligned<4>(&x[i0 * n], length);
        const int64_t vectors_v1_2 = ((until_v1_2 * 3 + length) / 4) - until_v1_2;
        {
            v1_2_best = -INFINITY;
            v1_2_at = 9223372036854775807LL;
            #pragma unroll 4
            for (int64_t r1 = lane; r1 < vectors_v1_2; r1 += 256) {
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + r1 * 4 + until_v1_2]);
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const float x_i = x_cells.at[cell];
                    const bool part_0 = x_i != x_i;
                    const bool part_1 = v1_2_best == v1_2_best;
                    const bool part_2 = part_0 & part_1;
                    const bool part_3 = (v1_2_best != v1_2_best) & part_0;
                    const bool part_4 = (x_i > v1_2_best) | part_2;
                    const bool part_5 = (v1_2_best == x_i) | part_3;
                    const bool part_6 = part_4 & part_1;
                    const bool part_7 = part_5 & ((r1 * 4 + cell + until_v1_2) < v1_2_at);
                    const bool part_8 = part_6 | part_7;
                    const float next_v1_2_best = part_8 ? x_i : v1_2_best;
                    const int64_t next_v1_2_at = part_8 ? (r1 * 4 + cell + until_v1_2) : v1_2_at;
                    v1_2_best = next_v1_2_best;
                    v1_2_at = next_v1_2_at;
                }
            }
            #pragma unroll 4
            for (int64_t r1_rest = lane; r1_rest < length - vectors_v1_2 * 4; r1_rest += 256) {
                const int64_t r1_at = r1_rest < until_v1_2 ? r1_rest : (vectors_v1_2 * 4 + r1_rest);
                const float x_i = x[i0 * n + r1_at];
                const bool part_0 = x_i != x_i;
                const bool part_1 = v1_2_best == v1_2_best;
                const bool part_2 = part_0 & part_1;
                const bool part_3 = (v1_2_best != v1_2_best) & part_0;
                const bool part_4 = (x_i > v1_2_best) | part_2;
                const bool part_5 = (v1_2_best == x_i) | part_3;
                const bool part_6 = part_4 & part_1;
                const bool part_7 = part_5 & (r1_at < v1_2_at);
                const bool part_8 = part_6 | part_7;
                const float next_v1_2_best = part_8 ? x_i : v1_2_best;
                const int64_t next_v1_2_at = part_8 ? r1_at : v1_2_at;
                v1_2_best = next_v1_2_best;
                v1_2_at = next_v1_2_at;
            }
        }
        const noyau_argmax_f32_i64 merged = noyau_merge_lanes<256>(noyau_argmax_f32_i64{v1_2_best, v1_2_at});
        v1_2_best = merged.s0;
        v1_2_at = merged.s1;
        if (threadIdx.x == 0) {
            v1[i0] = v1_2_at;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t row_argmax(const float *__restrict__ x, int64_t *__restrict__ v1, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((n <= 1024) && rows > 0) row_argmax_0<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, v1, rows, n);
    if ((!(n <= 1024)) && rows > 0) row_argmax_1<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v1, rows, n);
    return cudaGetLastError();
}
#endif
