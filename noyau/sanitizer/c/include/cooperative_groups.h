/* Cooperative groups: blocks, and tiles of a warp. A group of the whole grid is not here. */
#ifndef NOYAU_GROUPS_H
#define NOYAU_GROUPS_H
#include "noyau_cuda.h"

namespace cooperative_groups {
struct thread_block {
    NOYAU_CALLED static void sync() { noyau_sync(0, 0, NOYAU_PC); }
    static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned num_threads() { return size(); }
    static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
};
static inline thread_block this_thread_block() { return {}; }

template <unsigned Size> struct thread_block_tile {
    static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "tiles of up to 32 threads, a power of two");
    static unsigned mask() {
        return Size == 32 ? 0xffffffffu : ((1u << (Size & 31)) - 1) << (thread_block::thread_rank() % 32 & ~(Size - 1));
    }
    NOYAU_CALLED void sync() const { noyau_warp(0, mask(), 0, 0, Size, NOYAU_PC); }
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return thread_block::thread_rank() % Size; }
    static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
    static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
    template <class T> NOYAU_CALLED T shfl(T value, int lane) const {
        return noyau_value<T>(noyau_warp(1, mask(), noyau_bits(value), lane, Size, NOYAU_PC));
    }
    template <class T> NOYAU_CALLED T shfl_up(T value, unsigned by) const {
        return noyau_value<T>(noyau_warp(2, mask(), noyau_bits(value), (int)by, Size, NOYAU_PC));
    }
    template <class T> NOYAU_CALLED T shfl_down(T value, unsigned by) const {
        return noyau_value<T>(noyau_warp(3, mask(), noyau_bits(value), (int)by, Size, NOYAU_PC));
    }
    template <class T> NOYAU_CALLED T shfl_xor(T value, int by) const {
        return noyau_value<T>(noyau_warp(4, mask(), noyau_bits(value), by, Size, NOYAU_PC));
    }
};
template <unsigned Size, class Group> static inline thread_block_tile<Size> tiled_partition(const Group &) { return {}; }
} // namespace cooperative_groups
#endif
