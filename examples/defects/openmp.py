"""Defects of kernels in C with OpenMP and SIMD, each beside its mended twin: noyau check examples/defects/openmp.py

The kernels are in openmp.c, and the line of a defect says there what it is.
"""

import numpy as np

import noyau

FILE, FLAGS = "openmp.c", {"flags": ["-fopenmp"]}


def values(rng, n=203):
    return (rng.random(n, dtype=np.float32),)


def bins(rng, n=203):
    return (rng.integers(0, 10, n).astype(np.int32),)


@noyau.op("f32[n] -> out: f64[1]", inputs=values)
def total(x):
    return x.astype(np.float64).sum(keepdims=True)


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def squares(x):
    return (x + 1) * (x + 1)


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def sums_so_far(x):
    return np.cumsum(x)


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def rare(x):
    out, at = x.copy(), len(x) // 2 + 1
    if at < len(x):
        out[at - 1] = 2 * x[at]
    return out


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def two_loops(x):
    return x[::-1] / 2


@noyau.op("i32[n] -> hist: i32[10]", inputs=bins)
def locks(x):
    return np.bincount(x, minlength=10).astype(np.int32)


@noyau.op("i32[n] -> out: i32[10]", inputs=bins)
def counts(x):
    return np.bincount(x, minlength=10).astype(np.int32)


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def differences(x):
    out = np.zeros_like(x)
    out[:-1] = x[1:] - x[:-1]
    return out


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def fours(x):
    return 2 * x


@noyau.op("f32[rows, cols] -> out: f32[rows]", inputs=lambda rng, rows=5, cols=13: (np.ones((rows, cols), np.float32),))
def row_sums(x):
    return x.sum(-1)


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def waits(x):
    return 2 * x


for op in (total, squares, sums_so_far, rare, two_loops, locks, counts, differences, fours, waits, row_sums):
    for twin in ("broken", "mended"):
        op.kernel(FILE, entry=f"{op.name}_{twin}", options=FLAGS, init={"hist": 0} if op is locks else {})
