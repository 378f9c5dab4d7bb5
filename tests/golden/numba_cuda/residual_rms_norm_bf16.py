# the kernel residual_rms_norm_bf16

import numpy as np
from numba import cuda
from numba.cuda import libdevice

i32 = np.int32
u16 = np.uint16
u32 = np.uint32
f32 = np.float32
f64 = np.float64
THREADS = 256  # of a block


@cuda.jit(device=True)
def noyau_from_bits_f32(x):
    return libdevice.int_as_float(i32(x))


# A bfloat16 is the upper half of a float. 0.0 ulp.
@cuda.jit(device=True)
def noyau_bf16_to_f32(x):
    return noyau_from_bits_f32(u32(u32(x) << u32(16)))


@cuda.jit(device=True)
def noyau_bits_f32(x):
    return u32(libdevice.float_as_int(x))


# To the nearest, halves to even. 0.5 ulp.
@cuda.jit(device=True)
def noyau_f32_to_bf16(x):
    bits = noyau_bits_f32(x)
    rounded = u32(u32(bits + u32(32767)) + u32(u32(bits >> u32(16)) & u32(1)))
    return u16(u32((u32(bits | u32(4194304)) if x != x else rounded) >> u32(16)))


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
def residual_rms_norm_bf16_0(x, r, w, v10, v3, v17, rows, n):
    """Items: rows, a block for each."""
    thread = cuda.threadIdx.x
    for i0 in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
        v8 = f32(n)
        v10_i = noyau_bf16_to_f32(v10[0])
        v5_sum = 0.0
        for r1 in range(thread, n, THREADS):
            x_i = noyau_bf16_to_f32(x[i0, r1])
            v_r_i = noyau_bf16_to_f32(r[i0, r1])
            v3_2 = x_i + v_r_i
            v4 = v3_2 * v3_2
            v5_sum += f64(v4)
        v5_sum = noyau_sum_f64(v5_sum)
        v5 = f32(v5_sum)
        v9 = v5 / v8
        v12 = v9 + v10_i
        v13 = libdevice.rsqrtf(v12)
        for i1 in range(thread, n, THREADS):
            x_i = noyau_bf16_to_f32(x[i0, i1])
            v_r_i = noyau_bf16_to_f32(r[i0, i1])
            v3_2 = x_i + v_r_i
            v3[i0, i1] = noyau_f32_to_bf16(v3_2)
            w_i = noyau_bf16_to_f32(w[i1])
            v15 = v3_2 * v13
            v17[i0, i1] = noyau_f32_to_bf16(w_i * v15)


def residual_rms_norm_bf16(x, r, w, v10, v3, v17, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: bf16[rows, n], input, as its bits in uint16
    r: bf16[rows, n], input, as its bits in uint16
    w: bf16[n], input, as its bits in uint16
    v10: bf16[], input, as its bits in uint16
    v3: bf16[rows, n], output, as its bits in uint16
    v17: bf16[rows, n], output, as its bits in uint16
    """
    rows = x.shape[0]
    n = x.shape[1]
    if r.shape != (rows, n):
        raise ValueError(f"r has the shape {r.shape}, and not {(rows, n)}")
    if w.shape != (n,):
        raise ValueError(f"w has the shape {w.shape}, and not {(n,)}")
    if v3.shape != (rows, n):
        raise ValueError(f"v3 has the shape {v3.shape}, and not {(rows, n)}")
    if v17.shape != (rows, n):
        raise ValueError(f"v17 has the shape {v17.shape}, and not {(rows, n)}")
    if rows > 0:
        residual_rms_norm_bf16_0[noyau_blocks(rows), THREADS, stream](x, r, w, v10.reshape(-1), v3, v17, rows, n)
