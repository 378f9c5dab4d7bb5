"""Session 5: a histogram, with a grid stride and atomics
======================================================

10,000 normal numbers, 10 bins, 128 blocks of 64 threads. The bin of a number is not known beforehand, so the bins are
shared, and adding to them takes an atomic. The ladder: a race, atomics, private bins in each block, and bins with one
owner each. There are three twins. One adds without an atomic. One computes the bin by truncation, which rounds towards
zero, so that a number just below the range lands in its first bin. In the third an owner's threads do not wait for each
other.

No GPU is needed: ``python examples/gallery/plot_histogram.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import math

import numpy as np

import noyau

try:
    from numba import cuda, float64, int32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

BINS = 10
LOW = -2.5
PER_UNIT = 2.0  # bins


def normals(rng, n=1000):
    return (rng.standard_normal(n, np.float32) * np.float32(1.5),)


# Some numbers lie outside the range, on either side: they are not counted.
@noyau.op("f32[n] -> i32[10]", inputs=normals)
def histogram(x):
    place = np.floor((x - LOW) * PER_UNIT)
    return (place[:, None] == np.arange(BINS)).sum(0, dtype=np.int32)


# %%
# A grid stride
# -------------
# The launch does not depend on the size: each thread takes every 8192nd number. The bin is computed in float64: close
# to the edge of a bin, a difference in float32 may round across the edge.
@histogram.kernel(launch=(128, 64), init={"out": 0})
@cuda.jit
def by_atomics(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        place = math.floor((float64(x[i]) - LOW) * PER_UNIT)
        if 0 <= place < BINS:
            cuda.atomic.add(out, int32(place), 1)


# %%
# Private bins in each block
# --------------------------
# 8192 threads queue for ten cells. In shared memory each block has ten of its own, which are nearer and have only 64
# threads queueing for them. At the end ten atomics per block remain, so the launch has just enough blocks to fill the
# machine. The first barrier ensures that all bins are 0, the second that all numbers are counted.
@histogram.kernel(launch=lambda device: (4 * device.sm_count, 64), init={"out": 0})
@cuda.jit
def privatised(x, out):
    own = cuda.shared.array(BINS, int32)
    thread = cuda.threadIdx.x
    if thread < BINS:
        own[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        place = math.floor((float64(x[i]) - LOW) * PER_UNIT)
        if 0 <= place < BINS:
            cuda.atomic.add(own, int32(place), 1)
    cuda.syncthreads()
    if thread < BINS:
        cuda.atomic.add(out, thread, own[thread])


# %%
# An owner for each bin
# ---------------------
# One block per bin reads all numbers and counts those of its bin. No two blocks share a bin, so there are no atomics;
# with floats in place of counts the sum would have the same bits in every run. Ten blocks read everything ten times.
@histogram.kernel(launch=(BINS, 64))
@cuda.jit
def by_owners(x, out):
    counts = cuda.shared.array(64, int32)
    thread = cuda.threadIdx.x
    own = int32(0)
    for i in range(thread, x.size, 64):
        if math.floor((float64(x[i]) - LOW) * PER_UNIT) == cuda.blockIdx.x:
            own += 1
    counts[thread] = own
    cuda.syncthreads()
    half = 32
    while half > 0:
        if thread < half:
            counts[thread] += counts[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = counts[0]


# %%
# The kernel that noyau makes
# ---------------------------
# Written with np.add.at, the histogram becomes private bins in each block, in several copies, so that each thread of a
# warp adds in a bank of its own. For sums of floats by position there are two texts. One gives the same bits in every
# run: it counts the updates, places them in a list for each bucket of cells, and the owners of the cells merge them.
@noyau.op("f32[n] -> i32[10]", inputs=normals)
def by_place(x):
    place = np.floor((x - LOW) * PER_UNIT)
    inside = (place >= 0) & (place < BINS)
    out = np.zeros(BINS, np.int32)
    np.add.at(out, np.where(inside, place, 0).astype(np.int64), inside.astype(np.int32))
    return out


def sums(x, at):
    out = np.zeros(BINS, np.float32)
    np.add.at(out, at, x)
    return out


def places(rng, n=1000):
    return rng.standard_normal(n, np.float32), rng.integers(0, BINS, n)


in_any_order = noyau.op("f32[n], i64[n] -> f32[10]", inputs=places)(sums)
in_order = noyau.op("f32[n], i64[n] -> f32[10]", inputs=places, deterministic=True)(sums)


# %%
# The broken twins
# ----------------
# `racy` is right if no two numbers of one bin come at the same time, so it is often right on few numbers. `truncated`
# has no race at all: int32(-0.5) is 0, so its first bin is twice as wide as the others.
@cuda.jit
def racy(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        place = math.floor((float64(x[i]) - LOW) * PER_UNIT)
        if 0 <= place < BINS:
            out[int32(place)] += 1


@cuda.jit
def truncated(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        place = int32((float64(x[i]) - LOW) * PER_UNIT)
        if 0 <= place < BINS:
            cuda.atomic.add(out, place, 1)


@cuda.jit
def impatient(x, out):
    counts = cuda.shared.array(64, int32)
    thread = cuda.threadIdx.x
    own = int32(0)
    for i in range(thread, x.size, 64):
        if math.floor((float64(x[i]) - LOW) * PER_UNIT) == cuda.blockIdx.x:
            own += 1
    counts[thread] = own
    if thread == 0:
        for other in range(1, 64):
            own += counts[other]
        out[cuda.blockIdx.x] = own


def twin() -> noyau.Op:
    broken = noyau.op("f32[n] -> i32[10]", inputs=normals, name="histogram")(histogram.reference)
    for kernel in (racy, truncated):
        broken.kernel(launch=(128, 64), init={"out": 0})(kernel)
    broken.kernel(launch=(BINS, 64))(impatient)
    return broken


def in_numpy(x):
    """NumPy's own, whose last bin contains both of its edges; all others contain the lower edge alone."""
    return np.histogram(x, BINS, (LOW, LOW + BINS / PER_UNIT))[0].astype(np.int32)


def main() -> None:
    # %%
    # Right, and named
    # ----------------
    found = noyau.check(histogram, generated=False, budget_s=0.5)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=2))
    for op in (by_place, in_any_order, in_order):
        noyau.check(op, budget_s=0.5).raise_if_bad()
        lines = (line.strip() for line in op.source("cuda").splitlines())
        print(op.name, *(line for line in lines if "noyau_atomic_add(&" in line or "_order[" in line), sep="\n    ")

    # %%
    # The clock
    # ---------
    # On a processor, as far as it can run them: the kernel that noyau makes of the reference, and NumPy's own
    # histogram.
    print(noyau.bench(histogram, sizes={"n": 10_000}, peers={"np.histogram": in_numpy}, budget_s=0.3))


if __name__ == "__main__":
    main()
