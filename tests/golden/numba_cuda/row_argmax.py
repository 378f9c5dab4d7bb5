# the kernel row_argmax

import numpy as np
from numba import cuda

i64 = np.int64
f32 = np.float32
THREADS = 256  # of a block


@cuda.jit(device=True)
def noyau_argmax_f32_i64(own_best, own_at):
    """One state of those of a block: the upper half is merged into the lower one, again and again."""
    shared_best = cuda.shared.array(THREADS, f32)
    shared_at = cuda.shared.array(THREADS, i64)
    thread = cuda.threadIdx.x
    shared_best[thread] = own_best
    shared_at[thread] = own_at
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            part_0 = shared_best[half + thread] != shared_best[half + thread]
            part_1 = shared_best[thread] == shared_best[thread]
            part_2 = part_0 & part_1
            part_3 = (shared_best[thread] != shared_best[thread]) & part_0
            part_4 = (shared_best[half + thread] > shared_best[thread]) | part_2
            part_5 = (shared_best[thread] == shared_best[half + thread]) | part_3
            part_6 = part_4 & part_1
            part_7 = part_5 & (shared_at[half + thread] < shared_at[thread])
            part_8 = part_6 | part_7
            next_shared_best = shared_best[half + thread] if part_8 else shared_best[thread]
            next_shared_at = shared_at[half + thread] if part_8 else shared_at[thread]
            shared_best[thread] = next_shared_best
            shared_at[thread] = next_shared_at
        cuda.syncthreads()
        half //= 2
    merged = shared_best[0], shared_at[0]
    cuda.syncthreads()  # all have read it before the next merge takes the memory
    return merged


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def row_argmax_0(x, v1, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        v1_2_best = f32(-np.inf)
        v1_2_at = 9223372036854775807
        for r1 in range(thread, n, THREADS):
            x_i = x[i0, r1]
            part_0 = x_i != x_i
            part_1 = v1_2_best == v1_2_best
            part_2 = part_0 & part_1
            part_3 = (v1_2_best != v1_2_best) & part_0
            part_4 = (x_i > v1_2_best) | part_2
            part_5 = (v1_2_best == x_i) | part_3
            part_6 = part_4 & part_1
            part_7 = part_5 & (r1 < v1_2_at)
            part_8 = part_6 | part_7
            next_v1_2_best = x_i if part_8 else v1_2_best
            next_v1_2_at = r1 if part_8 else v1_2_at
            v1_2_best = next_v1_2_best
            v1_2_at = next_v1_2_at
        v1_2_best, v1_2_at = noyau_argmax_f32_i64(v1_2_best, v1_2_at)
        if thread == 0:
            v1[i0] = v1_2_at


def row_argmax(x, v1, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[rows, n], input
    v1: i64[rows], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows,):
        raise ValueError(f"v1 has the shape {v1.shape}, and not {(rows,)}")
    if rows > 0:
        row_argmax_0[noyau_blocks(rows), THREADS, stream](x, v1, rows, n)
