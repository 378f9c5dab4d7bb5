# the kernel running_sum

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
def running_sum_0(x, v1, v2, rows, n):
    """Items: (rows + 255) // 256, a block for each."""
    thread = cuda.threadIdx.x
    for block in range(cuda.blockIdx.x, (rows + 255) // 256, cuda.gridDim.x):
        if (block * 256 + thread) < rows:
            v1_sum = f32(0.0)
            for i1 in range(n):
                x_i = x[block * 256 + thread, i1]
                v1_sum += x_i
                v1_2 = v1_sum
                v1[block * 256 + thread, i1] = v1_2
                v2[block * 256 + thread, i1] = v1_2 * v1_2


@cuda.jit
def running_sum_1(x, v1_sum_of_chunks, rows, n):
    """Items: rows x (n + 15359) // 15360, a block for each."""
    thread = cuda.threadIdx.x
    for item in range(cuda.blockIdx.x, rows * ((n + 15359) // 15360), cuda.gridDim.x):
        i0 = item // ((n + 15359) // 15360)
        chunk = item % ((n + 15359) // 15360)
        length = min(15360, n - chunk * 15360)
        folded_sum = 0.0
        for cell in range(thread, length, THREADS):
            x_i = x[i0, chunk * 15360 + cell]
            folded_sum += f64(x_i)
        folded_sum = noyau_sum_f64(folded_sum)
        if thread == 0:
            v1_sum_of_chunks[i0 * ((n + 15359) // 15360) + chunk] = f32(folded_sum)


@cuda.jit
def running_sum_2(x, v1, v2, v1_sum_of_chunks, rows, n):
    """Items: rows x (n + 15359) // 15360, a block for each."""
    thread = cuda.threadIdx.x
    for item in range(cuda.blockIdx.x, rows * ((n + 15359) // 15360), cuda.gridDim.x):
        i0 = item // ((n + 15359) // 15360)
        chunk = item % ((n + 15359) // 15360)
        length = min(15360, n - chunk * 15360)
        earlier_sum = 0.0
        for cell in range(thread, chunk, THREADS):
            earlier_sum += f64(v1_sum_of_chunks[i0 * ((n + 15359) // 15360) + cell])
        earlier_sum = noyau_sum_f64(earlier_sum)
        earlier = f32(earlier_sum)
        v1_sum = cuda.shared.array(3840, f32)
        of_thread = cuda.shared.array(256, f32)
        of_group = cuda.shared.array(16, f32)
        carry = earlier
        for v_round in range((length + 3839) // 3840):
            length_2 = min(3840, length - v_round * 3840)
            for cell in range(thread, length_2, THREADS):
                v1_sum[cell] = x[i0, chunk * 15360 + v_round * 3840 + cell]
            cuda.syncthreads()
            own_sum = f32(0.0)
            for cell in range(max(0, min(15, length_2 - thread * 15))):
                own_sum += v1_sum[thread * 15 + cell]
            of_thread[thread] = own_sum
            cuda.syncthreads()
            for lane in range(thread, 16, THREADS):
                own_sum_2 = f32(0.0)
                for cell in range(16):
                    own_sum_2 += of_thread[lane * 16 + cell]
                of_group[lane] = own_sum_2
            cuda.syncthreads()
            groups_sum = f32(0.0)
            for cell in range(thread // 16):
                groups_sum += of_group[cell]
            groups = groups_sum
            threads_sum = f32(0.0)
            for cell in range(thread % 16):
                threads_sum += of_thread[(thread // 16) * 16 + cell]
            threads = threads_sum
            state = carry
            state += groups
            state += threads
            for cell in range(max(0, min(15, length_2 - thread * 15))):
                value = v1_sum[thread * 15 + cell]
                state += value
                v1_sum[thread * 15 + cell] = state
            cuda.syncthreads()
            for cell in range(thread, length_2, THREADS):
                v1_2 = v1_sum[cell]
                v1[i0, chunk * 15360 + v_round * 3840 + cell] = v1_2
                v2[i0, chunk * 15360 + v_round * 3840 + cell] = v1_2 * v1_2
            cuda.syncthreads()
            of_round_sum = f32(0.0)
            for cell in range(16):
                of_round_sum += of_group[cell]
            of_round = of_round_sum
            carry += of_round


@cuda.jit
def running_sum_3(x, v1, v2, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        v1_sum = cuda.shared.array(3840, f32)
        of_thread = cuda.shared.array(256, f32)
        of_group = cuda.shared.array(16, f32)
        carry = f32(0.0)
        for v_round in range((n + 3839) // 3840):
            length = min(3840, n - v_round * 3840)
            for cell in range(thread, length, THREADS):
                v1_sum[cell] = x[i0, v_round * 3840 + cell]
            cuda.syncthreads()
            own_sum = f32(0.0)
            for cell in range(max(0, min(15, length - thread * 15))):
                own_sum += v1_sum[thread * 15 + cell]
            of_thread[thread] = own_sum
            cuda.syncthreads()
            for lane in range(thread, 16, THREADS):
                own_sum_2 = f32(0.0)
                for cell in range(16):
                    own_sum_2 += of_thread[lane * 16 + cell]
                of_group[lane] = own_sum_2
            cuda.syncthreads()
            groups_sum = f32(0.0)
            for cell in range(thread // 16):
                groups_sum += of_group[cell]
            groups = groups_sum
            threads_sum = f32(0.0)
            for cell in range(thread % 16):
                threads_sum += of_thread[(thread // 16) * 16 + cell]
            threads = threads_sum
            state = carry
            state += groups
            state += threads
            for cell in range(max(0, min(15, length - thread * 15))):
                value = v1_sum[thread * 15 + cell]
                state += value
                v1_sum[thread * 15 + cell] = state
            cuda.syncthreads()
            for cell in range(thread, length, THREADS):
                v1_2 = v1_sum[cell]
                v1[i0, v_round * 3840 + cell] = v1_2
                v2[i0, v_round * 3840 + cell] = v1_2 * v1_2
            cuda.syncthreads()
            of_round_sum = f32(0.0)
            for cell in range(16):
                of_round_sum += of_group[cell]
            of_round = of_round_sum
            carry += of_round


def running_sum(x, v1, v2, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f32[rows, n], input
    v1: f32[rows, n], output
    v2: f32[rows, n], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows, n):
        raise ValueError(f"v1 has the shape {v1.shape}, and not {(rows, n)}")
    if v2.shape != (rows, n):
        raise ValueError(f"v2 has the shape {v2.shape}, and not {(rows, n)}")
    v1_sum_of_chunks = cuda.device_array((rows * ((n + 15359) // 15360),), f32, stream=stream)
    if ((n <= 128) & (not (rows <= 4096))) and (rows + 255) // 256 > 0:
        running_sum_0[noyau_blocks((rows + 255) // 256), THREADS, stream](x, v1, v2, rows, n)
    if ((not ((n <= 128) & (not (rows <= 4096)))) & ((not (n <= 15360)) & (rows <= 512))) and rows * ((n + 15359) // 15360) > 0:
        running_sum_1[noyau_blocks(rows * ((n + 15359) // 15360)), THREADS, stream](x, v1_sum_of_chunks, rows, n)
    if ((not ((n <= 128) & (not (rows <= 4096)))) & ((not (n <= 15360)) & (rows <= 512))) and rows * ((n + 15359) // 15360) > 0:
        running_sum_2[noyau_blocks(rows * ((n + 15359) // 15360)), THREADS, stream](x, v1, v2, v1_sum_of_chunks, rows, n)
    if ((not ((n <= 128) & (not (rows <= 4096)))) & (not ((not (n <= 15360)) & (rows <= 512)))) and rows > 0:
        running_sum_3[noyau_blocks(rows), THREADS, stream](x, v1, v2, rows, n)
