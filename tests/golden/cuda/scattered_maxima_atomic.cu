/* the kernel scattered_maxima_atomic */

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

/* The greater; NaN if either is NaN. 0.0 ulp. Where y is known, one comparison is left, by two instructions. */
NOYAU_INLINE float noyau_maximum_f32(float x, float y) {
#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
#else
    return ((x <= y) | (y != y)) ? y : x;
#endif
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

struct noyau_max_f32 {
    float s0;
    __device__ void merge(const noyau_max_f32 &other)
    {
        float next0 = noyau_maximum_f32(s0, other.s0);
        s0 = next0;
    }
    __device__ noyau_max_f32 of_lane(int from) const
    {
        noyau_max_f32 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        return state;
    }
};

extern "C" __global__ void __launch_bounds__(256) scattered_maxima_atomic_0(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, float *__restrict__ v3, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t i1b = blockIdx.x; i1b < (a * n + 2047) / 2048; i1b += gridDim.x) {
        const int64_t length = noyau_minimum_i64(2048, a * n - i1b * 2048);
        const int length_2 = length;
        const int until_i1b = noyau_until_aligned<4>(&data[i1b * 2048], length_2);
        const int until1_i1b = noyau_until_aligned<4>(&v3[i1b * 2048], length_2);
        const int vectors_i1b = until_i1b == until1_i1b ? (((until_i1b * 3 + length_2) / 4) - until_i1b) : 0;
        {
            #pragma unroll 4
            for (int i1 = lane; i1 < vectors_i1b; i1 += 256) {
                const noyau_vector<float, 4> data_cells = noyau_load<float, 4>(&data[i1b * 2048 + i1 * 4 + until_i1b]);
                noyau_vector<float, 4> v3_cells;
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    v3_cells.at[cell] = data_cells.at[cell];
                }
                noyau_store<float, 4>(&v3[i1b * 2048 + i1 * 4 + until_i1b], v3_cells);
            }
            #pragma unroll 4
            for (int i1_rest = lane; i1_rest < length_2 - vectors_i1b * 4; i1_rest += 256) {
                const int i1_at = i1_rest < until_i1b ? i1_rest : (vectors_i1b * 4 + i1_rest);
                v3[i1b * 2048 + i1_at] = data[i1b * 2048 + i1_at];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scattered_maxima_atomic_1(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, float *__restrict__ v3, int64_t a, int64_t n, int64_t b)
{
    const int lane = threadIdx.x;
    for (int64_t itemb = blockIdx.x; itemb < (b * n + 2047) / 2048; itemb += gridDim.x) {
        const int64_t length = noyau_minimum_i64(2048, b * n - itemb * 2048);
        const int length_2 = length;
        const int until_itemb = noyau_until_aligned<4>(&ids[itemb * 2048], length_2);
        const int until1_itemb = noyau_until_aligned<4>(&x[itemb * 2048], length_2);
        const int vectors_itemb = until_itemb == until1_itemb ? (((until_itemb * 3 + length_2) / 4) - until_itemb) : 0;
        {
            #pragma unroll 4
            for (int v_item = lane; v_item < vectors_itemb; v_item += 256) {
                const noyau_vector<int32_t, 4> ids_cells = noyau_load<int32_t, 4>(&ids[itemb * 2048 + v_item * 4 + until_itemb]);
                const noyau_vector<float, 4> x_cells = noyau_load<float, 4>(&x[itemb * 2048 + v_item * 4 + until_itemb]);
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell) {
                    const int32_t ids_i = ids_cells.at[cell];
                    const int64_t at = (int64_t)ids_i;
                    [[maybe_unused]] const bool inside = (at >= 0 && at < a);
                    const float x_i = x_cells.at[cell];
                    if (inside) {
                        noyau_atomic_merge<noyau_max_f32>(&v3[at * n + noyau_floor_mod_i64(itemb * 2048 + v_item * 4 + cell + until_itemb, n)], x_i);
                    }
                }
            }
            #pragma unroll 4
            for (int item_rest = lane; item_rest < length_2 - vectors_itemb * 4; item_rest += 256) {
                const int item_at = item_rest < until_itemb ? item_rest : (vectors_itemb * 4 + item_rest);
                const int32_t ids_i = ids[itemb * 2048 + item_at];
                const int64_t at = (int64_t)ids_i;
                [[maybe_unused]] const bool inside = (at >= 0 && at < a);
                const float x_i = x[itemb * 2048 + item_at];
                if (inside) {
                    noyau_atomic_merge<noyau_max_f32>(&v3[at * n + noyau_floor_mod_i64(itemb * 2048 + item_at, n)], x_i);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t scattered_maxima_atomic(const float *__restrict__ data, const int32_t *__restrict__ ids, const float *__restrict__ x, float *__restrict__ v3, int64_t a, int64_t n, int64_t b, cudaStream_t stream)
{
    if ((a * n + 2047) / 2048 > 0) scattered_maxima_atomic_0<<<noyau_blocks((a * n + 2047) / 2048, 1), 256, 0, stream>>>(data, ids, x, v3, a, n, b);
    if ((b * n + 2047) / 2048 > 0) scattered_maxima_atomic_1<<<noyau_blocks((b * n + 2047) / 2048, 1), 256, 0, stream>>>(data, ids, x, v3, a, n, b);
    return cudaGetLastError();
}
#endif
