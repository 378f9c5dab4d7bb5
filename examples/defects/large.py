"""Defects that only large arrays show, each beside its mended twin. Nothing is run at the sizes that are told:

    noyau check examples/defects/large.py --sizes n=3000000000

The line of a defect says what it is.
"""

import numpy as np
from numba import cuda, int32, njit

import noyau

BLOCK = 128


def blocks(n):
    return (n + BLOCK - 1) // BLOCK, BLOCK


# A place in 32 bits: from 2^31 cells on it is negative.


@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x


@double.kernel(launch=blocks)
@cuda.jit
def place_broken(x, out):
    i = int32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)  # defect: precision
    if i < x.size:
        out[i] = x[i] + x[i]


@double.kernel(launch=blocks)
@cuda.jit
def place_mended(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]


# A sum in float32: past 2^24 terms of one size it stays as it is. 5000 x 5000 ones sum to 16777216.


@noyau.op("f32[n] -> f32[1]")
def total(x):
    return x.sum(keepdims=True)


@total.kernel
@njit
def sum_broken(x, out):
    s = np.float32(0)
    for i in range(x.shape[0]):
        s += x[i]  # defect: precision
    out[0] = s


@total.kernel
@njit
def sum_mended(x, out):
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i]
    out[0] = s


# One cell, to which all threads add.


@total.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def atomics_broken(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])  # defect: precision


@total.kernel(launch=lambda device: (4 * device.sm_count, BLOCK), init={"out": 0})
@cuda.jit
def atomics_mended(x, out):
    own = 0.0
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        own += x[i]
    cuda.atomic.add(out, 0, own)
