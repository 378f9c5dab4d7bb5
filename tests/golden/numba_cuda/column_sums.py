# the kernel column_sums

import numpy as np
from numba import cuda

f32 = np.float32
f64 = np.float64
THREADS = 256  # of a block


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def column_sums_0(x, v1_2_sum_of_block, rows, n):
    """Items: (rows + 255) // 256 x n, a thread for each."""
    across, down = cuda.grid(2)
    all_across, all_down = cuda.gridsize(2)
    for block in range(down, (rows + 255) // 256, all_down):
        for i0 in range(across, n, all_across):
            length = min(256, rows - block * 256)
            v1_2_sum = f32(0.0)
            for r1 in range(length):
                x_i = x[block * 256 + r1, i0]
                v1_2_sum += x_i
            v1_2_sum_of_block[block, i0] = v1_2_sum


@cuda.jit
def column_sums_1(v1, v1_2_sum_of_block, rows, n):
    """Items: n, a thread for each."""
    for i0 in range(cuda.grid(1), n, cuda.gridsize(1)):
        v1_2_sum = 0.0
        for block in range((rows + 255) // 256):
            v1_2_sum += f64(v1_2_sum_of_block[block, i0])
        v1[i0] = f32(v1_2_sum)


def column_sums(x, v1, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[rows, n], input
    v1: f32[n], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (n,):
        raise ValueError(f"v1 has the shape {v1.shape}, and not {(n,)}")
    v1_2_sum_of_block = cuda.device_array(((rows + 255) // 256, n), f32, stream=stream)
    if n * ((rows + 255) // 256) > 0:
        grid = noyau_blocks(n, 32), noyau_blocks((rows + 255) // 256, 8)
        column_sums_0[grid, (32, 8), stream](x, v1_2_sum_of_block, rows, n)
    if n > 0:
        column_sums_1[noyau_blocks(n, THREADS), THREADS, stream](v1, v1_2_sum_of_block, rows, n)
