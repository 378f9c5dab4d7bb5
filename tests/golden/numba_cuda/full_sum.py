# the kernel full_sum

import numpy as np
from numba import cuda

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
def full_sum_0(x, v1_2_sum_of_block, n):
    """Items: (n + 32767) // 32768, a block for each."""
    thread = cuda.threadIdx.x
    for block in range(cuda.blockIdx.x, (n + 32767) // 32768, cuda.gridDim.x):
        length = min(32768, n - block * 32768)
        v1_2_sum = 0.0
        for r1 in range(thread, length, THREADS):
            x_i = x[block * 32768 + r1]
            v1_2_sum += f64(x_i)
        v1_2_sum = noyau_sum_f64(v1_2_sum)
        if thread == 0:
            v1_2_sum_of_block[block] = v1_2_sum


@cuda.jit
def full_sum_1(v1, v1_2_sum_of_block, n):
    """One block."""
    thread = cuda.threadIdx.x
    v1_2_sum = 0.0
    for chunks in range(thread, (n + 32767) // 32768, THREADS):
        v1_2_sum += v1_2_sum_of_block[chunks]
    v1_2_sum = noyau_sum_f64(v1_2_sum)
    if thread == 0:
        v1[0] = f32(v1_2_sum)


def full_sum(x, v1, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[n], input
    v1: f32[], output
    """
    n = x.shape[0]
    v1_2_sum_of_block = cuda.device_array(((n + 32767) // 32768,), f64, stream=stream)
    if (n + 32767) // 32768 > 0:
        full_sum_0[noyau_blocks((n + 32767) // 32768), THREADS, stream](x, v1_2_sum_of_block, n)
    full_sum_1[1, THREADS, stream](v1.reshape(-1), v1_2_sum_of_block, n)
