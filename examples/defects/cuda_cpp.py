"""Defects of kernels in CUDA C++, each beside its mended twin: noyau check examples/defects/cuda_cpp.py

Neither a GPU nor nvcc is needed. The kernels are in cuda_cpp.cu, and the line of a defect says there what it is.
"""

import numpy as np

import noyau

FILE = "cuda_cpp.cu"


def blocks(n):
    return (n + 63) // 64, 64


def values(rng, n=203):
    return (rng.random(n, dtype=np.float32),)


def bins(rng, n=203):
    return (rng.integers(0, 10, n).astype(np.int32),)


@noyau.op("f32[n], f32[n] -> f32[n]")
def add(x, y):
    return x + y


@noyau.op("f32[n] -> f32[n]", inputs=values)
def twice(x):
    return 2 * x


@noyau.op("-> total: i32[1]")
def count():
    return np.full(1, 256, np.int32)


@noyau.op("i32[n] -> hist: i32[10]", inputs=bins)
def histogram(x):
    return np.bincount(x, minlength=10).astype(np.int32)


@noyau.op("f32[n] -> out: f32[n]", inputs=lambda rng, blocks=3: (rng.random(64 * blocks, dtype=np.float32),))
def reversed_in_blocks(x):
    return x.reshape(-1, 64)[:, ::-1].reshape(-1)


@noyau.op("f32[n] -> out: f32[1]", inputs=values)
def total(x):
    return x.sum(keepdims=True)


@noyau.op("f32[n] -> partial: f32[4], out: f32[1]", inputs=values)
def total_by_blocks(x):
    partial = np.array([x[b::4].sum() for b in range(4)], np.float32)
    return partial, partial.sum(keepdims=True)


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def smooth(x):
    out = x.copy()
    for i in range(len(x)):
        out[i] = x[i - 1] if i % 64 else x[i]
    return out


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def middle(x):
    out = x.copy()
    if len(x) > 1:
        out[len(x) // 2 - 1] = x[len(x) // 2] + 1
    return out


@noyau.op("f32[rows, cols] -> out: f32[rows]", inputs=lambda rng, rows=5, cols=13: (np.ones((rows, cols), np.float32),))
def row_sums(x):
    return x.sum(-1)


for op, name, usage in (
    (add, "add", {"launch": blocks}),
    (count, "count", {"launch": (4, 64), "init": {"total": 0}}),
    (histogram, "histogram", {"launch": blocks, "init": {"hist": 0}}),
    (reversed_in_blocks, "reversed", {"launch": lambda n: (n // 64, 64), "args": lambda x, out: (x, out)}),
    (total, "sum", {"launch": lambda n: ((n + 127) // 128, 128), "init": {"out": 0}}),
    (smooth, "smooth", {"launch": blocks}),
    (total, "warp_sum", {"launch": blocks, "init": {"out": 0}}),
    (total_by_blocks, "last_block", {"launch": (4, 32)}),
    (middle, "rare", {"launch": blocks}),
    (row_sums, "row_sums", {"launch": (1, 32)}),
    (twice, "streams", {}),
    (twice, "events", {}),
):
    op.kernel(FILE, entry=f"{name}_broken", **usage)
    op.kernel(FILE, entry=f"{name}_mended", **usage)

twice.kernel(FILE, entry="twice_broken", launch=lambda n: (n // 64, 64))
twice.kernel(FILE, entry="twice_mended", launch=(2, 64))
twice.kernel(FILE, entry="strided_broken", launch=lambda n: (n, 256))
twice.kernel(FILE, entry="strided_mended", launch=lambda n: ((n + 255) // 256, 256))
