/* Cooperative groups: the grid, blocks, tiles of a warp, and lanes that are active together. */
#ifndef NOYAU_GROUPS_H
#define NOYAU_GROUPS_H
#include "noyau_cuda.h"

extern "C" {
void noyau_phase_open(void *barrier, unsigned expected);
uint64_t noyau_phase_arrive(void *barrier, unsigned many, unsigned leave);
int noyau_phase_is_over(const void *barrier, uint64_t phase);
void noyau_copy_until(void *to, const void *from, int64_t bytes, const void *barrier, const void *pc);
void noyau_phase_wait(const void *barrier, uint64_t phase, const void *pc);
}

namespace cooperative_groups {
/* Any group: lanes of a mask, a whole block, or the grid. */
struct thread_group {
    enum noyau_kind { LANES, BLOCK, THE_GRID } kind;
    unsigned mask;
    NOYAU_UNSEEN thread_group(noyau_kind kind, unsigned mask = 0) : kind(kind), mask(mask) {}
    NOYAU_CALLED void sync() const {
        if (kind == THE_GRID) noyau_sync_grid(NOYAU_PC);
        else if (kind == BLOCK) noyau_sync(0, 0, NOYAU_PC);
        else if (mask & (mask - 1)) noyau_warp(0, mask, 0, 0, 32, NOYAU_PC);
    }
    NOYAU_UNSEEN unsigned long long size() const {
        const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
        if (kind == LANES) return (unsigned)__builtin_popcount(mask);
        return kind == BLOCK ? threads : (unsigned long long)threads * gridDim.x * gridDim.y * gridDim.z;
    }
    NOYAU_UNSEEN unsigned long long num_threads() const { return size(); }
    NOYAU_UNSEEN unsigned long long thread_rank() const {
        const unsigned own = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        if (kind == LANES) return (unsigned)__builtin_popcount(mask & ((1u << own % 32) - 1));
        const unsigned long long block = blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
        return kind == BLOCK ? own : block * (blockDim.x * blockDim.y * blockDim.z) + own;
    }
    static bool is_valid() { return true; }
};

/* The memory of tiles of several warps: a barrier of each tile, a value of each thread. */
template <unsigned Threads = 1024> struct block_tile_memory {
    uint64_t words[Threads / 64 + 1 + Threads];
};

struct thread_block : thread_group {
    struct arrival_token {};
    uint64_t *barriers = nullptr, *values = nullptr;
    NOYAU_UNSEEN thread_block() : thread_group(BLOCK) {}
    NOYAU_UNSEEN static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    NOYAU_UNSEEN static unsigned num_threads() { return size(); }
    NOYAU_UNSEEN static unsigned thread_rank() {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }
    static arrival_token barrier_arrive() { return {}; }
    NOYAU_CALLED static void barrier_wait(arrival_token &&) { noyau_sync(0, 0, NOYAU_PC); }
};
NOYAU_UNSEEN static inline thread_block this_thread_block() { return {}; }
template <unsigned Threads> NOYAU_UNSEEN static inline thread_block this_thread_block(block_tile_memory<Threads> &memory) {
    thread_block made;
    made.barriers = memory.words, made.values = memory.words + Threads / 64 + 1;
    return made;
}

struct grid_group : thread_group {
    NOYAU_UNSEEN grid_group() : thread_group(THE_GRID) {}
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
    static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    static unsigned long long block_rank() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
};
NOYAU_UNSEEN static inline grid_group this_grid() { return {}; }

/* Lanes of a warp, by rank. */
struct noyau_lanes : thread_group {
    NOYAU_UNSEEN noyau_lanes(unsigned mask) : thread_group(LANES, mask) {}
    NOYAU_UNSEEN unsigned size() const { return (unsigned)__builtin_popcount(mask); }
    NOYAU_UNSEEN unsigned num_threads() const { return size(); }
    NOYAU_UNSEEN unsigned thread_rank() const { return (unsigned)thread_group::thread_rank(); }
    NOYAU_UNSEEN unsigned lane_of(unsigned rank) const {
        unsigned left = mask;
        while (rank-- && left & (left - 1)) left &= left - 1;
        return (unsigned)__builtin_ctz(left);
    }
    /* The value of the thread of a rank; values of any size are sent in pieces of eight bytes. */
    template <class T> NOYAU_UNSEEN T of(T value, unsigned rank, const void *pc) const {
        T made = value;
        const unsigned lane = lane_of(rank % size());
        for (size_t at = 0; at < sizeof(T); at += 8) {
            uint64_t word = 0;
            const size_t bytes = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
            __builtin_memcpy(&word, (const char *)&value + at, bytes);
            word = noyau_gather(mask, word, pc)[lane];
            __builtin_memcpy((char *)&made + at, &word, bytes);
        }
        return made;
    }
    template <class T> NOYAU_CALLED T shfl(T value, int rank) const { return of(value, (unsigned)rank, NOYAU_PC); }
    template <class T> NOYAU_CALLED T shfl_up(T value, unsigned by) const {
        return of(value, thread_rank() < by ? thread_rank() : thread_rank() - by, NOYAU_PC);
    }
    template <class T> NOYAU_CALLED T shfl_down(T value, unsigned by) const {
        return of(value, thread_rank() + by < size() ? thread_rank() + by : thread_rank(), NOYAU_PC);
    }
    template <class T> NOYAU_CALLED T shfl_xor(T value, unsigned by) const {
        return of(value, (thread_rank() ^ by) < size() ? thread_rank() ^ by : thread_rank(), NOYAU_PC);
    }
    NOYAU_CALLED unsigned ballot(int value) const {
        const uint64_t *values = noyau_gather(mask, value != 0, NOYAU_PC);
        unsigned votes = 0, rank = 0;
        for (unsigned lane = 0; lane < 32; ++lane)
            if (mask >> lane & 1) votes |= (unsigned)values[lane] << rank++;
        return votes;
    }
    NOYAU_CALLED int any(int value) const { return noyau_warp(5, mask, value != 0, 0, 32, NOYAU_PC) != 0; }
    NOYAU_CALLED int all(int value) const { return noyau_warp(5, mask, value == 0, 0, 32, NOYAU_PC) == 0; }
    template <class T> NOYAU_CALLED unsigned match_any(T value) const {
        return (unsigned)noyau_warp(6, mask, noyau_bits(value), 0, 32, NOYAU_PC);
    }
};

struct coalesced_group : noyau_lanes {
    NOYAU_UNSEEN coalesced_group(unsigned mask) : noyau_lanes(mask) {}
    static unsigned meta_group_rank() { return 0; }
    static unsigned meta_group_size() { return 1; }
};
NOYAU_CALLED static inline coalesced_group coalesced_threads() { return {noyau_active(NOYAU_PC)}; }

template <unsigned Size, class Parent = void, bool IsWide = (Size > 32)> struct thread_block_tile : noyau_lanes {
    static_assert((Size & (Size - 1)) == 0, "tiles of a power of two");
    NOYAU_UNSEEN static unsigned mask_here() {
        const unsigned own = thread_block::thread_rank(), first = own & ~31u;
        const unsigned left = thread_block::size() - first, lanes = left < 32 ? (1u << left) - 1 : 0xffffffffu;
        return (Size == 32 ? 0xffffffffu : ((1u << (Size & 31)) - 1) << (own % 32 & ~(Size - 1))) & lanes;
    }
    NOYAU_UNSEEN thread_block_tile() : noyau_lanes(mask_here()) {}
    template <class Other> NOYAU_UNSEEN thread_block_tile(const thread_block_tile<Size, Other> &other) : noyau_lanes(other.mask) {}
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    NOYAU_UNSEEN static unsigned thread_rank() { return thread_block::thread_rank() % Size; }
    NOYAU_UNSEEN static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
    NOYAU_UNSEEN static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
    template <class T> NOYAU_CALLED T shfl(T value, int rank) const { return this->of(value, (unsigned)rank % Size, NOYAU_PC); }
    template <class T> NOYAU_CALLED T shfl_up(T value, unsigned by) const {
        return this->of(value, thread_rank() < by ? thread_rank() : thread_rank() - by, NOYAU_PC);
    }
    template <class T> NOYAU_CALLED T shfl_down(T value, unsigned by) const {
        return this->of(value, thread_rank() + by < Size ? thread_rank() + by : thread_rank(), NOYAU_PC);
    }
    template <class T> NOYAU_CALLED T shfl_xor(T value, unsigned by) const {
        return this->of(value, (thread_rank() ^ by) < Size ? thread_rank() ^ by : thread_rank(), NOYAU_PC);
    }
};
/* A tile of several warps, in the memory that the block has for them, or in a reserved one (of 8.0 and later). */
template <class Group> NOYAU_UNSEEN static inline thread_block with_memory(const Group &group) {
    __shared__ block_tile_memory<> reserved;
    return group.barriers ? (thread_block)group : this_thread_block(reserved);
}
template <unsigned Size, class Parent> struct thread_block_tile<Size, Parent, true> {
    uint64_t *barrier, *values;
    NOYAU_UNSEEN thread_block_tile(const thread_block &block, const void *pc)
        : barrier(block.barriers + meta_group_rank()), values(block.values + meta_group_rank() * Size) {
        const unsigned left = thread_block::size() - meta_group_rank() * Size;
        if (!thread_rank()) noyau_phase_open(barrier, left < Size ? left : Size);
        noyau_sync(0, 0, pc);
    }
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    NOYAU_UNSEEN static unsigned thread_rank() { return thread_block::thread_rank() % Size; }
    NOYAU_UNSEEN static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
    NOYAU_UNSEEN static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
    NOYAU_UNSEEN void meet(const void *pc) const { noyau_phase_wait(barrier, noyau_phase_arrive(barrier, 1, 0), pc); }
    NOYAU_CALLED void sync() const { meet(NOYAU_PC); }
    /* Folds the values of the threads of these ranks. */
    template <class T, class F> NOYAU_UNSEEN T fold(T value, F f, unsigned from, unsigned to, const void *pc) const {
        const unsigned left = thread_block::size() - meta_group_rank() * Size, last = left < Size ? left - 1 : Size - 1;
        values[thread_rank()] = noyau_bits(value);
        meet(pc);
        T made = noyau_value<T>(values[from]);
        for (unsigned rank = from + 1; rank <= to && rank <= last; ++rank) made = f(made, noyau_value<T>(values[rank]));
        meet(pc);
        return made;
    }
    template <class T> NOYAU_CALLED T shfl(T value, unsigned rank) const {
        return fold(value, [](T x, T) { return x; }, rank % Size, rank % Size, NOYAU_PC);
    }
    NOYAU_CALLED int any(int value) const { return fold(value != 0, [](int x, int y) { return x | y; }, 0, Size, NOYAU_PC); }
    NOYAU_CALLED int all(int value) const { return fold(value != 0, [](int x, int y) { return x & y; }, 0, Size, NOYAU_PC); }
};
template <unsigned Size, class Group> NOYAU_CALLED static inline thread_block_tile<Size, Group> tiled_partition(const Group &group) {
    if constexpr (Size > 32) return {with_memory(group), NOYAU_PC};
    else return {};
}
NOYAU_UNSEEN static inline thread_group tiled_partition(const thread_group &parent, unsigned size) {
    const unsigned own = thread_block::thread_rank() % 32;
    if (parent.kind == thread_group::BLOCK) {
        const unsigned first = thread_block::thread_rank() & ~31u, left = thread_block::size() - first;
        const unsigned lanes = left < 32 ? (1u << left) - 1 : 0xffffffffu;
        return {thread_group::LANES, (size >= 32 ? 0xffffffffu : ((1u << size) - 1) << (own / size * size)) & lanes};
    }
    unsigned mask = 0, rank = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        if (parent.mask >> lane & 1 && rank++ / size == parent.thread_rank() / size) mask |= 1u << lane;
    return {thread_group::LANES, mask};
}
NOYAU_UNSEEN static inline thread_block_tile<1> this_thread() { return {}; }
template <class T> NOYAU_CALLED static coalesced_group labeled_partition(const noyau_lanes &group, T label) {
    return {(unsigned)noyau_warp(6, group.mask, noyau_bits(label), 0, 32, NOYAU_PC)};
}
NOYAU_CALLED static inline coalesced_group binary_partition(const noyau_lanes &group, bool label) {
    return {(unsigned)noyau_warp(6, group.mask, label, 0, 32, NOYAU_PC)};
}
template <class Group> __attribute__((always_inline)) static inline void sync(const Group &group) { group.sync(); }
template <class Group> NOYAU_UNSEEN static inline auto thread_rank(const Group &group) { return group.thread_rank(); }
template <class Group> NOYAU_UNSEEN static inline auto group_size(const Group &group) { return group.size(); }

template <class T> struct plus { T operator()(T x, T y) const { return x + y; } };
template <class T> struct less { T operator()(T x, T y) const { return y < x ? y : x; } };
template <class T> struct greater { T operator()(T x, T y) const { return x < y ? y : x; } };
template <class T> struct bit_and { T operator()(T x, T y) const { return x & y; } };
template <class T> struct bit_or { T operator()(T x, T y) const { return x | y; } };
template <class T> struct bit_xor { T operator()(T x, T y) const { return x ^ y; } };

/* Folds the values of a group's threads, from the first rank to the last one. */
template <class T, class F>
NOYAU_UNSEEN T noyau_fold(const noyau_lanes &group, T value, F f, unsigned to, const void *pc) {
    T made = value;
    const uint64_t *values = nullptr;
    if constexpr (sizeof(T) <= 8) values = noyau_gather(group.mask, noyau_bits(value), pc);
    for (unsigned rank = 0; rank < group.size(); ++rank) {
        T other = value;
        if constexpr (sizeof(T) <= 8) other = noyau_value<T>(values[group.lane_of(rank)]);
        else other = group.of(value, rank, pc);
        if (rank <= to) made = rank ? f(made, other) : other;
    }
    return made;
}
template <unsigned Size, class Parent, class T, class F>
NOYAU_UNSEEN T noyau_fold(const thread_block_tile<Size, Parent, true> &group, T value, F f, unsigned to, const void *pc) {
    return group.fold(value, f, 0, to, pc);
}
template <class Group, class T, class F> NOYAU_CALLED T reduce(const Group &group, T value, F f) {
    return noyau_fold(group, value, f, ~0u, NOYAU_PC);
}
template <class Group, class T, class F> NOYAU_CALLED T inclusive_scan(const Group &group, T value, F f) {
    return noyau_fold(group, value, f, group.thread_rank(), NOYAU_PC);
}
template <class Group, class T> NOYAU_CALLED T inclusive_scan(const Group &group, T value) {
    return noyau_fold(group, value, plus<T>(), group.thread_rank(), NOYAU_PC);
}
template <class Group, class T, class F> NOYAU_CALLED T exclusive_scan(const Group &group, T value, F f) {
    const T all = noyau_fold(group, value, f, group.thread_rank() ? group.thread_rank() - 1 : 0, NOYAU_PC);
    return group.thread_rank() ? all : T();
}
template <class Group, class T> NOYAU_CALLED T exclusive_scan(const Group &group, T value) {
    const T all = noyau_fold(group, value, plus<T>(), group.thread_rank() ? group.thread_rank() - 1 : 0, NOYAU_PC);
    return group.thread_rank() ? all : T();
}

/* Copies, of which each thread begins its part, one group of copies per call. */
template <class Group, class T> NOYAU_CALLED void memcpy_async(const Group &group, T *to, const T *from, size_t bytes) {
    for (size_t i = group.thread_rank(); i < bytes / sizeof(T); i += group.size()) noyau_copy_begin(to + i, from + i, sizeof(T), 0, NOYAU_PC);
    noyau_copy_commit();
}
template <unsigned Left, class Group> __attribute__((always_inline)) static inline void wait_prior(const Group &group) {
    noyau_copy_wait(Left);
    group.sync();
}
template <class Group> __attribute__((always_inline)) static inline void wait(const Group &group) { wait_prior<0>(group); }
template <class Group, class F> static inline void invoke_one(const Group &group, F f) {
    if (group.thread_rank() == 0) f();
}
} // namespace cooperative_groups
#endif
