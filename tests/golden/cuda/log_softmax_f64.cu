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

/* The greater; NaN if either is NaN. 0.0 ulp. */
NOYAU_INLINE double noyau_maximum_f64(double x, double y) {
    return ((x <= y) | (y != y)) ? y : x;
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

#ifndef NOYAU_WATCHED
/* The meeting of the blocks of a cluster: what each has been given by the others, for a merge and for the one after it,
   and the barriers at which that arrives. Nobody waits for what a block does to memory, as barriers of clusters do. */
struct noyau_meeting {
    uint64_t arrived[2];
    uint32_t states[2][16][8];
};

__device__ __forceinline__ unsigned noyau_shared_address(const void *place, unsigned rank)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(place);
    asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank));
    return at;
}

/* All blocks have begun before one gives another a state. */
static __device__ __forceinline__ void noyau_open(noyau_meeting *meeting)
{
    if (threadIdx.x == 0) {
        for (int at = 0; at < 2; ++at) {
            const unsigned barrier = (unsigned)__cvta_generic_to_shared(meeting->arrived + at);
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" : : "r"(barrier) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
    __cluster_barrier_arrive_relaxed();
    __cluster_barrier_wait();
}

/* The states of the blocks of a cluster, merged by halves, in each of them; `number` counts the merges of a kernel. */
template <int BLOCKS, class State> __device__ State noyau_merge_blocks(State own, noyau_meeting *meeting, int number)
{
    constexpr int WORDS = (sizeof(State) + 3) / 4;
    static_assert(WORDS <= 8 && BLOCKS <= 16, "a meeting has room for 16 states of 32 bytes");
    const int turn = number % 2;
    const unsigned barrier = (unsigned)__cvta_generic_to_shared(meeting->arrived + turn);
    if (threadIdx.x == 0) {
        const unsigned bytes = BLOCKS * WORDS * 4;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
    }
    if (threadIdx.x < BLOCKS) {
        uint32_t words[WORDS];
        memcpy(words, &own, sizeof own);
        const unsigned there = noyau_shared_address(meeting->states[turn][blockIdx.x % BLOCKS], threadIdx.x);
        const unsigned arrived = noyau_shared_address(meeting->arrived + turn, threadIdx.x);
        for (int at = 0; at < WORDS; ++at)
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                         : : "r"(there + 4 * at), "r"(words[at]), "r"(arrived) : "memory");
    }
    for (unsigned is_over = 0, phase = number / 2 % 2; !is_over;)
        asm volatile("{\n.reg .pred over;\nmbarrier.try_wait.parity.shared.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
                     : "=r"(is_over) : "r"(barrier), "r"(phase) : "memory");
    memcpy(&own, meeting->states[turn][threadIdx.x % BLOCKS], sizeof own);
    for (int half = BLOCKS / 2; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
    return own.of_lane(0);
}
#endif

struct noyau_max_f64 {
    double s0;
    __device__ void merge(const noyau_max_f64 &other)
    {
        double next0 = noyau_maximum_f64(s0, other.s0);
        s0 = next0;
    }
    __device__ noyau_max_f64 of_lane(int from) const
    {
        noyau_max_f64 state;
        state.s0 = __shfl_sync(0xffffffffu, s0, from);
        return state;
    }
};

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

extern "C" __global__ void __launch_bounds__(256) log_softmax_f64_0(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = (int64_t)blockIdx.x * 8 + threadIdx.y; i0 < rows; i0 += (int64_t)gridDim.x * 8) {
        noyau_vector<double, 2> x_kept[4];
        noyau_vector<double, 1> x_end[1];
        const int length = n;
        const int until = noyau_until_aligned<2>(&x[i0 * n], length);
        const int vectors = ((length + until) / 2) - until;
        const int ends = length - vectors * 2;
        {
            #pragma unroll
            for (int64_t copy_x_round = 0; copy_x_round < 4; ++copy_x_round) {
                if ((copy_x_round * 32 + lane) < vectors) {
                    x_kept[copy_x_round] = noyau_load<double, 2>(&x[i0 * n + copy_x_round * 64 + lane * 2 + until]);
                }
            }
            if (lane < ends) {
                const int copy_x_at = lane < until ? lane : (vectors * 2 + lane);
                x_end[0].at[0] = x[i0 * n + copy_x_at];
            }
        }
        double v1_max;
        {
            v1_max = -INFINITY;
            #pragma unroll
            for (int64_t r1_round = 0; r1_round < 4; ++r1_round) {
                if ((r1_round * 32 + lane) < vectors) {
                    #pragma unroll
                    for (int cell = 0; cell < 2; ++cell) {
                        const double x_2 = x_kept[r1_round].at[cell];
                        v1_max = noyau_maximum_f64(v1_max, x_2);
                    }
                }
            }
            if (lane < ends) {
                const double x_2 = x_end[0].at[0];
                v1_max = noyau_maximum_f64(v1_max, x_2);
            }
        }
        v1_max = noyau_merge_lanes<32>(noyau_max_f64{v1_max}).s0;
        const double v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            #pragma unroll
            for (int64_t r2_round = 0; r2_round < 4; ++r2_round) {
                if ((r2_round * 32 + lane) < vectors) {
                    double v6_of_vector_sum = 0.0;
                    #pragma unroll
                    for (int cell = 0; cell < 2; ++cell) {
                        const double x_2 = x_kept[r2_round].at[cell];
                        const double v4 = x_2 - v1;
                        const double v5 = exp(v4);
                        v6_of_vector_sum += v5;
                    }
                    v6_sum += v6_of_vector_sum;
                }
            }
            if (lane < ends) {
                const double x_2 = x_end[0].at[0];
                const double v4 = x_2 - v1;
                const double v5 = exp(v4);
                v6_sum += v5;
            }
        }
        v6_sum = noyau_merge_lanes<32>(noyau_sum_f64{v6_sum}).s0;
        const double v6 = v6_sum;
        const double v8 = log(v6);
        const int until0_i1 = noyau_until_aligned<2>(&v10[i0 * n], length);
        {
            if (until0_i1 == until) {
                #pragma unroll
                for (int64_t i1_round = 0; i1_round < 4; ++i1_round) {
                    if ((i1_round * 32 + lane) < vectors) {
                        noyau_vector<double, 2> v10_cells;
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[i1_round].at[cell];
                            const double v4 = x_2 - v1;
                            v10_cells.at[cell] = v4 - v8;
                        }
                        noyau_store<double, 2>(&v10[i0 * n + i1_round * 64 + lane * 2 + until], v10_cells);
                    }
                }
            } else {
                #pragma unroll
                for (int64_t i1_round = 0; i1_round < 4; ++i1_round) {
                    if ((i1_round * 32 + lane) < vectors) {
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[i1_round].at[cell];
                            const double v4 = x_2 - v1;
                            v10[i0 * n + i1_round * 64 + lane * 2 + cell + until] = v4 - v8;
                        }
                    }
                }
            }
            if (lane < ends) {
                const int i1_at = lane < until ? lane : (vectors * 2 + lane);
                const double x_2 = x_end[0].at[0];
                const double v4 = x_2 - v1;
                v10[i0 * n + i1_at] = v4 - v8;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) log_softmax_f64_1(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        noyau_vector<double, 2> x_kept[4];
        noyau_vector<double, 1> x_end[1];
        const int length = n;
        const int until = noyau_until_aligned<2>(&x[i0 * n], length);
        const int vectors = ((length + until) / 2) - until;
        const int ends = length - vectors * 2;
        {
            #pragma unroll
            for (int64_t copy_x_round = 0; copy_x_round < 4; ++copy_x_round) {
                if ((copy_x_round * 256 + lane) < vectors) {
                    x_kept[copy_x_round] = noyau_load<double, 2>(&x[i0 * n + copy_x_round * 512 + lane * 2 + until]);
                }
            }
            if (lane < ends) {
                const int copy_x_at = lane < until ? lane : (vectors * 2 + lane);
                x_end[0].at[0] = x[i0 * n + copy_x_at];
            }
        }
        double v1_max;
        {
            v1_max = -INFINITY;
            #pragma unroll
            for (int64_t r1_round = 0; r1_round < 4; ++r1_round) {
                if ((r1_round * 256 + lane) < vectors) {
                    #pragma unroll
                    for (int cell = 0; cell < 2; ++cell) {
                        const double x_2 = x_kept[r1_round].at[cell];
                        v1_max = noyau_maximum_f64(v1_max, x_2);
                    }
                }
            }
            if (lane < ends) {
                const double x_2 = x_end[0].at[0];
                v1_max = noyau_maximum_f64(v1_max, x_2);
            }
        }
        v1_max = noyau_merge_lanes<256>(noyau_max_f64{v1_max}).s0;
        const double v1 = v1_max;
        double v6_sum;
        {
            v6_sum = 0.0;
            #pragma unroll
            for (int64_t r2_round = 0; r2_round < 4; ++r2_round) {
                if ((r2_round * 256 + lane) < vectors) {
                    double v6_of_vector_sum = 0.0;
                    #pragma unroll
                    for (int cell = 0; cell < 2; ++cell) {
                        const double x_2 = x_kept[r2_round].at[cell];
                        const double v4 = x_2 - v1;
                        const double v5 = exp(v4);
                        v6_of_vector_sum += v5;
                    }
                    v6_sum += v6_of_vector_sum;
                }
            }
            if (lane < ends) {
                const double x_2 = x_end[0].at[0];
                const double v4 = x_2 - v1;
                const double v5 = exp(v4);
                v6_sum += v5;
            }
        }
        v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
        const double v6 = v6_sum;
        const double v8 = log(v6);
        const int until0_i1 = noyau_until_aligned<2>(&v10[i0 * n], length);
        {
            if (until0_i1 == until) {
                #pragma unroll
                for (int64_t i1_round = 0; i1_round < 4; ++i1_round) {
                    if ((i1_round * 256 + lane) < vectors) {
                        noyau_vector<double, 2> v10_cells;
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[i1_round].at[cell];
                            const double v4 = x_2 - v1;
                            v10_cells.at[cell] = v4 - v8;
                        }
                        noyau_store<double, 2>(&v10[i0 * n + i1_round * 512 + lane * 2 + until], v10_cells);
                    }
                }
            } else {
                #pragma unroll
                for (int64_t i1_round = 0; i1_round < 4; ++i1_round) {
                    if ((i1_round * 256 + lane) < vectors) {
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[i1_round].at[cell];
                            const double v4 = x_2 - v1;
                            v10[i0 * n + i1_round * 512 + lane * 2 + cell + until] = v4 - v8;
                        }
                    }
                }
            }
            if (lane < ends) {
                const int i1_at = lane < until ? lane : (vectors * 2 + lane);
                const double x_2 = x_end[0].at[0];
                const double v4 = x_2 - v1;
                v10[i0 * n + i1_at] = v4 - v8;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4) __cluster_dims__(2, 1, 1) log_softmax_f64_2(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    const int64_t rank = blockIdx.x % 2;
    __shared__ noyau_meeting meeting;
    int met = 0;
    noyau_open(&meeting);
    for (int64_t i0 = blockIdx.x / 2; i0 < rows; i0 += gridDim.x / 2) {
        noyau_vector<double, 2> x_kept[8];
        noyau_vector<double, 1> x_end[1];
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 3) / 4) * 2, n - rank * ((n + 3) / 4) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 3) / 4) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            {
                #pragma unroll
                for (int64_t copy_x_round = 0; copy_x_round < 8; ++copy_x_round) {
                    if ((copy_x_round * 256 + lane) < vectors) {
                        x_kept[copy_x_round] = noyau_load<double, 2>(&x[rank * ((n + 3) / 4) * 2 + i0 * n + copy_x_round * 512 + lane * 2 + until]);
                    }
                }
                if (lane < ends) {
                    const int copy_x_at = lane < until ? lane : (vectors * 2 + lane);
                    x_end[0].at[0] = x[rank * ((n + 3) / 4) * 2 + i0 * n + copy_x_at];
                }
            }
        }
        double v1_max_of_block;
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 3) / 4) * 2, n - rank * ((n + 3) / 4) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 3) / 4) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            double v1_max;
            {
                v1_max = -INFINITY;
                #pragma unroll
                for (int64_t r1_round = 0; r1_round < 8; ++r1_round) {
                    if ((r1_round * 256 + lane) < vectors) {
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[r1_round].at[cell];
                            v1_max = noyau_maximum_f64(v1_max, x_2);
                        }
                    }
                }
                if (lane < ends) {
                    const double x_2 = x_end[0].at[0];
                    v1_max = noyau_maximum_f64(v1_max, x_2);
                }
            }
            v1_max = noyau_merge_lanes<256>(noyau_max_f64{v1_max}).s0;
            v1_max_of_block = v1_max;
        }
        v1_max_of_block = noyau_merge_blocks<2>(noyau_max_f64{v1_max_of_block}, &meeting, met++).s0;
        const double v1 = v1_max_of_block;
        double v6_sum_of_block;
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 3) / 4) * 2, n - rank * ((n + 3) / 4) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 3) / 4) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            double v6_sum;
            {
                v6_sum = 0.0;
                #pragma unroll
                for (int64_t r2_round = 0; r2_round < 8; ++r2_round) {
                    if ((r2_round * 256 + lane) < vectors) {
                        double v6_of_vector_sum = 0.0;
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[r2_round].at[cell];
                            const double v4 = x_2 - v1;
                            const double v5 = exp(v4);
                            v6_of_vector_sum += v5;
                        }
                        v6_sum += v6_of_vector_sum;
                    }
                }
                if (lane < ends) {
                    const double x_2 = x_end[0].at[0];
                    const double v4 = x_2 - v1;
                    const double v5 = exp(v4);
                    v6_sum += v5;
                }
            }
            v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
            v6_sum_of_block = v6_sum;
        }
        v6_sum_of_block = noyau_merge_blocks<2>(noyau_sum_f64{v6_sum_of_block}, &meeting, met++).s0;
        const double v6 = v6_sum_of_block;
        const double v8 = log(v6);
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 3) / 4) * 2, n - rank * ((n + 3) / 4) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 3) / 4) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            const int until0_i1 = noyau_until_aligned<2>(&v10[rank * ((n + 3) / 4) * 2 + i0 * n], length);
            {
                if (until0_i1 == until) {
                    #pragma unroll
                    for (int64_t i1_round = 0; i1_round < 8; ++i1_round) {
                        if ((i1_round * 256 + lane) < vectors) {
                            noyau_vector<double, 2> v10_cells;
                            #pragma unroll
                            for (int cell = 0; cell < 2; ++cell) {
                                const double x_2 = x_kept[i1_round].at[cell];
                                const double v4 = x_2 - v1;
                                v10_cells.at[cell] = v4 - v8;
                            }
                            noyau_store<double, 2>(&v10[rank * ((n + 3) / 4) * 2 + i0 * n + i1_round * 512 + lane * 2 + until], v10_cells);
                        }
                    }
                } else {
                    #pragma unroll
                    for (int64_t i1_round = 0; i1_round < 8; ++i1_round) {
                        if ((i1_round * 256 + lane) < vectors) {
                            #pragma unroll
                            for (int cell = 0; cell < 2; ++cell) {
                                const double x_2 = x_kept[i1_round].at[cell];
                                const double v4 = x_2 - v1;
                                v10[rank * ((n + 3) / 4) * 2 + i0 * n + i1_round * 512 + lane * 2 + cell + until] = v4 - v8;
                            }
                        }
                    }
                }
                if (lane < ends) {
                    const int i1_at = lane < until ? lane : (vectors * 2 + lane);
                    const double x_2 = x_end[0].at[0];
                    const double v4 = x_2 - v1;
                    v10[rank * ((n + 3) / 4) * 2 + i0 * n + i1_at] = v4 - v8;
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4) __cluster_dims__(4, 1, 1) log_softmax_f64_3(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    const int64_t rank = blockIdx.x % 4;
    __shared__ noyau_meeting meeting;
    int met = 0;
    noyau_open(&meeting);
    for (int64_t i0 = blockIdx.x / 4; i0 < rows; i0 += gridDim.x / 4) {
        noyau_vector<double, 2> x_kept[8];
        noyau_vector<double, 1> x_end[1];
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 7) / 8) * 2, n - rank * ((n + 7) / 8) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 7) / 8) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            {
                #pragma unroll
                for (int64_t copy_x_round = 0; copy_x_round < 8; ++copy_x_round) {
                    if ((copy_x_round * 256 + lane) < vectors) {
                        x_kept[copy_x_round] = noyau_load<double, 2>(&x[rank * ((n + 7) / 8) * 2 + i0 * n + copy_x_round * 512 + lane * 2 + until]);
                    }
                }
                if (lane < ends) {
                    const int copy_x_at = lane < until ? lane : (vectors * 2 + lane);
                    x_end[0].at[0] = x[rank * ((n + 7) / 8) * 2 + i0 * n + copy_x_at];
                }
            }
        }
        double v1_max_of_block;
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 7) / 8) * 2, n - rank * ((n + 7) / 8) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 7) / 8) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            double v1_max;
            {
                v1_max = -INFINITY;
                #pragma unroll
                for (int64_t r1_round = 0; r1_round < 8; ++r1_round) {
                    if ((r1_round * 256 + lane) < vectors) {
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[r1_round].at[cell];
                            v1_max = noyau_maximum_f64(v1_max, x_2);
                        }
                    }
                }
                if (lane < ends) {
                    const double x_2 = x_end[0].at[0];
                    v1_max = noyau_maximum_f64(v1_max, x_2);
                }
            }
            v1_max = noyau_merge_lanes<256>(noyau_max_f64{v1_max}).s0;
            v1_max_of_block = v1_max;
        }
        v1_max_of_block = noyau_merge_blocks<4>(noyau_max_f64{v1_max_of_block}, &meeting, met++).s0;
        const double v1 = v1_max_of_block;
        double v6_sum_of_block;
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 7) / 8) * 2, n - rank * ((n + 7) / 8) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 7) / 8) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            double v6_sum;
            {
                v6_sum = 0.0;
                #pragma unroll
                for (int64_t r2_round = 0; r2_round < 8; ++r2_round) {
                    if ((r2_round * 256 + lane) < vectors) {
                        double v6_of_vector_sum = 0.0;
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[r2_round].at[cell];
                            const double v4 = x_2 - v1;
                            const double v5 = exp(v4);
                            v6_of_vector_sum += v5;
                        }
                        v6_sum += v6_of_vector_sum;
                    }
                }
                if (lane < ends) {
                    const double x_2 = x_end[0].at[0];
                    const double v4 = x_2 - v1;
                    const double v5 = exp(v4);
                    v6_sum += v5;
                }
            }
            v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
            v6_sum_of_block = v6_sum;
        }
        v6_sum_of_block = noyau_merge_blocks<4>(noyau_sum_f64{v6_sum_of_block}, &meeting, met++).s0;
        const double v6 = v6_sum_of_block;
        const double v8 = log(v6);
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 7) / 8) * 2, n - rank * ((n + 7) / 8) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 7) / 8) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            const int until0_i1 = noyau_until_aligned<2>(&v10[rank * ((n + 7) / 8) * 2 + i0 * n], length);
            {
                if (until0_i1 == until) {
                    #pragma unroll
                    for (int64_t i1_round = 0; i1_round < 8; ++i1_round) {
                        if ((i1_round * 256 + lane) < vectors) {
                            noyau_vector<double, 2> v10_cells;
                            #pragma unroll
                            for (int cell = 0; cell < 2; ++cell) {
                                const double x_2 = x_kept[i1_round].at[cell];
                                const double v4 = x_2 - v1;
                                v10_cells.at[cell] = v4 - v8;
                            }
                            noyau_store<double, 2>(&v10[rank * ((n + 7) / 8) * 2 + i0 * n + i1_round * 512 + lane * 2 + until], v10_cells);
                        }
                    }
                } else {
                    #pragma unroll
                    for (int64_t i1_round = 0; i1_round < 8; ++i1_round) {
                        if ((i1_round * 256 + lane) < vectors) {
                            #pragma unroll
                            for (int cell = 0; cell < 2; ++cell) {
                                const double x_2 = x_kept[i1_round].at[cell];
                                const double v4 = x_2 - v1;
                                v10[rank * ((n + 7) / 8) * 2 + i0 * n + i1_round * 512 + lane * 2 + cell + until] = v4 - v8;
                            }
                        }
                    }
                }
                if (lane < ends) {
                    const int i1_at = lane < until ? lane : (vectors * 2 + lane);
                    const double x_2 = x_end[0].at[0];
                    const double v4 = x_2 - v1;
                    v10[rank * ((n + 7) / 8) * 2 + i0 * n + i1_at] = v4 - v8;
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4) __cluster_dims__(8, 1, 1) log_softmax_f64_4(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    const int64_t rank = blockIdx.x % 8;
    __shared__ noyau_meeting meeting;
    int met = 0;
    noyau_open(&meeting);
    for (int64_t i0 = blockIdx.x / 8; i0 < rows; i0 += gridDim.x / 8) {
        noyau_vector<double, 2> x_kept[8];
        noyau_vector<double, 1> x_end[1];
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 15) / 16) * 2, n - rank * ((n + 15) / 16) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 15) / 16) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            {
                #pragma unroll
                for (int64_t copy_x_round = 0; copy_x_round < 8; ++copy_x_round) {
                    if ((copy_x_round * 256 + lane) < vectors) {
                        x_kept[copy_x_round] = noyau_load<double, 2>(&x[rank * ((n + 15) / 16) * 2 + i0 * n + copy_x_round * 512 + lane * 2 + until]);
                    }
                }
                if (lane < ends) {
                    const int copy_x_at = lane < until ? lane : (vectors * 2 + lane);
                    x_end[0].at[0] = x[rank * ((n + 15) / 16) * 2 + i0 * n + copy_x_at];
                }
            }
        }
        double v1_max_of_block;
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 15) / 16) * 2, n - rank * ((n + 15) / 16) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 15) / 16) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            double v1_max;
            {
                v1_max = -INFINITY;
                #pragma unroll
                for (int64_t r1_round = 0; r1_round < 8; ++r1_round) {
                    if ((r1_round * 256 + lane) < vectors) {
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[r1_round].at[cell];
                            v1_max = noyau_maximum_f64(v1_max, x_2);
                        }
                    }
                }
                if (lane < ends) {
                    const double x_2 = x_end[0].at[0];
                    v1_max = noyau_maximum_f64(v1_max, x_2);
                }
            }
            v1_max = noyau_merge_lanes<256>(noyau_max_f64{v1_max}).s0;
            v1_max_of_block = v1_max;
        }
        v1_max_of_block = noyau_merge_blocks<8>(noyau_max_f64{v1_max_of_block}, &meeting, met++).s0;
        const double v1 = v1_max_of_block;
        double v6_sum_of_block;
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 15) / 16) * 2, n - rank * ((n + 15) / 16) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 15) / 16) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            double v6_sum;
            {
                v6_sum = 0.0;
                #pragma unroll
                for (int64_t r2_round = 0; r2_round < 8; ++r2_round) {
                    if ((r2_round * 256 + lane) < vectors) {
                        double v6_of_vector_sum = 0.0;
                        #pragma unroll
                        for (int cell = 0; cell < 2; ++cell) {
                            const double x_2 = x_kept[r2_round].at[cell];
                            const double v4 = x_2 - v1;
                            const double v5 = exp(v4);
                            v6_of_vector_sum += v5;
                        }
                        v6_sum += v6_of_vector_sum;
                    }
                }
                if (lane < ends) {
                    const double x_2 = x_end[0].at[0];
                    const double v4 = x_2 - v1;
                    const double v5 = exp(v4);
                    v6_sum += v5;
                }
            }
            v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
            v6_sum_of_block = v6_sum;
        }
        v6_sum_of_block = noyau_merge_blocks<8>(noyau_sum_f64{v6_sum_of_block}, &meeting, met++).s0;
        const double v6 = v6_sum_of_block;
        const double v8 = log(v6);
        {
            const int length = noyau_maximum_i64(0, noyau_minimum_i64(((n + 15) / 16) * 2, n - rank * ((n + 15) / 16) * 2));
            const int until = noyau_until_aligned<2>(&x[rank * ((n + 15) / 16) * 2 + i0 * n], length);
            const int vectors = ((length + until) / 2) - until;
            const int ends = length - vectors * 2;
            const int until0_i1 = noyau_until_aligned<2>(&v10[rank * ((n + 15) / 16) * 2 + i0 * n], length);
            {
                if (until0_i1 == until) {
                    #pragma unroll
                    for (int64_t i1_round = 0; i1_round < 8; ++i1_round) {
                        if ((i1_round * 256 + lane) < vectors) {
                            noyau_vector<double, 2> v10_cells;
                            #pragma unroll
                            for (int cell = 0; cell < 2; ++cell) {
                                const double x_2 = x_kept[i1_round].at[cell];
                                const double v4 = x_2 - v1;
                                v10_cells.at[cell] = v4 - v8;
                            }
                            noyau_store<double, 2>(&v10[rank * ((n + 15) / 16) * 2 + i0 * n + i1_round * 512 + lane * 2 + until], v10_cells);
                        }
                    }
                } else {
                    #pragma unroll
                    for (int64_t i1_round = 0; i1_round < 8; ++i1_round) {
                        if ((i1_round * 256 + lane) < vectors) {
                            #pragma unroll
                            for (int cell = 0; cell < 2; ++cell) {
                                const double x_2 = x_kept[i1_round].at[cell];
                                const double v4 = x_2 - v1;
                                v10[rank * ((n + 15) / 16) * 2 + i0 * n + i1_round * 512 + lane * 2 + cell + until] = v4 - v8;
                            }
                        }
                    }
                }
                if (lane < ends) {
                    const int i1_at = lane < until ? lane : (vectors * 2 + lane);
                    const double x_2 = x_end[0].at[0];
                    const double v4 = x_2 - v1;
                    v10[rank * ((n + 15) / 16) * 2 + i0 * n + i1_at] = v4 - v8;
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) log_softmax_f64_5(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n)
{
    const int lane = threadIdx.x;
    for (int64_t i0 = blockIdx.x; i0 < rows; i0 += gridDim.x) {
        double v1_max;
        const int64_t length = n;
        const int64_t until_v1 = noyau_until_aligned<2>(&x[i0 * n], length);
        const int64_t vectors_v1 = ((length + until_v1) / 2) - until_v1;
        {
            v1_max = -INFINITY;
            #pragma unroll 4
            for (int64_t r1 = lane; r1 < vectors_v1; r1 += 256) {
                const noyau_vector<double, 2> x_cells = noyau_load<double, 2>(&x[i0 * n + r1 * 2 + until_v1]);
                #pragma unroll
                for (int cell = 0; cell < 2; ++cell) {
                    const double x_i = x_cells.at[cell];
                    v1_max = noyau_maximum_f64(v1_max, x_i);
                }
            }
            #pragma unroll 4
            for (int64_t r1_rest = lane; r1_rest < length - vectors_v1 * 2; r1_rest += 256) {
                const int64_t r1_at = r1_rest < until_v1 ? r1_rest : (vectors_v1 * 2 + r1_rest);
                const double x_i = x[i0 * n + r1_at];
                v1_max = noyau_maximum_f64(v1_max, x_i);
            }
        }
        v1_max = noyau_merge_lanes<256>(noyau_max_f64{v1_max}).s0;
        const double v1 = v1_max;
        double v6_sum;
        const int64_t length_2 = n;
        const int64_t until_v6 = noyau_until_aligned<2>(&x[i0 * n], length_2);
        const int64_t vectors_v6 = ((length_2 + until_v6) / 2) - until_v6;
        {
            v6_sum = 0.0;
            #pragma unroll 4
            for (int64_t r2 = lane; r2 < vectors_v6; r2 += 256) {
                double v6_of_vector_sum = 0.0;
                const noyau_vector<double, 2> x_cells = noyau_load<double, 2>(&x[i0 * n + r2 * 2 + until_v6]);
                #pragma unroll
                for (int cell = 0; cell < 2; ++cell) {
                    const double x_i = x_cells.at[cell];
                    const double v4 = x_i - v1;
                    const double v5 = exp(v4);
                    v6_of_vector_sum += v5;
                }
                v6_sum += v6_of_vector_sum;
            }
            #pragma unroll 4
            for (int64_t r2_rest = lane; r2_rest < length_2 - vectors_v6 * 2; r2_rest += 256) {
                const int64_t r2_at = r2_rest < until_v6 ? r2_rest : (vectors_v6 * 2 + r2_rest);
                const double x_i = x[i0 * n + r2_at];
                const double v4 = x_i - v1;
                const double v5 = exp(v4);
                v6_sum += v5;
            }
        }
        v6_sum = noyau_merge_lanes<256>(noyau_sum_f64{v6_sum}).s0;
        const double v6 = v6_sum;
        const double v8 = log(v6);
        const int64_t length_3 = n;
        const int64_t until_i1 = noyau_until_aligned<2>(&x[i0 * n], length_3);
        const int64_t until1_i1 = noyau_until_aligned<2>(&v10[i0 * n], length_3);
        const int64_t vectors_i1 = until_i1 == until1_i1 ? (((length_3 + until_i1) / 2) - until_i1) : 0;
        {
            #pragma unroll 4
            for (int64_t i1 = lane; i1 < vectors_i1; i1 += 256) {
                const noyau_vector<double, 2> x_cells = noyau_load<double, 2>(&x[i0 * n + i1 * 2 + until_i1]);
                noyau_vector<double, 2> v10_cells;
                #pragma unroll
                for (int cell = 0; cell < 2; ++cell) {
                    const double x_i = x_cells.at[cell];
                    const double v4 = x_i - v1;
                    v10_cells.at[cell] = v4 - v8;
                }
                noyau_store<double, 2>(&v10[i0 * n + i1 * 2 + until_i1], v10_cells);
            }
            #pragma unroll 4
            for (int64_t i1_rest = lane; i1_rest < length_3 - vectors_i1 * 2; i1_rest += 256) {
                const int64_t i1_at = i1_rest < until_i1 ? i1_rest : (vectors_i1 * 2 + i1_rest);
                const double x_i = x[i0 * n + i1_at];
                const double v4 = x_i - v1;
                v10[i0 * n + i1_at] = v4 - v8;
            }
        }
    }
}

#ifndef __CUDACC_RTC__
/* Launches the kernels on a stream, with arrays of the device. */
cudaError_t log_softmax_f64(const double *__restrict__ x, double *__restrict__ v10, int64_t rows, int64_t n, cudaStream_t stream)
{
    if ((n <= 256) && rows > 0) log_softmax_f64_0<<<noyau_blocks(rows, 8), dim3(32, 8), 0, stream>>>(x, v10, rows, n);
    if (((n <= 2048) & (!(n <= 256))) && rows > 0) log_softmax_f64_1<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v10, rows, n);
    if ((((n <= 8192) & (!(n <= 256))) & (!(n <= 2048))) && rows > 0) log_softmax_f64_2<<<noyau_blocks(rows, 1) * 2, 256, 0, stream>>>(x, v10, rows, n);
    if (((((n <= 16384) & (!(n <= 256))) & (!(n <= 2048))) & (!(n <= 8192))) && rows > 0) log_softmax_f64_3<<<noyau_blocks(rows, 1) * 4, 256, 0, stream>>>(x, v10, rows, n);
    if ((((((n <= 32768) & (!(n <= 256))) & (!(n <= 2048))) & (!(n <= 8192))) & (!(n <= 16384))) && rows > 0) log_softmax_f64_4<<<noyau_blocks(rows, 1) * 8, 256, 0, stream>>>(x, v10, rows, n);
    if ((((((!(n <= 256)) & (!(n <= 2048))) & (!(n <= 8192))) & (!(n <= 16384))) & (!(n <= 32768))) && rows > 0) log_softmax_f64_5<<<noyau_blocks(rows, 1), 256, 0, stream>>>(x, v10, rows, n);
    return cudaGetLastError();
}
#endif
