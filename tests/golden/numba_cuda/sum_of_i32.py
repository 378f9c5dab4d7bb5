# the kernel sum_of_i32

import numpy as np
from numba import cuda

i32 = np.int32
THREADS = 256  # of a block


@cuda.jit(device=True)
def noyau_sum_i32(own):
    """One state of those of a block: the upper half is merged into the lower one, again and again."""
    shared = cuda.shared.array(THREADS, i32)
    thread = cuda.threadIdx.x
    shared[thread] = own
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            shared[thread] = i32(shared[thread] + shared[half + thread])
        cuda.syncthreads()
        half //= 2
    merged = shared[0]
    cuda.syncthreads()  # all have read it before the next merge takes the memory
    return merged


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def sum_of_i32_0(x, v1, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        v1_2_sum = i32(0)
        for r1 in range(thread, n, THREADS):
            x_i = x[i0, r1]
            v1_2_sum = i32(v1_2_sum + x_i)
        v1_2_sum = noyau_sum_i32(v1_2_sum)
        if thread == 0:
            v1[i0] = v1_2_sum


def sum_of_i32(x, v1, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: i32[rows, n], input
    v1: i32[rows], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows,):
        raise ValueError(f"v1 has the shape {v1.shape}, and not {(rows,)}")
    if rows > 0:
        sum_of_i32_0[noyau_blocks(rows), THREADS, stream](x, v1, rows, n)
