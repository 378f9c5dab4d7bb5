"""Kernels of Numba as tutorials have them, right and wrong. None is ever compiled here: they are watched."""

from __future__ import annotations

import numba
import numpy as np
from numba import njit, prange

X = np.arange(8.0)
GRID = np.arange(12.0).reshape(3, 4)
OUT = np.zeros(8)
parallel = njit(parallel=True)
WEIGHTS = np.array([0.25, 0.5, 0.25])


@njit
def row_sum(row):
    total = 0.0
    for j in range(row.shape[0]):
        total += row[j]
    return total


@njit
def store(out, i, value):
    out[i] = value


@parallel
def copied(x, out):
    for i in prange(x.shape[0]):
        out[i] = x[i]


@parallel
def positions(strides, out):
    for i in prange(out.shape[0]):
        index = np.empty(8, np.int32)
        index[0], index[1] = i, 1
        for each, stride in zip(index, strides):  # noqa: B905  which the compiler refuses
            out[i] += each * stride


@parallel
def summed(x):
    s = 0.0
    for i in prange(x.shape[0]):
        s += x[i]
    return s


@parallel
def largest(x):
    top = x[0]
    for i in prange(1, x.shape[0]):
        top = max(top, x[i])
    return top


@parallel
def column_sums(x, out):
    acc = np.zeros(x.shape[1])
    for i in numba.prange(x.shape[0]):
        acc += x[i]
    out[:] = acc


@parallel
def rows_by_callee(x, out):
    for i in prange(x.shape[0]):
        store(out, i, row_sum(x[i, :]))


@parallel
def columns_by_transpose(x, out):
    t = x.T
    for j in prange(t.shape[0]):
        out[j] = t[j].sum()


@parallel
def softmax_rows(x, out):
    for i in prange(x.shape[0]):
        top = -np.inf
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        buffer = np.empty(x.shape[1])
        total = 0.0
        for j in range(x.shape[1]):
            buffer[j] = np.exp(x[i, j] - top)
            total += buffer[j]
        out[i] = buffer / total


@parallel
def blurred(x, out):
    n = x.shape[0]
    for i in prange(n):
        total = 0.0
        for k in range(3):
            j = min(max(i + k - 1, 0), n - 1)
            total += WEIGHTS[k] * x[j]
        out[i] = total


@parallel
def two_regions(x, out):
    half = np.empty_like(x)
    for i in prange(x.shape[0]):
        half[i] = x[i] / 2
    for i in prange(x.shape[0]):
        out[i] = half[i] + half[x.shape[0] - 1 - i]


@parallel
def picked_out(x, out):
    order = np.argsort(x)[::-1]
    for i in prange(x.shape[0]):
        out[order[i]] = x[i]
    out[-1] = x[-1]


@parallel
def normalised(x, out):
    total = x.sum()
    out[:] = x / total
    out += 1.0


@parallel
def matrix_product(a, out):
    for i in prange(a.shape[0]):
        for j in range(a.shape[0]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * a[j, k]
            out[i, j] = s


@parallel
def private_histograms(x, out):
    parts = np.zeros((4, out.shape[0]))
    for p in prange(4):
        for i in range(p * 2, p * 2 + 2):
            parts[p, int(x[i]) % out.shape[0]] += 1
    for b in range(out.shape[0]):
        for p in range(4):
            out[b] += parts[p, b]


@njit
def serial_scan(x, out):
    out[0] = x[0]
    for i in range(1, x.shape[0]):
        out[i] = out[i - 1] + x[i]


@parallel
def marked(x, out):
    for i in prange(x.shape[0]):
        out[0] = x[i]  # noyau: allow(race, written-twice) any of them will do
    for i in prange(1, x.shape[0]):
        out[i] = x[i]


@parallel
def nested(x, out):
    for i in prange(x.shape[0]):
        for j in prange(x.shape[1]):
            out[i, j] = 2 * x[i, j]


@njit(parallel=True)
def counted_by_thread(x, out):
    rows = np.zeros((numba.get_num_threads(), 4), np.int64)
    for i in prange(x.size):
        rows[numba.get_thread_id(), i % 4] += 1
    out[:] = rows.sum(axis=0)


RIGHT = {
    "row of a thread": (counted_by_thread, (X, np.zeros(4)), (1,)),
    "copy": (copied, (X, OUT), (1,)),
    "positions": (positions, (np.array([2, 1]), np.zeros(4, np.int64)), ()),
    "sum": (summed, (X,), ()),
    "largest": (largest, (X,), ()),
    "column sums": (column_sums, (GRID, np.zeros(4)), (1,)),
    "callee": (rows_by_callee, (GRID, np.zeros(3)), (1,)),
    "transposed": (columns_by_transpose, (GRID, np.zeros(4)), (1,)),
    "softmax": (softmax_rows, (GRID, np.zeros((3, 4))), (1,)),
    "stencil": (blurred, (X, OUT), (1,)),
    "two regions": (two_regions, (X, OUT), (1,)),
    "permutation": (picked_out, (X[::-1], OUT), (1,)),
    "array expressions": (normalised, (X, OUT), (1,)),
    "matrix product": (matrix_product, (GRID, np.zeros((3, 3))), (1,)),
    "private histograms": (private_histograms, (X, np.zeros(3)), ()),
    "serial scan": (serial_scan, (X, OUT), (1,)),
    "marked": (marked, (X, OUT), (1,)),
    "nested": (nested, (GRID, np.zeros((3, 4))), (1,)),
}


@parallel
def one_cell(x, c):
    for i in prange(x.shape[0]):
        c[0] += x[i]


@parallel
def running_sum(x, out):
    for i in prange(1, x.shape[0]):
        out[i] = out[i - 1] + x[i]


@parallel
def shifted(x):
    for i in prange(x.shape[0] - 1):
        x[i] = x[i + 1]


@parallel
def neighbours(x, out):
    for i in prange(x.shape[0] - 1):
        out[i] = x[i]
        out[i + 1] = 2 * x[i]


@parallel
def histogram(x, out):
    for i in prange(x.shape[0]):
        b = int(x[i]) % 3
        out[b] += 1


@parallel
def flag(x, found):
    for i in prange(x.shape[0]):
        if x[i] > 2:
            found[0] = 1.0


@parallel
def differences(x, out):
    before = x[0]
    for i in prange(x.shape[0]):
        out[i] = x[i] - before
        before = x[i]


@parallel
def counted(x, out):
    n = 0
    for i in prange(x.shape[0]):
        n += 2
        out[i] = n * x[i]


@parallel
def too_far(x, out):
    for i in prange(x.shape[0]):
        out[i] = x[i] + x[i + 1]


@parallel
def past_its_row(x, out):
    for i in prange(x.shape[0]):
        out[i] = x[i, x.shape[1]]


@parallel
def past_the_end(x):
    for i in prange(2 * x.shape[0]):
        x[i] = 20.0


@parallel
def from_the_end(x, out):
    for i in prange(x.shape[0]):
        out[i] = x[i - 1]


@parallel
def tail(x, out):
    for block in prange(x.shape[0] // 3):
        for i in range(3 * block, 3 * block + 3):
            out[i] = x[i]


@parallel
def unset(x, out):
    scratch = np.empty(x.shape[0] + 1)
    for i in prange(x.shape[0]):
        scratch[i] = x[i]
    for i in prange(x.shape[0]):
        out[i] = scratch[i] + scratch[i + 1]


@parallel
def rows_meet(x, out):
    for i in prange(x.shape[0]):
        out[0] = x[i]


@parallel
def by_callee(x, out):
    for i in prange(x.shape[0]):
        store(out, i // 2, x[i])


@parallel
def last_one(x, out):
    for i in prange(x.shape[0]):
        k = i
        out[i] = x[i]
    out[0] = k


@njit(parallel=True)
def carried_by_thread(x, rows):
    for i in prange(1, x.size):
        rows[numba.get_thread_id()] += 1
        x[i] = x[i - 1]


WRONG = {
    "neighbour of a thread": (
        carried_by_thread,
        (X, np.zeros(numba.get_num_threads())),
        (),
        [("race", "x[i] = x[i - 1]", "x[i] = x[i - 1]")],
    ),
    "one cell": (one_cell, (X, np.zeros(1)), (), [("race", "c[0] += x[i]", "c[0] += x[i]")]),
    "running sum": (
        running_sum,
        (X, OUT),
        (),
        [("race", "out[i] = out[i - 1] + x[i]", "out[i] = out[i - 1] + x[i]")],
    ),
    "shifted in place": (shifted, (X,), (), [("race", "x[i] = x[i + 1]", "x[i] = x[i + 1]")]),
    "neighbours": (neighbours, (X, OUT), (), [("race", "out[i] = x[i]", "out[i + 1] = 2 * x[i]")]),
    "histogram": (histogram, (X, np.zeros(3)), (), [("race", "out[b] += 1", "out[b] += 1")]),
    "flag": (flag, (X, np.zeros(1)), (), [("written-twice", "found[0] = 1.0", "found[0] = 1.0")]),
    "carried name": (differences, (X, OUT), (), [("race", "out[i] = x[i] - before", "for i in prange(x.shape[0]):")]),
    "running name": (counted, (X, OUT), (), [("race", "out[i] = n * x[i]", "for i in prange(x.shape[0]):")]),
    "too far": (too_far, (X, OUT), (), [("out-of-bounds", "out[i] = x[i] + x[i + 1]", "")]),
    "past its row": (past_its_row, (GRID, np.zeros(3)), (), [("out-of-bounds", "out[i] = x[i, x.shape[1]]", "")]),
    "past the end": (past_the_end, (X,), (), [("out-of-bounds", "x[i] = 20.0", "")]),
    "from the end": (from_the_end, (X, OUT), (), [("negative-index", "out[i] = x[i - 1]", "")]),
    "tail": (tail, (X, OUT), (1,), [("unwritten", "def tail(x, out):", "")]),
    "unset": (unset, (X, OUT), (), [("uninitialised", "out[i] = scratch[i] + scratch[i + 1]", "")]),
    "rows meet": (rows_meet, (GRID, np.zeros((1, 4))), (1,), [("race", "out[0] = x[i]", "out[0] = x[i]")]),
    "in a callee": (by_callee, (X, OUT), (), [("race", "out[i] = value", "out[i] = value")]),
    "last one": (last_one, (X, OUT), (), [("race", "out[0] = k", "for i in prange(x.shape[0]):")]),
}

CLASSES = {
    "map": (copied, (X, OUT), ["map"]),
    "reduction": (summed, (X,), ["reduction"]),
    "scan": (running_sum, (X, OUT), ["scan"]),
    "scan of a name": (differences, (X, OUT), ["scan"]),
    "running value": (counted, (X, OUT), ["scan"]),
    "race": (histogram, (X, np.zeros(3)), ["race"]),
    "two": (two_regions, (X, OUT), ["map", "map"]),
}
