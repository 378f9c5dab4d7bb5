"""Defects of kernels in C++ with threads, each beside its mended twin: noyau check examples/defects/threads.py

The kernels are in threads.cpp, and the line of a defect says there what it is.
"""

import numpy as np

import noyau


def values(rng, n=50):
    return (rng.random(n, dtype=np.float32),)


@noyau.op("f32[n] -> out: f64[1]", inputs=values)
def total(x):
    return x.astype(np.float64).sum(keepdims=True)


@noyau.op("f32[n] -> out: f32[n]", inputs=values)
def half(x):
    return x / 2


@noyau.op("f32[1] -> out: f32[1]")
def handed_over(x):
    return x + 0


@noyau.op("f32[n] -> out: f32[1]", inputs=values)
def mean(x):
    return x.mean(keepdims=True)


for op in (total, half, handed_over, mean):
    for twin in ("broken", "mended"):
        op.kernel("threads.cpp", entry=f"{op.name}_{twin}")
