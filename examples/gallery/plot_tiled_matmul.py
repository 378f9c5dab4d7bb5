"""Session 5: a matrix product in tiles
====================================

In the naive kernel each thread reads a row of one matrix and a column of the other, and its neighbours read the same
numbers again. With tiles, a block reads each number once for all of its threads: 8 times less from memory. Each tile
has two barriers: the first ensures that the tile is full, the second that no thread needs it any more. The broken twin
has no second barrier, and is right on any matrix that fits into one tile.

No GPU is needed: ``python examples/gallery/plot_tiled_matmul.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import numpy as np

import noyau

try:
    from numba import cuda, float32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

TILE = 8


def numbers(rng, m=17, k=20, n=9):
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


@noyau.op("f32[m, k], f32[k, n] -> f32[m, n]", inputs=numbers)
def product(a, b):
    return a @ b


def tiles(m, n):
    return ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE), (TILE, TILE)


# %%
# Naive
# -----
# A thread computes one cell of the result, with 2 k loads for k products and sums: it waits for memory.
@product.kernel(launch=tiles)
@cuda.jit
def naive(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(a.shape[1]):
            total += a[row, i] * b[i, column]
        out[row, column] = total


# %%
# Tiled
# -----
# Sizes need not be multiples of a tile. Cells outside the matrix are 0 in a tile, because 0 adds nothing. Threads
# outside help to load and reach each barrier, but write nothing.
@product.kernel(launch=tiles)
@cuda.jit
def tiled(a, b, out):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        inside = row < a.shape[0] and start + across < a.shape[1]
        left[down, across] = a[row, start + across] if inside else float32(0)
        inside = start + down < b.shape[0] and column < b.shape[1]
        right[down, across] = b[start + down, column] if inside else float32(0)
        cuda.syncthreads()
        for i in range(TILE):
            total += left[down, i] * right[i, across]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


# %%
# The broken twin
# ---------------
# A quick warp loads the next tile over numbers that a slow warp still multiplies.
@cuda.jit
def one_barrier(a, b, out):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        inside = row < a.shape[0] and start + across < a.shape[1]
        left[down, across] = a[row, start + across] if inside else float32(0)
        inside = start + down < b.shape[0] and column < b.shape[1]
        right[down, across] = b[start + down, column] if inside else float32(0)
        cuda.syncthreads()
        for i in range(TILE):
            total += left[down, i] * right[i, across]
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


def twin() -> noyau.Op:
    broken = noyau.op("f32[m, k], f32[k, n] -> f32[m, n]", inputs=numbers, name="product")(product.reference)
    broken.kernel(launch=tiles)(one_barrier)
    return broken


def main() -> None:
    # %%
    # Right, for odd sizes too
    # ------------------------
    found = noyau.check(product, generated=False, budget_s=0.5)
    print(found)
    found.raise_if_bad()

    # %%
    # The smallest size that shows it
    # -------------------------------
    # The report of the twin names a k of more than one tile: with one tile, no thread loads a second time.
    print(noyau.check(twin(), generated=False, budget_s=2))

    # %%
    # The clock
    # ---------
    # On a processor the reference is BLAS, which has tiles for each level of cache.
    print(noyau.bench(product, sizes={"m": 255, "k": 257, "n": 253}, budget_s=0.3))


if __name__ == "__main__":
    main()
