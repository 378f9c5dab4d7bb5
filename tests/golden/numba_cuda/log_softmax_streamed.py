# the kernel log_softmax_streamed

import math

import numpy as np
from numba import cuda

f32 = np.float32
f64 = np.float64
THREADS = 256  # of a block


# The greater; NaN if either is NaN. 0.0 ulp. Where y is known, one comparison is left, by two instructions.
@cuda.jit(device=True)
def noyau_maximum_f32(x, y):
    return y if (x <= y) | (y != y) else x


@cuda.jit(device=True)
def noyau_max_f32(own):
    """One state of those of a block: the upper half is merged into the lower one, again and again."""
    shared = cuda.shared.array(THREADS, f32)
    thread = cuda.threadIdx.x
    shared[thread] = own
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            shared[thread] = noyau_maximum_f32(shared[thread], shared[half + thread])
        cuda.syncthreads()
        half //= 2
    merged = shared[0]
    cuda.syncthreads()  # all have read it before the next merge takes the memory
    return merged


@cuda.jit(device=True)
def noyau_sum_f64(own):
    """One state of those of a block: the upper half is merged into the lower one, again and again."""
    shared = cuda.shared.array(THREADS, f64)
    thread = cuda.threadIdx.x
    shared[thread] = own
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            shared[thread] += shared[half + thread]
        cuda.syncthreads()
        half //= 2
    merged = shared[0]
    cuda.syncthreads()  # all have read it before the next merge takes the memory
    return merged


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def log_softmax_streamed_0(x, v10, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        v1_max = f32(-np.inf)
        for r1 in range(thread, n, THREADS):
            x_i = x[i0, r1]
            v1_max = noyau_maximum_f32(v1_max, x_i)
        v1_max = noyau_max_f32(v1_max)
        v6_sum = 0.0
        for r2 in range(thread, n, THREADS):
            x_i = x[i0, r2]
            v4 = x_i - v1_max
            v5 = math.exp(v4)
            v6_sum += f64(v5)
        v6_sum = noyau_sum_f64(v6_sum)
        v6 = f32(v6_sum)
        v8 = math.log(v6)
        for i1 in range(thread, n, THREADS):
            x_i = x[i0, i1]
            v4 = x_i - v1_max
            v10[i0, i1] = v4 - v8


def log_softmax_streamed(x, v10, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[rows, n], input
    v10: f32[rows, n], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if v10.shape != (rows, n):
        raise ValueError(f"v10 has the shape {v10.shape}, and not {(rows, n)}")
    if rows > 0:
        log_softmax_streamed_0[noyau_blocks(rows), THREADS, stream](x, v10, rows, n)
