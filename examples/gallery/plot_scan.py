"""Running sums: a scan, whose every cell waits for the one before
================================================================

``np.cumsum`` gives each cell the sum of all cells up to it. One thread needs n steps for a row; the ladder divides a
row among the threads of a block. The first rung doubles the reach of each sum in every step; the second sums
neighbouring cells first, which needs fewer barriers. Two twins: one doubles in a single buffer, where a thread reads a
cell that its neighbour has already changed; the other forgets the earlier cells from round to round.

No GPU is needed: ``python examples/gallery/plot_scan.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import numpy as np

import noyau

try:
    from numba import cuda, float32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

THREADS = 32
CELLS = 3  # of a thread: an odd number, so that the threads of a warp read from different banks


def rows(rng, rows=3, n=250):
    return (rng.standard_normal((rows, n), np.float32),)


@noyau.op("f32[rows, n] -> f32[rows, n]", inputs=rows)
def running_sum(x):
    return np.cumsum(x, axis=1)


# %%
# Sums that double their reach
# ----------------------------
# A block takes a row in rounds, a cell per thread. After one step a cell holds the sum of two cells, after two steps of
# four: five steps for 32 cells, each from one buffer into the other, with a barrier. `before` is the sum of all earlier
# rounds; the last barrier keeps the next round from overwriting cells that a slower thread still reads.
@running_sum.kernel(launch=lambda x: (x.shape[0], THREADS))
@cuda.jit
def by_doubling(x, out):
    sums = cuda.shared.array((2, THREADS), float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    before = float32(0)
    for begin in range(0, x.shape[1], THREADS):
        at = begin + thread
        sums[0, thread] = x[row, at] if at < x.shape[1] else float32(0)
        cuda.syncthreads()
        side, reach = 0, 1
        while reach < THREADS:
            value = sums[side, thread]
            if thread >= reach:
                value += sums[side, thread - reach]
            sums[1 - side, thread] = value
            cuda.syncthreads()
            side, reach = 1 - side, 2 * reach
        if at < x.shape[1]:
            out[row, at] = before + sums[side, thread]
        before += sums[side, THREADS - 1]
        cuda.syncthreads()


# %%
# Neighbouring cells first
# ------------------------
# Each thread adds up a few neighbouring cells, reads the sums of the threads before it, and then goes through its own
# cells again. That takes two barriers for 96 cells, and fewer additions: doubling adds each cell five times.
@running_sum.kernel(launch=lambda x: (x.shape[0], THREADS))
@cuda.jit
def by_neighbours(x, out):
    sums = cuda.shared.array(THREADS, float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    before = float32(0)
    for begin in range(0, x.shape[1], THREADS * CELLS):
        first = begin + thread * CELLS
        last = min(first + CELLS, x.shape[1])
        total = float32(0)
        for at in range(first, last):
            total += x[row, at]
        sums[thread] = total
        cuda.syncthreads()
        own = before
        for other in range(THREADS):
            if other == thread:
                own = before
            before += sums[other]
        cuda.syncthreads()
        for at in range(first, last):
            own += x[row, at]
            out[row, at] = own


# %%
# The broken twins
# ----------------
# `one_buffer` saves half of the memory: whether a thread reads its neighbour's sum of this step or of the one before is
# a matter of luck, and within a warp the luck lasts long. `forgetful` is right for rows of up to 32 cells.
@cuda.jit
def one_buffer(x, out):
    sums = cuda.shared.array(THREADS, float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    before = float32(0)
    for begin in range(0, x.shape[1], THREADS):
        at = begin + thread
        sums[thread] = x[row, at] if at < x.shape[1] else float32(0)
        cuda.syncthreads()
        reach = 1
        while reach < THREADS:
            if thread >= reach:
                sums[thread] += sums[thread - reach]
            cuda.syncthreads()
            reach *= 2
        if at < x.shape[1]:
            out[row, at] = before + sums[thread]
        before += sums[THREADS - 1]
        cuda.syncthreads()


@cuda.jit
def forgetful(x, out):
    sums = cuda.shared.array((2, THREADS), float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    for begin in range(0, x.shape[1], THREADS):
        at = begin + thread
        sums[0, thread] = x[row, at] if at < x.shape[1] else float32(0)
        cuda.syncthreads()
        side, reach = 0, 1
        while reach < THREADS:
            value = sums[side, thread]
            if thread >= reach:
                value += sums[side, thread - reach]
            sums[1 - side, thread] = value
            cuda.syncthreads()
            side, reach = 1 - side, 2 * reach
        if at < x.shape[1]:
            out[row, at] = sums[side, thread]
        cuda.syncthreads()


def twin() -> noyau.Op:
    broken = noyau.op("f32[rows, n] -> f32[rows, n]", inputs=rows, name="running_sum")(running_sum.reference)
    for kernel in (one_buffer, forgetful):
        broken.kernel(launch=lambda x: (x.shape[0], THREADS))(kernel)
    return broken


def main() -> None:
    # %%
    # Right, and named
    # ----------------
    found = noyau.check(running_sum, generated=False, budget_s=0.5)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=2))

    # %%
    # The kernel that noyau makes
    # ---------------------------
    # It has rounds of neighbouring cells too, through shared memory. If a few rows are long, a row goes to many blocks:
    # one launch adds up chunks of it, and in another each block begins with the sums of the blocks before it. Many rows
    # of at most 128 cells have a thread each.
    noyau.check(running_sum, budget_s=0.5).raise_if_bad()
    text = running_sum.source("cuda")
    print(*(line for line in text.splitlines() if "__global__" in line or "__shared__" in line), sep="\n")


if __name__ == "__main__":
    main()
