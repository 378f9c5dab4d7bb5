# the kernel gathered

import numpy as np
from numba import cuda

i64 = np.int64
f32 = np.float32
f64 = np.float64
THREADS = 256  # of a block


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
def gathered_0(table, ids, v5, v2, words, n, b, s):
    """Items: b * s, a block for each."""
    thread = cuda.threadIdx.x
    for i1 in range(cuda.blockIdx.x, b * s, cuda.gridDim.x):
        ids_i = ids[i1]
        at = ids_i
        v_inside = 0 <= at < words
        v4_sum = 0.0
        for r1 in range(thread, n, THREADS):
            table_i = table[at, r1] if v_inside else f32(0.0)
            v3 = table_i * table_i
            v4_sum += f64(v3)
        v4_sum = noyau_sum_f64(v4_sum)
        if thread == 0:
            v5[i1] = f32(v4_sum)
        for i2 in range(thread, n, THREADS):
            v2[i1 * n + i2] = table[at, i2] if v_inside else f32(0.0)


def gathered(table, ids, v5, v2, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    table: f32[words, n], input
    ids: i64[b, s], input
    v5: f32[b, s, 1], output
    v2: f32[b, s, n], output
    """
    words = table.shape[0]
    n = table.shape[1]
    b = ids.shape[0]
    s = ids.shape[1]
    if v5.shape != (b, s, 1):
        raise ValueError(f"v5 has the shape {v5.shape}, and not {(b, s, 1)}")
    if v2.shape != (b, s, n):
        raise ValueError(f"v2 has the shape {v2.shape}, and not {(b, s, n)}")
    if b * s > 0:
        gathered_0[noyau_blocks(b * s), THREADS, stream](table, ids.reshape(-1), v5.reshape(-1), v2.reshape(-1), words, n, b, s)
