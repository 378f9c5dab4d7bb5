"""
Defects of parallel loops in Numba
==================================

Each op has kernels with a defect that published code has, and the mended twin. Run::

    noyau check examples/defects/prange.py

Every defect is named with its line, whatever the threads did this time; the twins are silent.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.lib.stride_tricks import as_strided

import noyau

THREADS = 4
BLOCK = 32


# %%
# A sum in one cell
# -----------------
# Four threads add to one number. On 10^5 numbers it is wrong one time in twenty, on 10^7 always.


@noyau.op("f64[n] -> f64[1]")
def total(x):
    return x.sum(keepdims=True)


@total.kernel(init={"out": 0})
@njit(parallel=True)
def total_in_one_cell(x, out):
    for i in prange(x.shape[0]):
        out[0] += x[i]  # defect: race


@total.kernel(init={"out": 0})
@njit(parallel=True)
def total_by_threads(x, out):
    parts = np.zeros(1)
    for t in prange(THREADS):
        for i in range(t, x.shape[0], THREADS):
            parts[0] += x[i]  # defect: race
    out[0] = parts[0]


@total.kernel
@njit(parallel=True)
def total_mended(x, out):
    s = 0.0
    for i in prange(x.shape[0]):
        s += x[i]
    out[0] = s


# %%
# A counter
# ---------
# The same with a number of ones. Numba's diagnostics call this loop "already optimal".


@noyau.op("f32[n] -> i64[1]")
def positive(x):
    return (x > 0).sum(keepdims=True)


@positive.kernel(init={"out": 0})
@njit(parallel=True)
def positive_in_one_cell(x, out):
    for i in prange(x.shape[0]):
        if x[i] > 0:
            out[0] += 1  # defect: race


@positive.kernel
@njit(parallel=True)
def positive_mended(x, out):
    count = 0
    for i in prange(x.shape[0]):
        if x[i] > 0:
            count += 1
    out[0] = count


# %%
# A running sum
# -------------
# Each iteration needs what the one before it made: that is a scan, and no map.


@noyau.op("f64[n] -> f64[n]")
def running(x):
    return x.cumsum()


@running.kernel
@njit(parallel=True)
def running_at_once(x, out):
    if x.shape[0]:
        out[0] = x[0]
    for i in prange(1, x.shape[0]):
        out[i] = out[i - 1] + x[i]  # defect: race


@running.kernel
@njit
def running_mended(x, out):
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i]
        out[i] = s


# %%
# Blocks that do not divide the array
# -----------------------------------
# As a grid of blocks on a GPU: too many threads write past the end, too few leave the last cells as they were, and
# where the output's memory was used before, that is not seen.


@noyau.op("f32[n], f32[n] -> f32[n]")
def add(x, y):
    return x + y


@add.kernel
@njit(parallel=True)
def add_without_guard(x, y, out):
    for block in prange((x.shape[0] + BLOCK - 1) // BLOCK):
        for i in range(block * BLOCK, (block + 1) * BLOCK):
            out[i] = x[i] + y[i]  # defect: out-of-bounds


@add.kernel
@njit(parallel=True)
def add_without_tail(x, y, out):  # defect: unwritten
    for block in prange(x.shape[0] // BLOCK):
        for i in range(block * BLOCK, (block + 1) * BLOCK):
            out[i] = x[i] + y[i]


@add.kernel
@njit(parallel=True)
def add_mended(x, y, out):
    for block in prange((x.shape[0] + BLOCK - 1) // BLOCK):
        for i in range(block * BLOCK, min((block + 1) * BLOCK, x.shape[0])):
            out[i] = x[i] + y[i]


# %%
# Writing past a short array
# --------------------------
# ``boundscheck=True`` raises nothing within a prange.


@noyau.op("f32, f32[n] -> f32[n]")
def shifted(y, x):
    return x + y


@shifted.kernel
@njit(parallel=True, boundscheck=True)
def shifted_too_far(y, x, out):
    for i in prange(2 * x.shape[0]):
        out[i] = x[i % x.shape[0]] + y  # defect: out-of-bounds


@shifted.kernel
@njit(parallel=True)
def shifted_mended(y, x, out):
    for i in prange(x.shape[0]):
        out[i] = x[i] + y


# %%
# Sums in float32
# ---------------
# Past 2^24, adding 1 to a float32 changes nothing: 5000 x 5000 ones sum to 16777216.


@noyau.op("f32[n] -> f32[1]")
def long_total(x):
    return x.sum(keepdims=True)


@long_total.kernel
@njit
def long_total_in_float32(x, out):  # defect: precision
    s = np.float32(0)
    for i in range(x.shape[0]):
        s += x[i]
    out[0] = s


@long_total.kernel
@njit
def long_total_mended(x, out):
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i]
    out[0] = s


# %%
# Memory that nobody set
# ----------------------
# ``np.empty`` gives what was there before: often zeros, in a test that runs alone.


@noyau.op("f64[n] -> f64[n]")
def pairs(x):
    return x + np.append(x[1:], np.zeros(min(len(x), 1)))


@pairs.kernel
@njit(parallel=True)
def pairs_from_nothing(x, out):
    for i in prange(x.shape[0]):
        own = np.empty(1)
        for j in range(i, min(i + 2, x.shape[0])):
            own[0] += x[j]  # defect: uninitialised
        out[i] = own[0]


@pairs.kernel
@njit(parallel=True)
def pairs_mended(x, out):
    for i in prange(x.shape[0]):
        own = np.zeros(1)
        for j in range(i, min(i + 2, x.shape[0])):
            own[0] += x[j]
        out[i] = own[0]


# %%
# The address of the first cell
# -----------------------------
# A kernel that takes ``&x[0, 0]`` for the whole of the array is wrong on a transposed or sliced one.


@noyau.op("f32[m, n] -> f32[m, n]")
def doubled(x):
    return x + x


@doubled.kernel
@njit
def doubled_as_if_packed(x, out):  # defect: wrong-value
    cells = as_strided(x, (x.size,), (x.itemsize,))
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = 2 * cells[i * x.shape[1] + j]


@doubled.kernel
@njit(parallel=True)
def doubled_mended(x, out):
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = 2 * x[i, j]
