/* Reductions and scans of CUB by the threads of a block or a warp, over a cell of shared memory for each. Its accesses
   belong to the calling line: a use of the same storage before all threads have reached a barrier races, as in CUB, and
   only the first thread has the result of a reduction. */
#ifndef NOYAU_CUB_H
#define NOYAU_CUB_H
#include "../noyau_cuda.h"

namespace cub {
struct Sum {
    template <class T> NOYAU_UNSEEN T operator()(const T &a, const T &b) const { return a + b; }
};
struct Max {
    template <class T> NOYAU_UNSEEN T operator()(const T &a, const T &b) const { return a < b ? b : a; }
};
struct Min {
    template <class T> NOYAU_UNSEEN T operator()(const T &a, const T &b) const { return b < a ? b : a; }
};
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int THREADS> struct noyau_cells {
    struct alignas(T) TempStorage {
        unsigned char bytes[THREADS * sizeof(T)];
    };
    NOYAU_UNSEEN static void put(TempStorage &in, int at, const T &value, const void *pc) {
        noyau_touch(in.bytes + at * sizeof(T), sizeof(T), 1, pc);
        __builtin_memcpy(in.bytes + at * sizeof(T), &value, sizeof(T));
    }
    NOYAU_UNSEEN static T take(const TempStorage &in, int at, const void *pc) {
        noyau_touch(in.bytes + at * sizeof(T), sizeof(T), 0, pc);
        T value = T();
        __builtin_memcpy(&value, in.bytes + at * sizeof(T), sizeof(T));
        return value;
    }
};

/* The threads that take part: their ranks among THREADS, and their barrier. */
template <int THREADS> struct noyau_block {
    NOYAU_UNSEEN static int rank() {
        const uint3 at = threadIdx, shape = blockDim;
        return (int)((at.z * shape.y + at.y) * shape.x + at.x);
    }
    NOYAU_UNSEEN static void sync(const void *pc) { noyau_sync(0, 0, pc); }
};
template <int THREADS> struct noyau_part_of_warp {
    NOYAU_UNSEEN static int rank() { return noyau_lane() % THREADS; }
    NOYAU_UNSEEN static void sync(const void *pc) {
        const unsigned all = THREADS == 32 ? 0xffffffffu : (1u << THREADS % 32) - 1;
        noyau_warp(0, all << noyau_lane() / THREADS * THREADS, 0, 0, 32, pc);
    }
};

template <class T, int THREADS, class Team> class noyau_reduction : public noyau_cells<T, THREADS> {
    using cells = noyau_cells<T, THREADS>;
    typename cells::TempStorage &storage;

  public:
    NOYAU_UNSEEN noyau_reduction(typename cells::TempStorage &storage) : storage(storage) {}
    template <class F> NOYAU_CALLED T Reduce(T value, F join, int count = THREADS) {
        const int rank = Team::rank();
        cells::put(storage, rank, value, NOYAU_PC);
        Team::sync(NOYAU_PC);
        for (int i = 1; rank == 0 && i < count && i < THREADS; ++i) value = join(value, cells::take(storage, i, NOYAU_PC));
        return value;
    }
    template <int N, class F> NOYAU_UNSEEN __attribute__((always_inline)) T Reduce(T (&values)[N], F join) {
        T value = values[0];
        for (int i = 1; i < N; ++i) value = join(value, values[i]);
        return Reduce(value, join);
    }
    __attribute__((always_inline)) T Sum(T value) { return Reduce(value, cub::Sum()); }
    __attribute__((always_inline)) T Sum(T value, int count) { return Reduce(value, cub::Sum(), count); }
    template <int N> __attribute__((always_inline)) T Sum(T (&values)[N]) { return Reduce(values, cub::Sum()); }
};

template <class T, int THREADS, class Team> class noyau_scan : public noyau_cells<T, THREADS> {
    using cells = noyau_cells<T, THREADS>;
    typename cells::TempStorage &storage;

    /* The result of the threads before, if there are any; `all`: that of all threads. */
    template <class F> NOYAU_UNSEEN bool before(T value, F join, T &earlier, T &all, const void *pc) {
        const int rank = Team::rank();
        cells::put(storage, rank, value, pc);
        Team::sync(pc);
        all = cells::take(storage, 0, pc);
        for (int i = 1; i < THREADS; ++i) {
            if (i == rank) earlier = all;
            all = join(all, cells::take(storage, i, pc));
        }
        return rank > 0;
    }

  public:
    NOYAU_UNSEEN noyau_scan(typename cells::TempStorage &storage) : storage(storage) {}
    template <class F> NOYAU_CALLED void InclusiveScan(T value, T &result, F join, T &all) {
        T earlier = value, whole = value;
        const bool is_later = before(value, join, earlier, whole, NOYAU_PC);
        result = is_later ? join(earlier, value) : value, all = whole;
    }
    template <class F> NOYAU_CALLED void ExclusiveScan(T value, T &result, T first, F join, T &all) {
        T earlier = value, whole = value;
        const bool is_later = before(value, join, earlier, whole, NOYAU_PC);
        result = is_later ? join(first, earlier) : first, all = whole;
    }
#define NOYAU_WITHOUT_ALL(name, taken, given)                                                                          \
    template <class F> __attribute__((always_inline)) void name taken { T all = value; name given; }
    NOYAU_WITHOUT_ALL(InclusiveScan, (T value, T &result, F join), (value, result, join, all))
    NOYAU_WITHOUT_ALL(ExclusiveScan, (T value, T &result, T first, F join), (value, result, first, join, all))
    __attribute__((always_inline)) void InclusiveSum(T value, T &result) { InclusiveScan(value, result, cub::Sum()); }
    __attribute__((always_inline)) void InclusiveSum(T value, T &result, T &all) { InclusiveScan(value, result, cub::Sum(), all); }
    __attribute__((always_inline)) void ExclusiveSum(T value, T &result) { ExclusiveScan(value, result, T(), cub::Sum()); }
    __attribute__((always_inline)) void ExclusiveSum(T value, T &result, T &all) { ExclusiveScan(value, result, T(), cub::Sum(), all); }
};

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0>
using BlockReduce = noyau_reduction<T, X * Y * Z, noyau_block<X * Y * Z>>;
template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
using BlockScan = noyau_scan<T, X * Y * Z, noyau_block<X * Y * Z>>;
template <class T, int THREADS = 32, int = 0> using WarpReduce = noyau_reduction<T, THREADS, noyau_part_of_warp<THREADS>>;
template <class T, int THREADS = 32, int = 0> using WarpScan = noyau_scan<T, THREADS, noyau_part_of_warp<THREADS>>;
} // namespace cub
#endif
