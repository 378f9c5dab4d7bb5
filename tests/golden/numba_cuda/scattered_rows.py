# the kernel scattered_rows

import numpy as np
from numba import cuda

i64 = np.int64
f32 = np.float32
THREADS = 256  # of a block


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def scattered_rows_0(data, v6, words, n):
    """Items: n * words, a thread for each."""
    for i1 in range(cuda.grid(1), n * words, cuda.gridsize(1)):
        v6[i1] = data[i1]


@cuda.jit
def scattered_rows_1(ids, scale, x, v6, words, n, rows):
    """Items: rows x n, a thread for each."""
    across, down = cuda.grid(2)
    all_across, all_down = cuda.gridsize(2)
    for v_item in range(down, rows, all_down):
        for i1 in range(across, n, all_across):
            ids_i = ids[v_item]
            at = ids_i
            v_inside = 0 <= at < words
            scale_i = scale[v_item]
            x_i = x[v_item, i1]
            v5 = scale_i * x_i
            if v_inside:
                cuda.atomic.add(v6, (at, i1), v5)


def scattered_rows(data, ids, scale, x, v6, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    data: f32[words, n], input
    ids: i64[rows], input
    scale: f32[rows], input
    x: f32[rows, n], input
    v6: f32[words, n], output
    """
    words = data.shape[0]
    n = data.shape[1]
    rows = ids.shape[0]
    if scale.shape != (rows,):
        raise ValueError(f"scale has the shape {scale.shape}, and not {(rows,)}")
    if x.shape != (rows, n):
        raise ValueError(f"x has the shape {x.shape}, and not {(rows, n)}")
    if v6.shape != (words, n):
        raise ValueError(f"v6 has the shape {v6.shape}, and not {(words, n)}")
    if n * words > 0:
        scattered_rows_0[noyau_blocks(n * words, THREADS), THREADS, stream](data.reshape(-1), v6.reshape(-1), words, n)
    if n * rows > 0:
        grid = noyau_blocks(n, 32), noyau_blocks(rows, 8)
        scattered_rows_1[grid, (32, 8), stream](ids, scale, x, v6, words, n, rows)
