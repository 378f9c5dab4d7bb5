# the kernel transposed

import numpy as np
from numba import cuda

f32 = np.float32


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def transposed_0(x, v2, a, b, c):
    """Items: a x c x b, a thread for each."""
    across, down = cuda.grid(2)
    all_across, all_down = cuda.gridsize(2)
    for item in range(down, a * c, all_down):
        i0 = item // c
        i1 = item % c
        for i2 in range(across, b, all_across):
            x_i = x[i0, i2, i1]
            v2[i0, i1, i2] = -x_i


def transposed(x, v2, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[a, b, c], input
    v2: f32[a, c, b], output
    """
    a = x.shape[0]
    b = x.shape[1]
    c = x.shape[2]
    if v2.shape != (a, c, b):
        raise ValueError(f"v2 has the shape {v2.shape}, and not {(a, c, b)}")
    if a * b * c > 0:
        grid = noyau_blocks(b, 32), noyau_blocks(a * c, 8)
        transposed_0[grid, (32, 8), stream](x, v2, a, b, c)
