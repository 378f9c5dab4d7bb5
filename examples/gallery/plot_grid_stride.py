"""Session 5: a grid stride, and how many threads to launch
========================================================

A kernel with a grid stride gives thread t the cells t, t + threads, t + 2 threads and so on: neighbouring threads take
neighbouring cells, and any launch is right, [128, 64] as well as [1, 1]. So the launch can follow the machine instead
of the array. The broken twins take one cell per thread: without a guard they go past the end, and with a guard they end
too early.

How many threads, then? Blocks are a multiple of 32, because threads come in warps. They have 128 to 512 threads, so
that enough warps can wait while others work. Two to four blocks per multiprocessor, or as many as fit, are enough, and
the stride does the rest. A block of 32 threads leaves most of a multiprocessor empty. A grid of n blocks of 256 threads
for n cells is right with a stride, but launches 256 times too many threads.

No GPU is needed: ``python examples/gallery/plot_grid_stride.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import math

import numpy as np

import noyau

try:
    from numba import cuda
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

N = 1_000_000


def by_machine(device):
    return 4 * device.sm_count, 256


def normals(rng, n=1000):
    return rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)


@noyau.op("f32[n] -> f32[n]")
def square(x):
    return x * x


@noyau.op("f32[n], f32[n] -> f32[n]", inputs=normals)
def hypot(x, y):
    return np.hypot(x, y)


# %%
# The kernels
# -----------
# One text, launched in five ways. All five are right; for two of them `check` warns that they would use a GPU badly,
# and with ``--strict`` it fails.
@square.kernel(launch=(128, 64))
@cuda.jit
def strided(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] * x[i]


square.kernel(strided, name="one_thread", launch=(1, 1))
square.kernel(strided, name="launched_by_machine", launch=by_machine)
square.kernel(strided, name="half_empty", launch=lambda n: ((n + 31) // 32, 32))
square.kernel(strided, name="block_a_cell", launch=lambda n: (n, 256))


@hypot.kernel(launch=(128, 64))
@cuda.jit
def lengths(x, y, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = math.hypot(x[i], y[i])


hypot.kernel(lengths, name="one_thread", launch=(1, 1))


# %%
# The broken twins
# ----------------
# 8192 threads are too many for a small array, and 128 are too few for a large one.
@cuda.jit
def no_guard(x, out):
    i = cuda.grid(1)
    out[i] = x[i] * x[i]


@cuda.jit
def no_stride(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * x[i]


def twin() -> noyau.Op:
    broken = noyau.op("f32[n] -> f32[n]", name="square")(square.reference)
    broken.kernel(launch=(128, 64))(no_guard)
    broken.kernel(launch=(2, 64))(no_stride)
    return broken


def main() -> None:
    # %%
    # Right, however it is launched
    # -----------------------------
    for op in (square, hypot):
        found = noyau.check(op, generated=False, budget_s=0.3)
        print(found)
        found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=2))

    # %%
    # A million cells
    # ---------------
    # The kernels that noyau makes of the references run on the processor here; a stride of their own gives each thread
    # a range of cells. The exercise asks for five decimals.
    x, y = normals(np.random.default_rng(0), N)
    np.testing.assert_almost_equal(hypot(x, y), np.hypot(x.astype(np.float64), y), decimal=5)
    np.testing.assert_almost_equal(square(x), x.astype(np.float64) ** 2, decimal=5)
    print(f"{N} cells: equal to five decimals")
    print(noyau.bench(hypot, (x, y), budget_s=0.3))


if __name__ == "__main__":
    main()
