"""Session 5: the heat equation, and what happens at edges
=======================================================

In a step of the heat equation each cell moves towards the mean of its four neighbours, and cells at the edge stay. It
is the simplest stencil: 4 numbers are read for 1 written, and neighbours read 3 of them too. Three rules make it
parallel:

- read the old array and write a new one: in place, a neighbour may be old or new;
- test for the edge once per row, not once per cell: a loop with a condition in it runs a cell at a time, while the loop
  over the interior runs in vectors;
- on a GPU, load the cells of a block and a ring around them into shared memory, and wait for all threads.

Each broken twin lacks one of them: in place, without a guard, without a barrier.

No GPU is needed: ``python examples/gallery/plot_stencil.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import numpy as np

import noyau

try:
    from numba import cuda, float32, njit, prange
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

TILE = 8
RING = TILE + 2


def plate(rng, h=19, w=21):
    return (rng.standard_normal((h, w), np.float32),)


@noyau.op("f32[h, w] -> f32[h, w]", inputs=plate)
def heat(u):
    v = u.copy()
    v[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return v


def tiles(h, w):
    return ((w + TILE - 1) // TILE, (h + TILE - 1) // TILE), (TILE, TILE)


# %%
# A condition in each cell
# ------------------------
# Right, and slow: every cell tests whether it is at the edge.
@heat.kernel
@njit(parallel=True)
def cell_by_cell(u, out):
    h, w = u.shape
    for i in prange(h):
        for j in range(w):
            if i == 0 or i == h - 1 or j == 0 or j == w - 1:
                out[i, j] = u[i, j]
            else:
                out[i, j] = float32(0.25) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


# %%
# Separate edges
# --------------
# A row at the edge is copied; of all other rows the first and the last cell are copied. The loop between them has no
# condition. A row without cells has no first one: `check` tries that shape too. noyau splits its own loops in this way:
# ``noyau show examples/gallery/plot_stencil.py::heat --stage text``.
@heat.kernel
@njit(parallel=True)
def edges_apart(u, out):
    h, w = u.shape
    for i in prange(h):
        if i == 0 or i == h - 1 or w == 0:
            out[i] = u[i]
        else:
            out[i, 0] = u[i, 0]
            for j in range(1, w - 1):
                out[i, j] = float32(0.25) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
            out[i, w - 1] = u[i, w - 1]


# %%
# On a GPU: a tile and a ring around it
# -------------------------------------
# A block reads each number once. The threads of its first row and column fetch the ring as well.
@heat.kernel(launch=tiles)
@cuda.jit
def in_tiles(u, out):
    tile = cuda.shared.array((RING, RING), float32)
    j, i = cuda.grid(2)
    h, w = u.shape
    for down in range(cuda.threadIdx.y, RING, TILE):
        for across in range(cuda.threadIdx.x, RING, TILE):
            row = min(max(cuda.blockIdx.y * TILE + down - 1, 0), h - 1)
            column = min(max(cuda.blockIdx.x * TILE + across - 1, 0), w - 1)
            tile[down, across] = u[row, column]
    cuda.syncthreads()
    y, x = cuda.threadIdx.y + 1, cuda.threadIdx.x + 1
    if i < h and j < w:
        if i == 0 or i == h - 1 or j == 0 or j == w - 1:
            out[i, j] = tile[y, x]
        else:
            out[i, j] = float32(0.25) * (tile[y - 1, x] + tile[y + 1, x] + tile[y, x - 1] + tile[y, x + 1])


# %%
# The broken twins
# ----------------
# In place: half of the neighbours are already of the next step. Without a guard: cells beside the array. Without a
# barrier: the ring is read before it is written.
@njit(parallel=True)
def in_place(u, out):
    out[:] = u
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            out[i, j] = float32(0.25) * (out[i - 1, j] + out[i + 1, j] + out[i, j - 1] + out[i, j + 1])


@cuda.jit
def no_guard(u, out):
    j, i = cuda.grid(2)
    if i < u.shape[0] and j < u.shape[1]:
        out[i, j] = float32(0.25) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


@cuda.jit
def no_barrier(u, out):
    tile = cuda.shared.array((RING, RING), float32)
    j, i = cuda.grid(2)
    h, w = u.shape
    for down in range(cuda.threadIdx.y, RING, TILE):
        for across in range(cuda.threadIdx.x, RING, TILE):
            row = min(max(cuda.blockIdx.y * TILE + down - 1, 0), h - 1)
            column = min(max(cuda.blockIdx.x * TILE + across - 1, 0), w - 1)
            tile[down, across] = u[row, column]
    y, x = cuda.threadIdx.y + 1, cuda.threadIdx.x + 1
    if i < h and j < w:
        if i == 0 or i == h - 1 or j == 0 or j == w - 1:
            out[i, j] = tile[y, x]
        else:
            out[i, j] = float32(0.25) * (tile[y - 1, x] + tile[y + 1, x] + tile[y, x - 1] + tile[y, x + 1])


def twin() -> noyau.Op:
    broken = noyau.op("f32[h, w] -> f32[h, w]", name="heat", inputs=plate)(heat.reference)
    broken.kernel(in_place)
    broken.kernel(launch=tiles)(no_guard)
    broken.kernel(launch=tiles)(no_barrier)
    return broken


def main() -> None:
    # %%
    # The verdicts of check
    # ---------------------
    found = noyau.check(heat, generated=False, budget_s=0.5)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=1))

    # %%
    # The clock
    # ---------
    # A thousand steps are a thousand calls. Two arrays take turns, so that no array is allocated.
    print(noyau.bench(heat, sizes={"h": 512, "w": 512}, budget_s=0.3))
    old = np.zeros((512, 512), np.float32)
    old[0] = 100
    new = old.copy()
    for _ in range(1000):
        heat(old, out=new)
        old, new = new, old
    print(f"after 1000 steps, ten rows below the edge: {old[10, 256]:.1f} of 100 degrees")


if __name__ == "__main__":
    main()
