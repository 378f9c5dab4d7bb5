# the kernel scattered_labels

import math

import numpy as np
from numba import cuda

i64 = np.int64
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
def scattered_labels_0(x, ids, less, v14, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        ids_i = ids[i0]
        at = ids_i if 0 < n else 0
        v_inside = not (0 < n) or 0 <= at < n
        v3_max = f32(-np.inf)
        for r1 in range(thread, n, THREADS):
            x_i = x[i0, r1]
            v3_max = noyau_maximum_f32(v3_max, x_i)
        v3_max = noyau_max_f32(v3_max)
        v8_sum = 0.0
        for r2 in range(thread, n, THREADS):
            x_i = x[i0, r2]
            v6 = x_i - v3_max
            v7 = math.exp(v6)
            v8_sum += f64(v7)
        v8_sum = noyau_sum_f64(v8_sum)
        v8 = f32(v8_sum)
        less_i = less[i0]
        v12 = -less_i
        for i1 in range(thread, n, THREADS):
            x_i = x[i0, i1]
            v6 = x_i - v3_max
            v7 = math.exp(v6)
            v11 = v7 / v8
            v13 = (v11 + v12) if i1 == at else v11
            v14[i0, i1] = v13 * v13


def scattered_labels(x, ids, less, v14, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[rows, n], input
    ids: i64[rows], input
    less: f32[rows], input
    v14: f32[rows, n], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if ids.shape != (rows,):
        raise ValueError(f"ids has the shape {ids.shape}, and not {(rows,)}")
    if less.shape != (rows,):
        raise ValueError(f"less has the shape {less.shape}, and not {(rows,)}")
    if v14.shape != (rows, n):
        raise ValueError(f"v14 has the shape {v14.shape}, and not {(rows, n)}")
    if rows > 0:
        scattered_labels_0[noyau_blocks(rows), THREADS, stream](x, ids, less, v14, rows, n)
