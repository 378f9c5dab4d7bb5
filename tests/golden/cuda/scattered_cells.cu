/* the kernel scattered_cells */

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

NOYAU_BOTH int64_t noyau_floor_divide_i64(int64_t a, int64_t b)
{
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    if (!b) return a;
    return (int64_t)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
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

/* Merges into cells that others merge into too, each of them whole; a value has the type of its cell. */
template <class T> struct noyau_of_cell { typedef T type; };

template <class T> __device__ __forceinline__ void noyau_atomic_add(T *place, typename noyau_of_cell<T>::type value)
{
    if constexpr (sizeof(T) == 8 && T(1) / 2 == 0) /* whole numbers of 64 bits, which CUDA has of one kind alone */
        atomicAdd((unsigned long long *)place, (unsigned long long)value);
    else
        atomicAdd(place, value);
}

template <class T, int CELLS>
__device__ __forceinline__ void noyau_atomic_add(T *place, const noyau_vector<T, CELLS> &cells)
{
#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 900
    if constexpr (sizeof(T) == 4 && T(1) / 2 != 0 && CELLS % 4 == 0) {
        #pragma unroll
        for (int at = 0; at < CELLS; at += 4)
            atomicAdd((float4 *)(place + at), make_float4(cells.at[at], cells.at[at + 1], cells.at[at + 2], cells.at[at + 3]));
    } else
#endif
    {
        #pragma unroll
        for (int at = 0; at < CELLS; ++at) noyau_atomic_add(place + at, cells.at[at]);
    }
}

/* By comparing: the cell changes where nobody has changed it since. */
template <int BYTES> struct noyau_cell_bits { typedef unsigned type; };
template <> struct noyau_cell_bits<8> { typedef unsigned long long type; };

template <class State, class T>
__device__ __forceinline__ void noyau_atomic_merge(T *place, typename noyau_of_cell<T>::type value)
{
    typedef typename noyau_cell_bits<sizeof(T)>::type bits;
    const State other = {value};
    bits was = 0, before;
    do {
        State both;
        bits next;
        memcpy(&both.s0, &was, sizeof was);
        both.merge(other);
        memcpy(&next, &both.s0, sizeof next);
        before = was;
        was = atomicCAS((bits *)place, before, next);
    } while (was != before);
}

template <class State, class T, int CELLS>
__device__ __forceinline__ void noyau_atomic_merge(T *place, const noyau_vector<T, CELLS> &cells)
{
    #pragma unroll
    for (int at = 0; at < CELLS; ++at) noyau_atomic_merge<State>(place + at, cells.at[at]);
}

struct noyau_sum_i64 {
    int64_t s0;
    __device__ void merge(const noyau_sum_i64 &other)
    {
        int64_t next0 = s0 + other.s0;
        s0 = next0;
    }
    __device__ noyau_sum_i64 of_lane(int from) const
    {
        noyau_sum_i64 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        return state;
    }
};

extern "C" __global__ void __launch_bounds__(256) scattered_cells_0(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, const float *__restrict__ v3, int32_t *__restrict__ v3_counts, const int64_t *__restrict__ v3_before, const int64_t *__restrict__ v3_starts, const int64_t *__restrict__ v3_order, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t piece = blockIdx.x; piece < noyau_minimum_i64(((a * b) / 256) + 1, 128); piece += gridDim.x) {
        const int64_t first = piece * ((a * b) / 32768) * 256 + piece * 256;
        const int64_t length = noyau_maximum_i64(0, noyau_minimum_i64(((a * b) / 32768) * 256 + 256, a * b - first));
        const int64_t several = noyau_maximum_i64((a * n + 4095) / 4096, 1);
        const int64_t buckets = noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 1;
        __shared__ int32_t of_bucket[4096];
        #pragma unroll 4
        for (int64_t clear = threadIdx.x; clear < buckets; clear += blockDim.x) {
            of_bucket[clear] = 0;
        }
        __syncthreads();
        {
            #pragma unroll 4
            for (int64_t own = lane; own < length; own += 256) {
                const int32_t ids_i = ids[first + own];
                const int64_t at = (int64_t)ids_i;
                [[maybe_unused]] const bool inside = (at >= 0 && at < n);
                if (inside) {
                    noyau_atomic_add(&of_bucket[noyau_floor_divide_i64(n * noyau_floor_divide_i64(first + own, b) + at, several)], 1);
                }
            }
        }
        __syncthreads();
        #pragma unroll 4
        for (int64_t cell = threadIdx.x; cell < buckets; cell += blockDim.x) {
            v3_counts[buckets * piece + cell] = of_bucket[cell];
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_cells_1(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, const float *__restrict__ v3, const int32_t *__restrict__ v3_counts, int64_t *__restrict__ v3_before, const int64_t *__restrict__ v3_starts, const int64_t *__restrict__ v3_order, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t block = (int64_t)blockIdx.x * 8 + threadIdx.y; block < noyau_floor_divide_i64(noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)), 32) + 1; block += (int64_t)gridDim.x * 8) {
        {
            if ((block * 32 + lane) < (noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 1)) {
                int64_t before = 0LL;
                #pragma unroll 4
                for (int64_t piece = 0; piece < noyau_minimum_i64(((a * b) / 256) + 1, 128); ++piece) {
                    v3_before[noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * piece + block * 32 + lane + piece] = before;
                    before += (int64_t)v3_counts[noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * piece + block * 32 + lane + piece];
                }
                v3_before[block * 32 + lane + noyau_minimum_i64(((a * b) / 256) + 1, 128) - noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * noyau_maximum_i64(-((a * b) / 256) - 1, -128)] = before;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_cells_2(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, const float *__restrict__ v3, const int32_t *__restrict__ v3_counts, const int64_t *__restrict__ v3_before, int64_t *__restrict__ v3_starts, const int64_t *__restrict__ v3_order, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t bucket = (int64_t)blockIdx.x * 8 + threadIdx.y; bucket < noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 2; bucket += (int64_t)gridDim.x * 8) {
        int64_t start_sum;
        const int length = bucket;
        const int until_start = noyau_until_aligned<2>(&v3_before[noyau_minimum_i64(((a * b) / 256) + 1, 128) - noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * noyau_maximum_i64(-((a * b) / 256) - 1, -128)], length);
        const int vectors_start = ((length + until_start) / 2) - until_start;
        {
            start_sum = 0LL;
            #pragma unroll 4
            for (int earlier = lane; earlier < vectors_start; earlier += 32) {
                const noyau_vector<int64_t, 2> v3_before_cells = noyau_load<int64_t, 2>(&v3_before[earlier * 2 + noyau_minimum_i64(((a * b) / 256) + 1, 128) + until_start - noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * noyau_maximum_i64(-((a * b) / 256) - 1, -128)]);
                #pragma unroll
                for (int cell = 0; cell < 2; ++cell) {
                    start_sum += v3_before_cells.at[cell];
                }
            }
            #pragma unroll 4
            for (int earlier_rest = lane; earlier_rest < length - vectors_start * 2; earlier_rest += 32) {
                const int earlier_at = earlier_rest < until_start ? earlier_rest : (vectors_start * 2 + earlier_rest);
                start_sum += v3_before[earlier_at + noyau_minimum_i64(((a * b) / 256) + 1, 128) - noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * noyau_maximum_i64(-((a * b) / 256) - 1, -128)];
            }
        }
        start_sum = noyau_merge_lanes<32>(noyau_sum_i64{start_sum}).s0;
        if (threadIdx.x == 0) {
            v3_starts[bucket] = start_sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_cells_3(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, const float *__restrict__ v3, const int32_t *__restrict__ v3_counts, const int64_t *__restrict__ v3_before, const int64_t *__restrict__ v3_starts, int64_t *__restrict__ v3_order, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t piece = blockIdx.x; piece < noyau_minimum_i64(((a * b) / 256) + 1, 128); piece += gridDim.x) {
        const int64_t first = piece * ((a * b) / 32768) * 256 + piece * 256;
        const int64_t length = noyau_maximum_i64(0, noyau_minimum_i64(((a * b) / 32768) * 256 + 256, a * b - first));
        const int64_t several = noyau_maximum_i64((a * n + 4095) / 4096, 1);
        const int64_t buckets = noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 1;
        __shared__ int32_t of_bucket[4096];
        #pragma unroll 4
        for (int64_t clear = threadIdx.x; clear < buckets; clear += blockDim.x) {
            of_bucket[clear] = 0;
        }
        __syncthreads();
        __shared__ int32_t bucket_of[256];
        for (int64_t turn = 0; turn < noyau_floor_divide_i64(length + 255, 256); ++turn) {
            {
                bucket_of[lane] = (int32_t)buckets;
                if ((turn * 256 + lane) < length) {
                    const int32_t ids_i = ids[turn * 256 + first + lane];
                    const int64_t at = (int64_t)ids_i;
                    [[maybe_unused]] const bool inside = (at >= 0 && at < n);
                    if (inside) {
                        bucket_of[lane] = (int32_t)noyau_floor_divide_i64(n * noyau_floor_divide_i64(turn * 256 + first + lane, b) + at, several);
                    }
                }
            }
            __syncthreads();
            {
                const int32_t bucket = bucket_of[lane];
                const int64_t bucket_2 = (int64_t)bucket;
                if (bucket_2 < buckets) {
                    int32_t threads_sum = 0;
                    #pragma unroll 4
                    for (int64_t other = 0; other < lane; ++other) threads_sum += (int32_t)(bucket_of[other] == bucket);
                    const int32_t threads = threads_sum;
                    const int64_t place = ((((int64_t)threads) + v3_starts[bucket_2]) + v3_before[buckets * piece + bucket_2]) + ((int64_t)of_bucket[bucket_2]);
                    v3_order[place] = turn * 256 + first + lane;
                }
            }
            __syncthreads();
            {
                const int64_t bucket = (int64_t)bucket_of[lane];
                if (bucket < buckets) {
                    noyau_atomic_add(&of_bucket[bucket], 1);
                }
            }
            __syncthreads();
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_cells_4(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, float *__restrict__ v3, const int32_t *__restrict__ v3_counts, const int64_t *__restrict__ v3_before, const int64_t *__restrict__ v3_starts, const int64_t *__restrict__ v3_order, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t block = blockIdx.x; block < (a * n + 255) / 256; block += gridDim.x) {
        {
            if ((block * 256 + lane) < (a * n)) {
                const int64_t v3_starts_i = v3_starts[(block * 256 + lane) / noyau_maximum_i64((a * n + 4095) / 4096, 1)];
                const int64_t v3_starts_i_2 = v3_starts[((block * 256 + lane) / noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 1];
                float total;
                total = data[block * 256 + lane];
                #pragma unroll 4
                for (int64_t turn = 0; turn < v3_starts_i_2 - v3_starts_i; ++turn) {
                    const int64_t v3_order_i = v3_order[turn + v3_starts_i];
                    total = x[v3_order_i];
                }
                v3[block * 256 + lane] = total;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_cells_5(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, float *__restrict__ v3, const int32_t *__restrict__ v3_counts, const int64_t *__restrict__ v3_before, const int64_t *__restrict__ v3_starts, const int64_t *__restrict__ v3_order, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t block = blockIdx.x; block < (a * n + 255) / 256; block += gridDim.x) {
        {
            if ((block * 256 + lane) < (a * n)) {
                const int64_t v3_starts_i = v3_starts[(block * 256 + lane) / noyau_maximum_i64((a * n + 4095) / 4096, 1)];
                const int64_t v3_starts_i_2 = v3_starts[((block * 256 + lane) / noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 1];
                float total;
                total = data[block * 256 + lane];
                #pragma unroll 4
                for (int64_t turn = 0; turn < v3_starts_i_2 - v3_starts_i; ++turn) {
                    const int64_t v3_order_i = v3_order[turn + v3_starts_i];
                    const int32_t ids_i = ids[v3_order_i];
                    const int64_t at = (int64_t)ids_i;
                    [[maybe_unused]] const bool inside = (at >= 0 && at < n);
                    const float x_i = x[v3_order_i];
                    if ((n * noyau_floor_divide_i64(v3_order_i, b) + at) == (block * 256 + lane)) {
                        total = x_i;
                    }
                }
                v3[block * 256 + lane] = total;
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t scattered_cells(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, float *__restrict__ v3, int64_t a, int64_t n, int64_t b, cudaStream_t stream)
{
    int32_t *v3_counts = 0;
    int64_t *v3_before = 0;
    int64_t *v3_starts = 0;
    int64_t *v3_order = 0;
    if (cudaError_t error = cudaMallocAsync((void **)&v3_counts, sizeof(*v3_counts) * (noyau_minimum_i64(((a * b) / 256) + 1, 128) - noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * noyau_maximum_i64(-((a * b) / 256) - 1, -128)), stream)) return error;
    if (cudaError_t error = cudaMallocAsync((void **)&v3_before, sizeof(*v3_before) * (noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + noyau_minimum_i64(((a * b) / 256) + 1, 128) + 1 - noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) * noyau_maximum_i64(-((a * b) / 256) - 1, -128)), stream)) return error;
    if (cudaError_t error = cudaMallocAsync((void **)&v3_starts, sizeof(*v3_starts) * (noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 2), stream)) return error;
    if (cudaError_t error = cudaMallocAsync((void **)&v3_order, sizeof(*v3_order) * (a * b), stream)) return error;
    if (noyau_minimum_i64(((a * b) / 256) + 1, 128) > 0) scattered_cells_0<<<noyau_blocks(noyau_minimum_i64(((a * b) / 256) + 1, 128), 1), 256, 0, stream>>>(data, ids, x, v3, v3_counts, v3_before, v3_starts, v3_order, a, n, b);
    if (noyau_floor_divide_i64(noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)), 32) + 1 > 0) scattered_cells_1<<<noyau_blocks(noyau_floor_divide_i64(noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)), 32) + 1, 8), dim3(32, 8), 0, stream>>>(data, ids, x, v3, v3_counts, v3_before, v3_starts, v3_order, a, n, b);
    if (noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 2 > 0) scattered_cells_2<<<noyau_blocks(noyau_floor_divide_i64(a * n - 1, noyau_maximum_i64((a * n + 4095) / 4096, 1)) + 2, 8), dim3(32, 8), 0, stream>>>(data, ids, x, v3, v3_counts, v3_before, v3_starts, v3_order, a, n, b);
    if (noyau_minimum_i64(((a * b) / 256) + 1, 128) > 0) scattered_cells_3<<<noyau_blocks(noyau_minimum_i64(((a * b) / 256) + 1, 128), 1), 256, 0, stream>>>(data, ids, x, v3, v3_counts, v3_before, v3_starts, v3_order, a, n, b);
    if (((a * n) <= 4096) && (a * n + 255) / 256 > 0) scattered_cells_4<<<noyau_blocks((a * n + 255) / 256, 1), 256, 0, stream>>>(data, ids, x, v3, v3_counts, v3_before, v3_starts, v3_order, a, n, b);
    if ((!((a * n) <= 4096)) && (a * n + 255) / 256 > 0) scattered_cells_5<<<noyau_blocks((a * n + 255) / 256, 1), 256, 0, stream>>>(data, ids, x, v3, v3_counts, v3_before, v3_starts, v3_order, a, n, b);
    cudaFreeAsync(v3_counts, stream);
    cudaFreeAsync(v3_before, stream);
    cudaFreeAsync(v3_starts, stream);
    cudaFreeAsync(v3_order, stream);
    return cudaGetLastError();
}
#endif
