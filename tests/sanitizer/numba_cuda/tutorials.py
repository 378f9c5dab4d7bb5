"""Correct kernels of Numba-CUDA in the style of tutorials: nothing may be found in them."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32, float64, int32

N, B = 150, 64  # cells, and threads of a block
GRID = (N + B - 1) // B
RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@cuda.jit
def saxpy(a, x, y):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.shape[0]:
        y[i] = a * x[i] + y[i]


@cuda.jit
def hypot(x, y, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = math.sqrt(x[i] ** 2 + y[i] ** 2)


@cuda.jit
def grey(image, out):
    row, column = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        red, green, blue = image[row, column]
        out[row, column] = 0.3 * red + 0.6 * green + 0.1 * blue


@cuda.jit
def matmul_naive(a, b, c):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = float32(0.0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


T = 8


@cuda.jit
def matmul_tiled(a, b, c):
    tile_a = cuda.shared.array(shape=(T, T), dtype=float32)
    tile_b = cuda.shared.array(shape=(T, T), dtype=float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for step in range((a.shape[1] + T - 1) // T):
        tile_a[ty, tx] = 0
        tile_b[ty, tx] = 0
        if y < a.shape[0] and tx + step * T < a.shape[1]:
            tile_a[ty, tx] = a[y, tx + step * T]
        if x < b.shape[1] and ty + step * T < b.shape[0]:
            tile_b[ty, tx] = b[ty + step * T, x]
        cuda.syncthreads()
        for k in range(T):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@cuda.jit
def transpose(a, out):
    tile = cuda.shared.array((T, T + 1), float32)
    x, y = cuda.grid(2)
    if y < a.shape[0] and x < a.shape[1]:
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = a[y, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * T + cuda.threadIdx.x
    y = cuda.blockIdx.x * T + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


@cuda.jit
def sum_modulo(x, out):
    own = cuda.shared.array(B, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    own[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    s = 1
    while s < cuda.blockDim.x:
        if t % (2 * s) == 0:
            own[t] += own[t + s]
        cuda.syncthreads()
        s *= 2
    if t == 0:
        cuda.atomic.add(out, 0, own[0])


@cuda.jit
def sum_warp_tail(x, out):
    own = cuda.shared.array(B, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    own[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    if t < 32:
        value = own[t] + own[t + 32]
        for offset in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        if t == 0:
            cuda.atomic.add(out, 0, value)


@cuda.jit
def sum_syncwarp(x, out):
    own = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    own[t] = 0
    for i in range(t, x.size, 32):
        own[t] += x[i]
    cuda.syncwarp()
    half = 16
    while half > 0:
        if t < half:
            own[t] += own[t + half]
        cuda.syncwarp()
        half //= 2
    if t == 0:
        out[0] = own[0]


@cuda.jit(device=True)
def warp_sum(value):
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, offset)
    return value


@cuda.jit(device=True)
def block_sum(value, parts):
    value = warp_sum(value)
    warp = cuda.threadIdx.x // 32
    if cuda.laneid == 0:
        parts[warp] = value
    cuda.syncthreads()
    total = float32(0)
    for k in range(cuda.blockDim.x // 32):
        total += parts[k]
    return total


@cuda.jit
def layer_norm(x, out):
    parts = cuda.shared.array(2, float32)
    squares = cuda.shared.array(2, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    value = x[row, t]
    mean = block_sum(value, parts) / B
    variance = block_sum((value - mean) ** 2, squares) / B
    out[row, t] = (value - mean) / math.sqrt(variance + 1e-5)


@cuda.jit
def softmax_rows(x, out):
    own = cuda.shared.array(B, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    own[t] = x[row, t]
    cuda.syncthreads()
    high = own[0]
    for k in range(1, B):
        high = max(high, own[k])
    e = math.exp(own[t] - high)
    cuda.syncthreads()
    own[t] = e
    cuda.syncthreads()
    total = float32(0)
    for k in range(B):
        total += own[k]
    out[row, t] = e / total


@cuda.jit
def histogram_global(x, low, width, bins):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        place = int32((x[i] - low) / width)
        if 0 <= place < bins.size:
            cuda.atomic.add(bins, place, 1)


@cuda.jit
def scan_block(x, out):
    own = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    own[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < B:
        value = own[t - step] if t >= step else float32(0)
        cuda.syncthreads()
        own[t] += value
        cuda.syncthreads()
        step *= 2
    out[t] = own[t]


@cuda.jit
def scan_buffered(x, out):
    own = cuda.shared.array((2, B), float32)
    t = cuda.threadIdx.x
    now = 0
    own[now, t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < B:
        own[1 - now, t] = own[now, t] + (own[now, t - step] if t >= step else float32(0))
        now = 1 - now
        cuda.syncthreads()
        step *= 2
    out[t] = own[now, t]


@cuda.jit
def stencil(x, out):
    own = cuda.shared.array(B + 2, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        own[t + 1] = x[i]
        if t == 0:
            own[0] = x[i - 1] if i > 0 else x[0]
        if t == B - 1 or i == x.size - 1:
            own[t + 2] = x[i + 1] if i + 1 < x.size else x[i]
    cuda.syncthreads()
    if i < x.size:
        out[i] = (own[t] + own[t + 1] + own[t + 2]) / float32(3)


@cuda.jit
def last_block(x, parts, ticket, out):
    flag = cuda.shared.array(1, int32)
    own = cuda.shared.array(B, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    own[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(B):
            total += own[k]
        parts[cuda.blockIdx.x] = total
        cuda.threadfence()
        flag[0] = cuda.atomic.add(ticket, 0, 1)
    cuda.syncthreads()
    if flag[0] == cuda.gridDim.x - 1 and t == 0:
        total = float32(0)
        for k in range(cuda.gridDim.x):
            total += parts[k]
        out[0] = total


@cuda.jit
def compact(x, out, count):
    i = cuda.grid(1)
    keep = i < x.size and x[i] > 0
    ballot = cuda.ballot_sync(0xFFFFFFFF, keep)
    before = cuda.popc(ballot & cuda.lanemask_lt())
    base = 0
    if cuda.laneid == 0:
        base = cuda.atomic.add(count, 0, cuda.popc(ballot))
    base = cuda.shfl_sync(0xFFFFFFFF, base, 0)
    if keep:
        out[base + before] = x[i]


@cuda.jit
def dot_local(x, y, out):
    own = cuda.local.array(4, float64)
    for k in range(4):
        own[k] = 0.0
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        own[i % 4] += x[i] * y[i]
    cuda.atomic.add(out, 0, own[0] + own[1] + own[2] + own[3])


WEIGHTS = np.array([0.25, 0.5, 0.25], np.float32)


@cuda.jit
def convolve(x, out):
    weights = cuda.const.array_like(WEIGHTS)
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        out[i] = weights[0] * x[i - 1] + weights[1] * x[i] + weights[2] * x[i + 1]
    elif i < x.size:
        out[i] = x[i]


@cuda.jit
def any_above(x, out):
    i = cuda.grid(1)
    count = cuda.syncthreads_count(i < x.size and x[i] > 1)
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = count


@cuda.jit
def dynamic(x, out):
    own = cuda.shared.array(0, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        own[t] = x[i]
        out[i] = own[t]


@cuda.jit
def lock_free_max(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, 0, x[i])


@cuda.jit
def max_by_swaps(x, out):
    i = cuda.grid(1)
    if i < x.size:
        old = out[0]
        while x[i] > old:
            guess = old
            old = cuda.atomic.cas(out, 0, guess, x[i])
            if old == guess:
                break


X, Y, A, C = f32(N), f32(N), f32(19, 21), f32(21, 18)
ROWS, LINE = f32(3, B), f32(B)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def smoothed():
    wide = np.concatenate((X[:1], X, X[-1:]))
    return (wide[:-2] + wide[1:-1] + wide[2:]) / 3


def convolved():
    inner = 0.25 * X[:-2] + 0.5 * X[1:-1] + 0.25 * X[2:]
    return np.concatenate((X[:1], inner, X[-1:]))


def counted():
    return np.array([(X[k * B : (k + 1) * B] > 1).sum() for k in range(GRID)])


# Each kernel, its launch, what it is called with, and what its last argument holds then.
TUTORIALS = {
    "saxpy": (saxpy, (GRID, B), (np.float32(2), X, Y.copy()), lambda: 2 * X + Y),
    "hypot": (hypot, (2, 32), (X, Y, zeros(N)), lambda: np.hypot(X, Y)),
    "grey": (grey, ((2, 3), (4, 4)), (f32(7, 9, 3), zeros(7, 9)), None),
    "matmul_naive": (matmul_naive, ((3, 3), (T, T)), (A, C, zeros(19, 18)), lambda: A @ C),
    "matmul_tiled": (matmul_tiled, ((3, 3), (T, T)), (A, C, zeros(19, 18)), lambda: A @ C),
    "transpose": (transpose, ((3, 3), (T, T)), (A, zeros(21, 19)), lambda: A.T),
    "sum_modulo": (sum_modulo, (GRID, B), (X, zeros(1)), lambda: X.sum()),
    "sum_warp_tail": (sum_warp_tail, (GRID, B), (X, zeros(1)), lambda: X.sum()),
    "sum_syncwarp": (sum_syncwarp, (1, 32), (X, zeros(1)), lambda: X.sum()),
    "layer_norm": (
        layer_norm,
        (3, B),
        (ROWS, zeros(3, B)),
        lambda: (ROWS - ROWS.mean(-1, keepdims=True)) / np.sqrt(ROWS.var(-1, keepdims=True) + 1e-5),
    ),
    "softmax_rows": (softmax_rows, (3, B), (ROWS, zeros(3, B)), lambda: softmax(ROWS)),
    "histogram_global": (
        histogram_global,
        (2, 32),
        (X, np.float32(-4), np.float32(1), zeros(8, dtype=np.int32)),
        lambda: np.histogram(X, np.arange(-4, 5))[0],
    ),
    "scan_block": (scan_block, (1, B), (LINE, zeros(B)), lambda: np.cumsum(LINE)),
    "scan_buffered": (scan_buffered, (1, B), (LINE, zeros(B)), lambda: np.cumsum(LINE)),
    "stencil": (stencil, (GRID, B), (X, zeros(N)), smoothed),
    "last_block": (last_block, (GRID, B), (X, zeros(GRID), zeros(1, dtype=np.int32), zeros(1)), lambda: X.sum()),
    "compact": (compact, (GRID, B), (X, zeros(N), zeros(1, dtype=np.int32)), lambda: (X > 0).sum()),
    "dot_local": (dot_local, (2, 32), (X, Y, zeros(1, dtype=np.float64)), lambda: X @ Y),
    "convolve": (convolve, (GRID, B), (X, zeros(N)), convolved),
    "any_above": (any_above, (GRID, B), (X, zeros(GRID, dtype=np.int32)), counted),
    "dynamic": (dynamic, (GRID, B, 0, 4 * B), (X, zeros(N)), lambda: X),
    "max_by_swaps": (
        max_by_swaps,
        (GRID, B),
        (np.int32(9 * X), zeros(1, dtype=np.int32)),
        lambda: np.int32(9 * X).max(),
    ),
    "lock_free_max": (lock_free_max, (GRID, B), (X, zeros(1)), lambda: max(X.max(), 0)),
}
