# the kernel padded

import numpy as np
from numba import cuda

f32 = np.float32
THREADS = 256  # of a block


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def padded_0(x, v6, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        for i1 in range(thread, 2, THREADS):
            v6[i0, i1] = f32(7.0) * f32(7.0)
        for i1 in range(thread, n, THREADS):
            x_i = x[i0, i1]
            v6[i0, i1 + 2] = x_i * x_i
        for i1 in range(thread, 2, THREADS):
            v6[i0, i1 + n + 2] = f32(-7.0) * f32(-7.0)


def padded(x, v6, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[rows, n], input
    v6: f32[rows, n + 4], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if v6.shape != (rows, n + 4):
        raise ValueError(f"v6 has the shape {v6.shape}, and not {(rows, n + 4)}")
    if rows > 0:
        padded_0[noyau_blocks(rows), THREADS, stream](x, v6, rows, n)
