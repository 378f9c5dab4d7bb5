"""Defects on the host's side of programs, each beside its mended twin: noyau check examples/defects/host.py

They are warnings (with --strict they fail): the numbers are right, and something is not what it looks like. No GPU is
needed. The line of a defect says what it is; `other` is the line that has to do with it.
"""

import time

import numpy as np
from numba import cuda


@cuda.jit
def add(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + 1


@cuda.jit
def strided(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] + 1


x = cuda.to_device(np.arange(1600, dtype=np.float32))
out = cuda.device_array_like(x)
few = cuda.to_device(np.arange(100, dtype=np.float32))


# A launch returns at once: without waiting, its own time is what is measured.


def timed_broken():
    start = time.perf_counter()
    add[13, 128](x, out)  # other
    return time.perf_counter() - start  # defect: launch


def timed_mended():
    start = time.perf_counter()
    add[13, 128](x, out)
    cuda.synchronize()
    return time.perf_counter() - start


# A method that is named and not called does nothing.


def waited_broken():
    add[13, 128](x, out)
    cuda.synchronize  # noqa: B018  # defect: launch


def waited_mended():
    add[13, 128](x, out)
    cuda.synchronize()


# As a condition, a method always holds.


def packed_broken(tensor):
    assert tensor.is_contiguous, "a packed tensor is wanted"  # defect: launch
    return tensor


def packed_mended(tensor):
    assert tensor.is_contiguous(), "a packed tensor is wanted"
    return tensor


# A block for each cell, in a kernel that strides over the grid: 256 times too many threads.


def launched_broken():
    strided[100, 256](few, few)  # defect: launch


def launched_mended():
    strided[1, 256](few, few)


# Blocks of one warp, where any other size would do.


def in_warps_broken():
    add[50, 32](x, out)  # defect: launch


def in_warps_mended():
    add[13, 128](x, out)


# Blocks that are no multiple of a warp.


def in_hundreds_broken():
    add[16, 100](x, out)  # defect: launch


def in_hundreds_mended():
    add[13, 128](x, out)


for run in (timed_broken, timed_mended, waited_broken, waited_mended, launched_broken, launched_mended):
    run()
for run in (in_warps_broken, in_warps_mended, in_hundreds_broken, in_hundreds_mended):
    run()
