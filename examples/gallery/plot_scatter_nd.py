"""ScatterND: rows that are added where indices say
=================================================

Updates are rows. Indices say to which row of a table each update is added, and several may name one row, so threads
meet in its cells. The ladder: an atomic for each cell, an owner for each row, and the kernel that noyau makes of
``np.add.at``. Two twins: one adds without an atomic; the other uses an index below 0, which counts from the end, as it
is.

No GPU is needed: ``python examples/gallery/plot_scatter_nd.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import numpy as np

import noyau

try:
    from numba import cuda, float32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None


def updates(rng, k=20, n=60, c=40):
    """Updates of which several name one row of the table, and some count from the end."""
    return rng.standard_normal((k, c), np.float32), rng.integers(-k, k, n), rng.standard_normal((n, c), np.float32)


@noyau.op("f32[k, c], i64[n], f32[n, c] -> f32[k, c]", inputs=updates)
def scatter_nd(table, at, rows):
    out = table.copy()
    np.add.at(out, at, rows)
    return out


# %%
# An atomic for each cell
# -----------------------
# A block has an update, and its threads the cells. The order of two updates is not fixed, so the last bits of a sum of
# floats may differ from run to run: the report says so.
@scatter_nd.kernel(launch=lambda at: (at.shape[0], 32), init={"out": "table"})
@cuda.jit
def by_atomics(table, at, rows, out):
    update = cuda.blockIdx.x
    row = at[update]
    if row < 0:
        row += out.shape[0]
    for cell in range(cuda.threadIdx.x, out.shape[1], 32):
        cuda.atomic.add(out, (row, cell), rows[update, cell])


# %%
# An owner for each row
# ---------------------
# A block has a row of the table and reads all indices. No two blocks meet, and the order of the sum is that of the
# updates, so its bits are the same in every run. Each block reads all the indices, but only its own rows.
@scatter_nd.kernel(launch=lambda table: (table.shape[0], 32))
@cuda.jit
def by_owners(table, at, rows, out):
    row = cuda.blockIdx.x
    for cell in range(cuda.threadIdx.x, out.shape[1], 32):
        total = float32(table[row, cell])
        for update in range(at.shape[0]):
            if at[update] == row or at[update] + out.shape[0] == row:
                total += rows[update, cell]
        out[row, cell] = total


# %%
# The broken twins
# ----------------
@cuda.jit
def racy(table, at, rows, out):
    update = cuda.blockIdx.x
    row = at[update]
    if row < 0:
        row += out.shape[0]
    for cell in range(cuda.threadIdx.x, out.shape[1], 32):
        out[row, cell] += rows[update, cell]


@cuda.jit
def from_the_begin(table, at, rows, out):
    row = cuda.blockIdx.x
    for cell in range(cuda.threadIdx.x, out.shape[1], 32):
        total = float32(table[row, cell])
        for update in range(at.shape[0]):
            if at[update] == row:
                total += rows[update, cell]
        out[row, cell] = total


def twin() -> noyau.Op:
    broken = noyau.op("f32[k, c], i64[n], f32[n, c] -> f32[k, c]", inputs=updates, name="scatter_nd")(
        scatter_nd.reference
    )
    broken.kernel(launch=lambda at: (at.shape[0], 32), init={"out": "table"})(racy)
    broken.kernel(launch=lambda table: (table.shape[0], 32))(from_the_begin)
    return broken


def main() -> None:
    # %%
    # Right, and named
    # ----------------
    found = noyau.check(scatter_nd, generated=("numba_cuda",), budget_s=1)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=1))

    # %%
    # The kernel that noyau makes
    # ---------------------------
    # For Numba-CUDA each update is added by an atomic. In CUDA C++ rows of 128 cells and more have owners, which a
    # count of the indices finds. Narrower rows are added by atomics, four floats at once if the GPU can, unless you
    # require the same bits in every run: ``@noyau.op(..., deterministic=True)``.
    words = ("numba_cuda", "cuda.atomic.add("), ("cuda", "noyau_atomic_add(&out["), ("cuda", "out_order[")
    for language, word in words:
        lines = (line.strip() for line in scatter_nd.source(language).splitlines())
        print(language, next(line for line in lines if line.startswith(word)), sep=": ")


if __name__ == "__main__":
    main()
