"""Kernels of Numba-CUDA, right ones and wrong ones by their names. They were written after the checker."""

import numpy as np
from numba import cuda, float32, int32

import noyau


@noyau.op("f32[n] -> f32[n]")
def stencil(x):
    p = np.concatenate([x[:1], x, x[-1:]]) if len(x) else x
    return ((p[:-2] + p[1:-1] + p[2:]) / np.float32(3)) if len(x) else x


@stencil.kernel(launch=lambda n: ((n + 63) // 64, 64))
@cuda.jit
def st_right(x, out):
    t = cuda.shared.array(66, float32)
    i = cuda.grid(1)
    k = cuda.threadIdx.x
    n = x.size
    if i < n:
        t[k + 1] = x[i]
        if k == 0:
            t[0] = x[i - 1] if i > 0 else x[0]
        if k == 63 or i == n - 1:
            t[k + 2] = x[i + 1] if i + 1 < n else x[n - 1]
    cuda.syncthreads()
    if i < n:
        out[i] = (t[k] + t[k + 1] + t[k + 2]) / float32(3)


@stencil.kernel(launch=lambda n: ((n + 63) // 64, 64))
@cuda.jit
def st_wrong_halo(x, out):  # halo only where a block is full
    t = cuda.shared.array(66, float32)
    i = cuda.grid(1)
    k = cuda.threadIdx.x
    n = x.size
    if i < n:
        t[k + 1] = x[i]
        if k == 0:
            t[0] = x[i - 1] if i > 0 else x[0]
        if k == 63:
            t[k + 2] = x[i + 1] if i + 1 < n else x[n - 1]
    cuda.syncthreads()
    if i < n:
        out[i] = (t[k] + t[k + 1] + t[k + 2]) / float32(3)


@noyau.op("f32[n] -> f32[]")
def total(x):
    return x.sum()


@total.kernel(launch=lambda n: (1, 128), init={"out": 0})
@cuda.jit
def tot_right(x, out):
    t = cuda.shared.array(128, float32)
    k = cuda.threadIdx.x
    s = float32(0)
    for i in range(k, x.size, 128):
        s += x[i]
    t[k] = s
    cuda.syncthreads()
    step = 64
    while step > 0:
        if k < step:
            t[k] += t[k + step]
        cuda.syncthreads()
        step //= 2
    if k == 0:
        out[()] = t[0]


@total.kernel(launch=lambda n: (1, 128), init={"out": 0})
@cuda.jit
def tot_wrong_sync_in_if(x, out):
    t = cuda.shared.array(128, float32)
    k = cuda.threadIdx.x
    s = float32(0)
    for i in range(k, x.size, 128):
        s += x[i]
    t[k] = s
    cuda.syncthreads()
    step = 64
    while step > 0:
        if k < step:
            t[k] += t[k + step]
            cuda.syncthreads()
        step //= 2
    if k == 0:
        out[()] = t[0]


@total.kernel(launch=lambda n: (1, 128), init={"out": 0})
@cuda.jit
def tot_wrong_warp(x, out):  # no barrier between the last steps
    t = cuda.shared.array(128, float32)
    k = cuda.threadIdx.x
    s = float32(0)
    for i in range(k, x.size, 128):
        s += x[i]
    t[k] = s
    cuda.syncthreads()
    step = 64
    while step > 0:
        if k < step:
            t[k] += t[k + step]
        if step > 32:
            cuda.syncthreads()
        step //= 2
    if k == 0:
        out[()] = t[0]


@noyau.op("i32[n] -> i32[16]")
def histogram(x):
    return np.bincount(x & 15, minlength=16).astype(np.int32)


@histogram.kernel(launch=lambda n: ((n + 127) // 128, 128), init={"out": 0})
@cuda.jit
def hist_right(x, out):
    h = cuda.shared.array(16, int32)
    k = cuda.threadIdx.x
    if k < 16:
        h[k] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(h, x[i] & 15, 1)
    cuda.syncthreads()
    if k < 16:
        cuda.atomic.add(out, k, h[k])


@histogram.kernel(launch=lambda n: ((n + 127) // 128, 128), init={"out": 0})
@cuda.jit
def hist_wrong_flush(x, out):
    h = cuda.shared.array(16, int32)
    k = cuda.threadIdx.x
    if k < 16:
        h[k] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(h, x[i] & 15, 1)
    cuda.syncthreads()
    if k < 16:
        out[k] += h[k]


@histogram.kernel(launch=lambda n: ((n + 127) // 128, 128), init={"out": 0})
@cuda.jit
def hist_wrong_zero(x, out):  # zeroed without a barrier
    h = cuda.shared.array(16, int32)
    k = cuda.threadIdx.x
    if k < 16:
        h[k] = 0
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(h, x[i] & 15, 1)
    cuda.syncthreads()
    if k < 16:
        cuda.atomic.add(out, k, h[k])


@noyau.op("f32[n, m] -> f32[m, n]")
def transposed(x):
    return x.T.copy()


@transposed.kernel(launch=lambda n, m: (((m + 15) // 16, (n + 15) // 16), (16, 16)))
@cuda.jit
def tr_right(x, out):
    t = cuda.shared.array((16, 17), float32)
    c, r = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if r < x.shape[0] and c < x.shape[1]:
        t[ty, tx] = x[r, c]
    cuda.syncthreads()
    r2 = cuda.blockIdx.x * 16 + ty
    c2 = cuda.blockIdx.y * 16 + tx
    if r2 < x.shape[1] and c2 < x.shape[0]:
        out[r2, c2] = t[tx, ty]


@transposed.kernel(launch=lambda n, m: (((m + 15) // 16, (n + 15) // 16), (16, 16)))
@cuda.jit
def tr_wrong_guard(x, out):  # the guard of the load on the store too
    t = cuda.shared.array((16, 17), float32)
    c, r = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if r < x.shape[0] and c < x.shape[1]:
        t[ty, tx] = x[r, c]
    cuda.syncthreads()
    r2 = cuda.blockIdx.x * 16 + ty
    c2 = cuda.blockIdx.y * 16 + tx
    if r < x.shape[0] and c < x.shape[1]:
        out[r2, c2] = t[tx, ty]
