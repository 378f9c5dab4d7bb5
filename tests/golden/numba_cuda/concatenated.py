# the kernel concatenated

import math

import numpy as np
from numba import cuda

f32 = np.float32
THREADS = 256  # of a block


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def concatenated_0(x, y, v3, n, a, b):
    """Items: n, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, n, cuda.gridDim.x):
        for i1 in range(thread, a, THREADS):
            x_i = x[i0, i1]
            v3[i0, i1] = math.exp(x_i)
        for i1 in range(thread, b, THREADS):
            y_i = y[i0, i1]
            v3[i0, a + i1] = math.exp(y_i)


def concatenated(x, y, v3, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[n, a], input
    y: f32[n, b], input
    v3: f32[n, a + b], output
    """
    n = x.shape[0]
    a = x.shape[1]
    b = y.shape[1]
    if y.shape != (n, b):
        raise ValueError(f"y has the shape {y.shape}, and not {(n, b)}")
    if v3.shape != (n, a + b):
        raise ValueError(f"v3 has the shape {v3.shape}, and not {(n, a + b)}")
    if n > 0:
        concatenated_0[noyau_blocks(n), THREADS, stream](x, y, v3, n, a, b)
