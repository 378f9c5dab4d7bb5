# the kernel residual_rms_norm

import numpy as np
from numba import cuda
from numba.cuda import libdevice

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
def residual_rms_norm_0(v10, x, r, w, v17, v3, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        v10_i = v10[0]
        v8 = f32(n)
        v5_sum = 0.0
        for r1 in range(thread, n, THREADS):
            x_i = x[i0, r1]
            v_r_i = r[i0, r1]
            v3_2 = x_i + v_r_i
            v4 = v3_2 * v3_2
            v5_sum += f64(v4)
        v5_sum = noyau_sum_f64(v5_sum)
        v5 = f32(v5_sum)
        v9 = v5 / v8
        v12 = v10_i + v9
        v13 = libdevice.rsqrtf(v12)
        for i1 in range(thread, n, THREADS):
            x_i = x[i0, i1]
            v_r_i = r[i0, i1]
            v3_2 = x_i + v_r_i
            v15 = v13 * v3_2
            w_i = w[i1]
            v17[i0, i1] = v15 * w_i
            v3[i0, i1] = v3_2


def residual_rms_norm(v10, x, r, w, v17, v3, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    v10: f32[], input
    x: f32[rows, n], input
    r: f32[rows, n], input
    w: f32[n], input
    v17: f32[rows, n], output
    v3: f32[rows, n], output
    """
    rows = x.shape[0]
    n = x.shape[1]
    if r.shape != (rows, n):
        raise ValueError(f"r has the shape {r.shape}, and not {(rows, n)}")
    if w.shape != (n,):
        raise ValueError(f"w has the shape {w.shape}, and not {(n,)}")
    if v17.shape != (rows, n):
        raise ValueError(f"v17 has the shape {v17.shape}, and not {(rows, n)}")
    if v3.shape != (rows, n):
        raise ValueError(f"v3 has the shape {v3.shape}, and not {(rows, n)}")
    if rows > 0:
        residual_rms_norm_0[noyau_blocks(rows), THREADS, stream](v10.reshape(-1), x, r, w, v17, v3, rows, n)
