"""Exam: a checker for kernels that others, or machines, wrote
===========================================================

A benchmark of generated kernels calls each kernel a few times, and passes it if most cells are close to those of a
reference. That is sound for a right kernel. It also passes a kernel that reads past its row, a kernel whose threads
race and did not meet this time, one that leaves the last seven cells unwritten, and one that returns an earlier result.
`check` watches the accesses of a kernel, and judges its values on inputs that the kernel has not seen. No GPU is
needed.

Run it: ``python examples/gallery/plot_kernels_of_others.py`` (needs ``pip install 'noyau-kernels[numba]'``;
the last part a C compiler and ``noyau-kernels[check-c]``). Files of others are checked as they are:
``noyau check solution.cu``, ``noyau check definition.json --solution solution.json``,
``noyau check task/ --solution submission.py --gate``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import noyau
from noyau.sanitizer.routes import call

try:
    from numba import cuda, float32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

BLOCK = 64


def numbers(rng, rows=1, n=5):
    return (rng.standard_normal((rows, n), np.float32),)


@noyau.op("f32[rows, n] -> out: f32[rows, n]", inputs=numbers)
def scaled(x):
    """Divide each row by its largest absolute value, as before rounding to eight bits."""
    return x / np.abs(x).max(1, keepdims=True, initial=1)


# %%
# From plain to fast
# ------------------
# With one thread per row, neighbouring threads read cells that lie a row apart. With one block per row they read
# neighbouring cells: the threads merge one maximum, wait for each other, and divide.
@scaled.kernel(launch=lambda rows: ((rows + BLOCK - 1) // BLOCK, BLOCK))
@cuda.jit
def by_threads(x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        peak = float32(1)
        for j in range(x.shape[1]):
            peak = max(peak, abs(x[i, j]))
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] / peak


def blocks(rows):
    return rows, BLOCK


@cuda.jit(device=True)
def merge(x, i, peak):
    if cuda.threadIdx.x == 0:
        peak[0] = 1
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, x.shape[1], BLOCK):
        cuda.atomic.max(peak, 0, abs(x[i, j]))
    cuda.syncthreads()


@scaled.kernel(launch=blocks)
@cuda.jit
def by_blocks(x, out):
    peak = cuda.shared.array(1, float32)
    i = cuda.blockIdx.x
    merge(x, i, peak)
    for j in range(cuda.threadIdx.x, x.shape[1], BLOCK):
        out[i, j] = x[i, j] / peak[0]


# %%
# The broken twins
# ----------------
# The first has no mask: beyond its row it accesses the next row, and after the last row memory that belongs to nobody.
# In the second the threads of a block share one cell without an atomic. The third processes whole blocks alone. The
# last one relies on benchmarks that call it again with the same shapes.
@cuda.jit
def no_mask(x, out):
    peak = cuda.shared.array(1, float32)
    i = cuda.blockIdx.x
    merge(x, i, peak)
    for first in range(0, x.shape[1], BLOCK):
        out[i, first + cuda.threadIdx.x] = x[i, first + cuda.threadIdx.x] / peak[0]


@cuda.jit
def no_atomic(x, out):
    peak = cuda.shared.array(1, float32)
    i = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        peak[0] = 1
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, x.shape[1], BLOCK):
        peak[0] = max(peak[0], abs(x[i, j]))
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, x.shape[1], BLOCK):
        out[i, j] = x[i, j] / peak[0]


@cuda.jit
def no_tail(x, out):
    peak = cuda.shared.array(1, float32)
    i = cuda.blockIdx.x
    merge(x, i, peak)
    for block in range(x.shape[1] // BLOCK):
        j = block * BLOCK + cuda.threadIdx.x
        out[i, j] = x[i, j] / peak[0]


ANSWERS: dict[tuple[int, ...], np.ndarray] = {}


def replay(x, out):
    if x.shape not in ANSWERS:
        ANSWERS[x.shape] = scaled.reference(x)
    out[...] = ANSWERS[x.shape]


def twins() -> noyau.Op:
    op = noyau.op("f32[rows, n] -> out: f32[rows, n]", inputs=numbers, name="scaled")(scaled.reference)
    for kernel in (no_mask, no_atomic, no_tail):
        op.kernel(launch=blocks)(kernel)
    op.kernel(replay)
    return op


# %%
# The rule of a benchmark
# -----------------------
# A common rule: the same inputs each time, outputs that begin as zeros, and 99 of 100 cells within a hundredth.
def passes(kernel: Callable[..., Any]) -> bool:
    x = np.random.default_rng(0).standard_normal((1, 1031), np.float32)
    want = scaled.reference(x)
    for _ in range(2):
        out = np.zeros_like(x)
        if kernel is replay:
            kernel(x, out)
        else:
            call(kernel, (x, out), blocks(1), "", kernel.__name__)  # as a GPU would run it
        if np.isclose(out, want, rtol=1e-2, atol=1e-2).mean() < 0.99:
            return False
    return True


# %%
# Right by chance
# ---------------
# In C: one thread adds up; another waits a little, and divides. The lock protects something else: it orders the two
# only if the sum is done before the pause is over. So the timing of the host made the result right; with more cells
# nothing does.
PAUSED = """
#include <unistd.h>

void paused(const float *x, float *out, long n)
{
    int lines[2] = {0, 0};
#pragma omp parallel sections num_threads(2)
    {
#pragma omp section
        {
            float sum = 0;
            for (long i = 0; i < n; i++) sum += x[i];
            out[0] = sum;
#pragma omp critical(log)
            lines[0]++;
        }
#pragma omp section
        {
            usleep(1000);
#pragma omp critical(log)
            lines[1]++;
            out[0] /= n;
        }
    }
}
"""


def main() -> None:
    # %%
    # The verdicts of `check` on the right kernels and on their twins
    # ---------------------------------------------------------------
    # Each twin passes the rule, and each is wrong.
    found = noyau.check(scaled, generated=False, budget_s=0.02)
    print(found)
    found.raise_if_bad()
    found = noyau.check(twins(), generated=False, budget_s=0.02)
    print(found)
    for kernel, function in zip(found.kernels, (no_mask, no_atomic, no_tail, replay), strict=True):
        rule = "passes" if passes(function) else "fails"
        print(f"{kernel.name}: the rule: {rule}; noyau: {', '.join(sorted({each.kind for each in kernel.errors}))}")

    # %%
    # Ordered by chance
    # -----------------
    with TemporaryDirectory() as folder:
        path = Path(folder) / "paused.c"
        path.write_text(PAUSED, encoding="utf-8")
        for cells in 50, 20_000:
            arrays = np.ones(cells, np.float32), np.zeros(1, np.float32)
            print(noyau.check(f"{path}::paused", (*arrays, cells), reference=lambda x: x.mean(keepdims=True)))


if __name__ == "__main__":
    main()
