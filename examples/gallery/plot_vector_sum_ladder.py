"""Session 5: the sum of a vector, up a ladder of reductions
=========================================================

This is the classic of M. Harris ("Optimizing Parallel Reduction in CUDA"): a block adds up its numbers in shared memory
in log2(threads) steps, with a barrier after each. Each rung wastes less than the one before it: idle threads, bank
conflicts, loads, barriers. All are right for any size, and for blocks whose size is no power of two. The broken twin
has no barrier between two steps: it is right if one warp does all the work, or by luck.

No GPU is needed: ``python examples/gallery/plot_vector_sum_ladder.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import numpy as np

import noyau

try:
    from numba import cuda, float32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

BLOCK = 96  # threads; a multiple of 32 that is no power of two
WARPS = BLOCK // 32


def inputs(rng, n=1000):
    """Numbers from 0 to 1: their sum has rounding errors, and no cancellation."""
    return (rng.random(n, np.float32),)


@noyau.op("f32[n] -> f32[1]", inputs=inputs)
def total(x):
    return x.sum(keepdims=True)


def blocks(n):
    return (n + BLOCK - 1) // BLOCK, BLOCK


def half_as_many(n):
    return (n + 2 * BLOCK - 1) // (2 * BLOCK), BLOCK


# %%
# 1. Modulo
# ---------
# In step s, each thread whose number is a multiple of 2s adds its neighbour s further on. Working threads are spread
# over all warps, so that each warp runs in each step for one or two of its lanes.
@total.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def modulo(x, out):
    own = cuda.shared.array(BLOCK, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    own[thread] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    step = 1
    while step < BLOCK:
        if thread % (2 * step) == 0 and thread + step < BLOCK:
            own[thread] += own[thread + step]
        cuda.syncthreads()
        step *= 2
    if thread == 0:
        cuda.atomic.add(out, 0, own[0])


# %%
# 2. Sequential
# -------------
# The first threads add the numbers of the last ones: whole warps work or rest, and neighbours read neighbouring banks.
# An odd number of cells leaves the middle one in place, so any block size works. The launch gives the bytes of shared
# memory, so that one text serves all sizes.
def in_blocks_of(threads):
    return lambda n: ((n + threads - 1) // threads, threads, 0, 4 * threads)


@total.kernel(launch=in_blocks_of(BLOCK), init={"out": 0})
@cuda.jit
def sequential(x, out):
    own = cuda.shared.array(0, float32)
    thread, i, live = cuda.threadIdx.x, cuda.grid(1), cuda.blockDim.x
    own[thread] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    while live > 1:
        half = (live + 1) // 2
        if thread + half < live:
            own[thread] += own[thread + half]
        cuda.syncthreads()
        live = half
    if thread == 0:
        cuda.atomic.add(out, 0, own[0])


total.kernel(sequential, name="in_blocks_of_50", launch=in_blocks_of(50), init={"out": 0})


# %%
# 3. The first addition during the load
# -------------------------------------
# Half of the threads of the rung before only load. With half as many blocks, each thread adds two numbers as it loads
# them.
@total.kernel(launch=half_as_many, init={"out": 0})
@cuda.jit
def first_add(x, out):
    own = cuda.shared.array(BLOCK, float32)
    thread = cuda.threadIdx.x
    i = cuda.blockIdx.x * 2 * BLOCK + thread
    mine = x[i] if i < x.size else float32(0)
    if i + BLOCK < x.size:
        mine += x[i + BLOCK]
    own[thread] = mine
    cuda.syncthreads()
    live = BLOCK
    while live > 1:
        half = (live + 1) // 2
        if thread + half < live:
            own[thread] += own[thread + half]
        cuda.syncthreads()
        live = half
    if thread == 0:
        cuda.atomic.add(out, 0, own[0])


# %%
# 4. Unrolled, with shuffles
# --------------------------
# Within a warp neither a barrier nor memory is needed: lanes exchange their registers. One barrier is left, for the
# sums of the warps. Each thread first adds up its cells by a grid stride, so that the launch does not grow.
@total.kernel(launch=lambda device: (2 * device.sm_count, BLOCK), init={"out": 0})
@cuda.jit
def shuffles(x, out):
    own = cuda.shared.array(WARPS, float32)
    mine = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine += x[i]
    mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16)
    mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 8)
    mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 4)
    mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 2)
    mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 1)
    if cuda.laneid == 0:
        own[cuda.threadIdx.x // 32] = mine
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        for warp in range(1, WARPS):
            mine += own[warp]
        cuda.atomic.add(out, 0, mine)


# %%
# The broken twin
# ---------------
# The sequential rung without the barrier in its loop. A thread may add an old number.
@cuda.jit
def no_barrier(x, out):
    own = cuda.shared.array(BLOCK, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    own[thread] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    live = BLOCK
    while live > 1:
        half = (live + 1) // 2
        if thread + half < live:
            own[thread] += own[thread + half]
        live = half
    if thread == 0:
        cuda.atomic.add(out, 0, own[0])


def twin() -> noyau.Op:
    broken = noyau.op("f32[n] -> f32[1]", inputs=inputs, name="total")(total.reference)
    broken.kernel(launch=blocks, init={"out": 0})(no_barrier)
    return broken


def main() -> None:
    # %%
    # Right, for any size
    # -------------------
    # Each rung ends with an atomic per block, in the order in which blocks end: the last bits may differ from run to
    # run, and the report says so. To avoid that, let each block write its sum, and let one more block add these up.
    found = noyau.check(total, generated=False, budget_s=0.5)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=2))

    # %%
    # The clock
    # ---------
    # Here for the processor's kernels: if memory is as fast as the sum, no further rung gains anything.
    print(noyau.bench(total, sizes={"n": [1 << 14, 1 << 20]}, budget_s=0.3))


if __name__ == "__main__":
    main()
