"""Session 5: a transpose, and the banks of shared memory
======================================================

Threads of a warp are quick if they read and write neighbouring cells. In a transpose either the reads or the writes are
neighbours, not both. So a tile goes through shared memory: it is read in rows, and written in rows too. Within shared
memory a column is then read, whose 32 cells lie in one bank and wait for each other; one unused column more puts them
into 32 banks. The broken twin does not wait until the tile is full.

No GPU is needed: ``python examples/gallery/plot_transpose.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

import noyau

try:
    from numba import cuda, float32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

TILE = 32
ROWS = 8  # of threads: each moves four cells
BANKS = 32  # of shared memory, four bytes wide each


def numbers(rng, m=40, n=50):
    return (rng.standard_normal((m, n), np.float32),)


@noyau.op("f32[m, n] -> f32[n, m]", inputs=numbers)
def transposed(x):
    return x.T.copy()


def tiles(m, n):
    return ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE), (TILE, ROWS)


# %%
# Naive
# -----
# A warp reads 32 neighbours, and writes 32 cells that lie m cells apart: 32 transactions instead of one.
@transposed.kernel(launch=tiles)
@cuda.jit
def naive(x, out):
    column = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    first = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for row in range(first, min(first + TILE, x.shape[0]), ROWS):
        if column < x.shape[1]:
            out[column, row] = x[row, column]


# %%
# Tiled
# -----
# The block exchanges its coordinates in the grid; each thread keeps its place within the tile. A thread writes a cell
# that another one read, so all threads, also those outside the matrix, reach a barrier in between.
@transposed.kernel(launch=tiles)
@cuda.jit
def tiled(x, out):
    tile = cuda.shared.array((TILE, TILE), float32)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    left, top = cuda.blockIdx.x * TILE, cuda.blockIdx.y * TILE
    for step in range(down, TILE, ROWS):
        if top + step < x.shape[0] and left + across < x.shape[1]:
            tile[step, across] = x[top + step, left + across]
    cuda.syncthreads()
    for step in range(down, TILE, ROWS):
        if left + step < x.shape[1] and top + across < x.shape[0]:
            out[left + step, top + across] = tile[across, step]


# %%
# Padded
# ------
# The same tile, 33 cells wide.
@transposed.kernel(launch=tiles)
@cuda.jit
def padded(x, out):
    tile = cuda.shared.array((TILE, TILE + 1), float32)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    left, top = cuda.blockIdx.x * TILE, cuda.blockIdx.y * TILE
    for step in range(down, TILE, ROWS):
        if top + step < x.shape[0] and left + across < x.shape[1]:
            tile[step, across] = x[top + step, left + across]
    cuda.syncthreads()
    for step in range(down, TILE, ROWS):
        if left + step < x.shape[1] and top + across < x.shape[0]:
            out[left + step, top + across] = tile[across, step]


def conflict(width: int) -> int:
    """The number of lanes of a warp that wait in one bank when they read a column of a tile with `width` cells in a
    row."""
    return max(Counter(lane * width % BANKS for lane in range(32)).values())


# %%
# The broken twin
# ---------------
# Without the barrier a thread may write a cell of the tile before its owner has read it in.
@cuda.jit
def no_barrier(x, out):
    tile = cuda.shared.array((TILE, TILE + 1), float32)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    left, top = cuda.blockIdx.x * TILE, cuda.blockIdx.y * TILE
    for step in range(down, TILE, ROWS):
        if top + step < x.shape[0] and left + across < x.shape[1]:
            tile[step, across] = x[top + step, left + across]
    for step in range(down, TILE, ROWS):
        if left + step < x.shape[1] and top + across < x.shape[0]:
            out[left + step, top + across] = tile[across, step]


def twin() -> noyau.Op:
    broken = noyau.op("f32[m, n] -> f32[n, m]", inputs=numbers, name="transposed")(transposed.reference)
    broken.kernel(launch=tiles)(no_barrier)
    return broken


def main() -> None:
    # %%
    # Banks
    # -----
    # Cell k of shared memory lies in bank k % 32.
    for width in (TILE, TILE + 1):
        print(f"a column of a tile {width} cells wide: {conflict(width)} of a warp's 32 lanes in one bank")

    # %%
    # Right, and named
    # ----------------
    found = noyau.check(transposed, generated=False, budget_s=0.5)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=2))

    # %%
    # The clock
    # ---------
    # On a processor caches replace shared memory, and the kernel of noyau works tile by tile as well.
    print(noyau.bench(transposed, sizes={"m": 1024, "n": 1000}, budget_s=0.3))


if __name__ == "__main__":
    main()
