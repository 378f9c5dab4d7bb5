/* the kernel running_sum */

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

NOYAU_BOTH int64_t noyau_maximum_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

NOYAU_BOTH int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
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

struct noyau_sum_f64 {
    double s0;
    __device__ void merge(const noyau_sum_f64 &other)
    {
        double next0 = s0 + other.s0;
        s0 = next0;
    }
    __device__ noyau_sum_f64 of_lane(int from) const
    {
        noyau_sum_f64 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        return state;
    }
};

extern "C" __global__ void __launch_bounds__(256) running_sum_0(const float *__restrict__ x, float *__restrict__ v1, float *__restrict__ v2, const float *__restrict__ v1_sum_of_chunks, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t block = blockIdx.x; block < (rows + 255) / 256; block += gridDim.x) {
        {
            if ((block * 256 + lane) < rows) {
                float v1_sum = 0.0f;
                #pragma unroll 4
                for (int64_t i1 = 0; i1 < n; ++i1) {
                    const float x_i = x[(block * 256 + lane) * n + i1];
                    v1_sum += x_i;
                    const float v1_2 = v1_sum;
                    v1[(block * 256 + lane) * n + i1] = v1_2;
                    v2[(block * 256 + lane) * n + i1] = v1_2 * v1_2;
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) running_sum_1(const float *__restrict__ x, const float *__restrict__ v1, const float *__restrict__ v2, float *__restrict__ v1_sum_of_chunks, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    const int64_t items = rows * ((n + 15359) / 15360);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (((n + 15359) / 15360));
        const int64_t chunk = item % ((n + 15359) / 15360);
        const int64_t length = noyau_minimum_i64(15360, n - chunk * 15360);
        double folded_sum;
        const int64_t length_2 = length;
        const int64_t until_folded = noyau_until_aligned<4>(&x[i0 * n + chunk * 15360], length_2);
        const int64_t vectors_folded = ((until_folded * 3 + length_2) / 4) - until_folded;
        {
            folded_sum = 0.0;
            #pragma unroll 4
            for (int64_t cell = lane; cell < vectors_folded; cell += 256) {
                float folded_of_vector_sum = 0.0f;
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[i0 * n + chunk * 15360 + cell * 4 + until_folded]);
                #pragma unroll
                for (int cell_2 = 0; cell_2 < 4; ++cell_2) {
                    const float x_i = x_cells.at[cell_2];
                    folded_of_vector_sum += x_i;
                }
                folded_sum += (double)folded_of_vector_sum;
            }
            #pragma unroll 4
            for (int64_t cell_rest = lane; cell_rest < length_2 - vectors_folded * 4; cell_rest += 256) {
                const int64_t cell_at = cell_rest < until_folded ? cell_rest : (vectors_folded * 4 + cell_rest);
                const float x_i = x[i0 * n + chunk * 15360 + cell_at];
                folded_sum += (double)x_i;
            }
        }
        folded_sum = noyau_merge_lanes<256>(noyau_sum_f64{folded_sum}).s0;
        if (threadIdx.x == 0) {
            v1_sum_of_chunks[i0 * ((n + 15359) / 15360) + chunk] = (float)folded_sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) running_sum_2(const float *__restrict__ x, float *__restrict__ v1, float *__restrict__ v2, const float *__restrict__ v1_sum_of_chunks, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    const int64_t items = rows * ((n + 15359) / 15360);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t i0 = item / (((n + 15359) / 15360));
        const int64_t chunk = item % ((n + 15359) / 15360);
        const int length = noyau_minimum_i64(15360, n - chunk * 15360);
        double earlier_sum;
        {
            earlier_sum = 0.0;
            #pragma unroll 4
            for (int64_t cell = lane; cell < chunk; cell += 256) {
                earlier_sum += (double)v1_sum_of_chunks[i0 * ((n + 15359) / 15360) + cell];
            }
        }
        earlier_sum = noyau_merge_lanes<256>(noyau_sum_f64{earlier_sum}).s0;
        const float earlier = (float)earlier_sum;
        __shared__ float v1_sum[3840];
        __shared__ float of_thread[256];
        __shared__ float of_group[16];
        float carry = earlier;
        for (int64_t round = 0; round < (length + 3839) / 3840; ++round) {
            const int length_2 = noyau_minimum_i64(3840, length - round * 3840);
            {
                #pragma unroll 4
                for (int cell = lane; cell < length_2; cell += 256) {
                    v1_sum[cell] = x[i0 * n + chunk * 15360 + round * 3840 + cell];
                }
            }
            __syncthreads();
            {
                float own_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < noyau_maximum_i64(0, noyau_minimum_i64(15, length_2 - lane * 15)); ++cell) {
                    own_sum += v1_sum[lane * 15 + cell];
                }
                of_thread[lane] = own_sum;
            }
            __syncthreads();
            for (int64_t lane_2 = threadIdx.x; lane_2 < 16; lane_2 += blockDim.x) {
                float own_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < 16; ++cell) own_sum += of_thread[lane_2 * 16 + cell];
                of_group[lane_2] = own_sum;
            }
            __syncthreads();
            {
                float groups_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < lane / 16; ++cell) groups_sum += of_group[cell];
                const float groups = groups_sum;
                float threads_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < lane % 16; ++cell) threads_sum += of_thread[(lane / 16) * 16 + cell];
                const float threads = threads_sum;
                float state = carry;
                state += groups;
                state += threads;
                #pragma unroll 4
                for (int64_t cell = 0; cell < noyau_maximum_i64(0, noyau_minimum_i64(15, length_2 - lane * 15)); ++cell) {
                    const float value = v1_sum[lane * 15 + cell];
                    state += value;
                    v1_sum[lane * 15 + cell] = state;
                }
            }
            __syncthreads();
            {
                #pragma unroll 4
                for (int cell = lane; cell < length_2; cell += 256) {
                    const float v1_2 = v1_sum[cell];
                    v1[i0 * n + chunk * 15360 + round * 3840 + cell] = v1_2;
                    v2[i0 * n + chunk * 15360 + round * 3840 + cell] = v1_2 * v1_2;
                }
            }
            __syncthreads();
            float of_round_sum = 0.0f;
            for (int64_t cell = 0; cell < 16; ++cell) of_round_sum += of_group[cell];
            const float of_round = of_round_sum;
            carry += of_round;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) running_sum_3(const float *__restrict__ x, float *__restrict__ v1, float *__restrict__ v2, const float *__restrict__ v1_sum_of_chunks, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        __shared__ float v1_sum[3840];
        __shared__ float of_thread[256];
        __shared__ float of_group[16];
        float carry = 0.0f;
        for (int64_t round = 0; round < (n + 3839) / 3840; ++round) {
            const int length = noyau_minimum_i64(3840, n - round * 3840);
            {
                #pragma unroll 4
                for (int cell = lane; cell < length; cell += 256) {
                    v1_sum[cell] = x[i0 * n + round * 3840 + cell];
                }
            }
            __syncthreads();
            {
                float own_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < noyau_maximum_i64(0, noyau_minimum_i64(15, length - lane * 15)); ++cell) {
                    own_sum += v1_sum[lane * 15 + cell];
                }
                of_thread[lane] = own_sum;
            }
            __syncthreads();
            for (int64_t lane_2 = threadIdx.x; lane_2 < 16; lane_2 += blockDim.x) {
                float own_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < 16; ++cell) own_sum += of_thread[lane_2 * 16 + cell];
                of_group[lane_2] = own_sum;
            }
            __syncthreads();
            {
                float groups_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < lane / 16; ++cell) groups_sum += of_group[cell];
                const float groups = groups_sum;
                float threads_sum = 0.0f;
                #pragma unroll 4
                for (int64_t cell = 0; cell < lane % 16; ++cell) threads_sum += of_thread[(lane / 16) * 16 + cell];
                const float threads = threads_sum;
                float state = carry;
                state += groups;
                state += threads;
                #pragma unroll 4
                for (int64_t cell = 0; cell < noyau_maximum_i64(0, noyau_minimum_i64(15, length - lane * 15)); ++cell) {
                    const float value = v1_sum[lane * 15 + cell];
                    state += value;
                    v1_sum[lane * 15 + cell] = state;
                }
            }
            __syncthreads();
            {
                #pragma unroll 4
                for (int cell = lane; cell < length; cell += 256) {
                    const float v1_2 = v1_sum[cell];
                    v1[i0 * n + round * 3840 + cell] = v1_2;
                    v2[i0 * n + round * 3840 + cell] = v1_2 * v1_2;
                }
            }
            __syncthreads();
            float of_round_sum = 0.0f;
            for (int64_t cell = 0; cell < 16; ++cell) of_round_sum += of_group[cell];
            const float of_round = of_round_sum;
            carry += of_round;
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t running_sum(const float *__restrict__ x, float *__restrict__ v1, float *__restrict__ v2, int64_t rows, int64_t n, cudaStream_t stream)
{
    float *v1_sum_of_chunks = 0;
    if (cudaError_t error = cudaMallocAsync((void **)&v1_sum_of_chunks, sizeof(*v1_sum_of_chunks) * (rows * ((n + 15359) / 15360)), stream)) return error;
    if (((n <= 128) & (!(rows <= 4096))) && (rows + 255) / 256 > 0) running_sum_0<<<noyau_blocks((rows + 255) / 256, 1), 256, 0, stream>>>(x, v1, v2, v1_sum_of_chunks, rows, n);
    if (((!((n <= 128) & (!(rows <= 4096)))) & ((!(n <= 15360)) & (rows <= 512))) && rows * ((n + 15359) / 15360) > 0) running_sum_1<<<noyau_blocks(rows * ((n + 15359) / 15360), 1), 256, 0, stream>>>(x, v1, v2, v1_sum_of_chunks, rows, n);
    if (((!((n <= 128) & (!(rows <= 4096)))) & ((!(n <= 15360)) & (rows <= 512))) && rows * ((n + 15359) / 15360) > 0) running_sum_2<<<noyau_blocks(rows * ((n + 15359) / 15360), 1), 256, 0, stream>>>(x, v1, v2, v1_sum_of_chunks, rows, n);
    if (((!((n <= 128) & (!(rows <= 4096)))) & (!((!(n <= 15360)) & (rows <= 512)))) && rows > 0) running_sum_3<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v1, v2, v1_sum_of_chunks, rows, n);
    cudaFreeAsync(v1_sum_of_chunks, stream);
    return cudaGetLastError();
}
#endif
