"""Session 3: what a parallel loop is: a map, a reduction, a scan or a race
========================================================================

Numba's prange promises nothing: it distributes iterations over threads, and the author of the loop has to know whether
that is allowed. Iterations may run in any order and at the same time. So prange is allowed if no iteration needs
another one: in a map, whose iterations write cells of their own, and in a reduction, where they only update a variable.
In a scan an iteration needs the result of the one before it; in a race several iterations write one cell. `check` runs
each loop iteration by iteration, records which iteration touches which cell, and reports which of the four it is, with
the line. Then it compares the numbers with 1, 2 and 4 threads.

Run it: ``python examples/gallery/plot_prange_classes.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import numpy as np

import noyau

try:
    from numba import njit, prange
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

PARTS = 8


def digits(rng, n=1000):
    return (rng.integers(0, 10, n, dtype=np.int32),)


# %%
# A map
# -----
# Iterations may read the same cells, as long as no iteration writes them.
@noyau.op("f64[n] -> f64[n]")
def smoothed(x):
    wide = np.concatenate((x[:1], x, x[-1:]))
    return (wide[:-2] + wide[1:-1] + wide[2:]) / 3


@smoothed.kernel
@njit(parallel=True)
def of_neighbours(x, out):
    for i in prange(x.size):
        out[i] = (x[max(i - 1, 0)] + x[i] + x[min(i + 1, x.size - 1)]) / 3


# %%
# A reduction
# -----------
# Numba sees that `total` is only added to: each thread has its own, and these are added up at the end. So the last bits
# depend on the number of threads, and the report warns of that.
@noyau.op("f64[n], f64[n] -> f64[1]")
def distance(x, y):
    return ((x - y) * (x - y)).sum(keepdims=True)


@distance.kernel
@njit(parallel=True)
def in_a_name(x, y, out):
    total = 0.0
    for i in prange(x.size):
        total += (x[i] - y[i]) ** 2
    out[0] = total


# %%
# A scan made of maps
# -------------------
# Pieces do not need each other's cells, only each other's sums. All pieces are summed, one thread adds up the few sums,
# and a second pass goes through all pieces. It reads everything twice, so two cores gain little.
@noyau.op("f64[n] -> f64[n]")
def running(x):
    return x.cumsum()


@running.kernel
@njit(parallel=True)
def in_pieces(x, out):
    width = (x.size + PARTS - 1) // PARTS
    before = np.zeros(PARTS + 1)
    for piece in prange(PARTS):
        total = 0.0
        for i in range(piece * width, min((piece + 1) * width, x.size)):
            total += x[i]
        before[piece + 1] = total
    for piece in range(PARTS):
        before[piece + 1] += before[piece]
    for piece in prange(PARTS):
        total = before[piece]
        for i in range(piece * width, min((piece + 1) * width, x.size)):
            total += x[i]
            out[i] = total


# %%
# A histogram as a map
# --------------------
# The cell that an iteration writes depends on the data. With a row for each part no two parts share a cell.
@noyau.op("i32[n] -> i64[10]", inputs=digits)
def counts(x):
    return (x[:, None] == np.arange(10)).sum(0, dtype=np.int64)


@counts.kernel
@njit(parallel=True)
def in_parts(x, out):
    parts = np.zeros((PARTS, 10), np.int64)
    for part in prange(PARTS):
        for i in range(part, x.size, PARTS):
            parts[part, x[i]] += 1
    for digit in range(10):
        out[digit] = parts[:, digit].sum()


# %%
# The broken twins
# ----------------
# In place: a neighbour may be old or new. In one cell: additions are lost. At once: the iteration reads a cell that is
# not written yet. Bin by bin: two iterations have the same digit.
@njit(parallel=True)
def in_place(x, out):
    out[:] = x
    for i in prange(1, x.size - 1):
        out[i] = (out[i - 1] + out[i] + out[i + 1]) / 3


@njit(parallel=True)
def in_one_cell(x, y, out):
    for i in prange(x.size):
        out[0] += (x[i] - y[i]) ** 2


@njit(parallel=True)
def at_once(x, out):
    out[:] = x
    for i in prange(1, x.size):
        out[i] += out[i - 1]


@njit(parallel=True)
def bin_by_bin(x, out):
    for i in prange(x.size):
        out[x[i]] += 1


def twins() -> list[noyau.Op]:
    of_maps = noyau.op("f64[n] -> f64[n]", name="smoothed")(smoothed.reference)
    of_maps.kernel(in_place)
    of_sums = noyau.op("f64[n], f64[n] -> f64[1]", name="distance")(distance.reference)
    of_sums.kernel(init={"out": 0})(in_one_cell)
    of_scans = noyau.op("f64[n] -> f64[n]", name="running")(running.reference)
    of_scans.kernel(at_once)
    of_counts = noyau.op("i32[n] -> i64[10]", inputs=digits, name="counts")(counts.reference)
    of_counts.kernel(init={"out": 0})(bin_by_bin)
    return [of_maps, of_sums, of_scans, of_counts]


def main() -> None:
    # %%
    # Right, and classed
    # ------------------
    for op in (smoothed, distance, running, counts):
        found = noyau.check(op, generated=False, budget_s=0.3)
        print(found)
        found.raise_if_bad()
    for twin in twins():
        print(noyau.check(twin, generated=False, budget_s=0.3))

    # %%
    # The clock
    # ---------
    print(noyau.bench(running, sizes={"n": 1 << 20}, budget_s=0.3))


if __name__ == "__main__":
    main()
