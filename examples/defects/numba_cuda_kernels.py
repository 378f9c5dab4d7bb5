"""Defects of kernels in Numba-CUDA, each beside its mended twin: noyau check examples/defects/numba_cuda_kernels.py

No GPU is needed. The line of a defect says what it is (`defect: KIND`); where two lines are at fault, `other` is the
other one.
"""

import numpy as np
from numba import cuda, float32, int32

import noyau

BLOCK = 64


def blocks(n):
    return (n + BLOCK - 1) // BLOCK, BLOCK


# A sum without a guard: the last block goes past the end.


@noyau.op("f32[n], f32[n] -> f32[n]")
def add(x, y):
    return x + y


@add.kernel(launch=blocks)
@cuda.jit
def add_broken(x, y, out):
    i = cuda.grid(1)
    out[i] = x[i] + y[i]  # defect: out-of-bounds


@add.kernel(launch=blocks)
@cuda.jit
def add_mended(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + y[i]


# The grid is rounded down: the last n % BLOCK cells are never written.


@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x


@double.kernel(launch=lambda n: (n // BLOCK, BLOCK))  # defect: unwritten
@cuda.jit
def double_broken(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]


@double.kernel(launch=blocks)
@cuda.jit
def double_mended(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]


# A block for each cell, in a kernel that strides over the grid: right, and with 256 times too many threads.


@noyau.op("f32[n] -> f32[n]")
def fourfold(x):
    return 4 * x


@fourfold.kernel(launch=lambda n: (n, 256))  # defect: launch
@cuda.jit
def strided_broken(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = 4 * x[i]


@fourfold.kernel(launch=lambda n: ((n + 255) // 256, 256))
@cuda.jit
def strided_mended(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = 4 * x[i]


# Work split over four streams, a quarter each: the last size % 4 elements are never done.


@noyau.op("f32[n] -> f32[n]")
def shifted(x):
    return x + np.float32(1)


@shifted.kernel(launch=lambda n: (4, BLOCK))  # defect: unwritten
@cuda.jit
def quarters_broken(x, out):
    share = x.size // 4
    for i in range(cuda.threadIdx.x, share, BLOCK):
        out[cuda.blockIdx.x * share + i] = x[cuda.blockIdx.x * share + i] + float32(1)


@shifted.kernel(launch=lambda n: (4, BLOCK))
@cuda.jit
def quarters_mended(x, out):
    share = (x.size + 3) // 4
    for i in range(cuda.threadIdx.x, share, BLOCK):
        if cuda.blockIdx.x * share + i < x.size:
            out[cuda.blockIdx.x * share + i] = x[cuda.blockIdx.x * share + i] + float32(1)


# Every thread increments one counter.


@noyau.op("i32[n] -> i32[]")
def positive(x):
    return (x > 0).sum(dtype=np.int32)


@positive.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def counter_broken(x, out):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        out[()] += 1  # defect: race


@positive.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def counter_mended(x, out):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        cuda.atomic.add(out, (), 1)


# A histogram in shared memory: bins are incremented without an atomic.


@noyau.op("i32[n] -> i32[16]", inputs=lambda rng, n=500: (rng.integers(0, 16, n, dtype=np.int32),))
def histogram(x):
    return (x[:, None] == np.arange(16)).sum(0, dtype=np.int32)


@histogram.kernel(launch=lambda device: (device.sm_count, BLOCK), init={"out": 0})
@cuda.jit
def privatised_broken(x, out):
    own = cuda.shared.array(16, int32)
    thread = cuda.threadIdx.x
    if thread < 16:
        own[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        own[x[i]] += 1  # defect: race
    cuda.syncthreads()
    if thread < 16:
        cuda.atomic.add(out, thread, own[thread])


@histogram.kernel(launch=lambda device: (device.sm_count, BLOCK), init={"out": 0})
@cuda.jit
def privatised_mended(x, out):
    own = cuda.shared.array(16, int32)
    thread = cuda.threadIdx.x
    if thread < 16:
        own[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(own, x[i], 1)
    cuda.syncthreads()
    if thread < 16:
        cuda.atomic.add(out, thread, own[thread])


# Bins by truncation: what lies just below the range lands in bin 0.


@noyau.op("f32[n] -> i32[n]", inputs=lambda rng, n=500: (rng.standard_normal(n, np.float32),))
def bins(x):
    return np.floor((x + 1) / 0.25).astype(np.int32)


@bins.kernel(launch=blocks)
@cuda.jit
def truncated_broken(x, out):  # defect: wrong-value
    i = cuda.grid(1)
    if i < x.size:
        out[i] = int32((x[i] + 1) / 0.25)


@bins.kernel(launch=blocks)
@cuda.jit
def truncated_mended(x, out):
    i = cuda.grid(1)
    if i < x.size:
        place = (x[i] + 1) / 0.25
        whole = int32(place)
        out[i] = whole - 1 if whole > place else whole


# A sum by halves in shared memory: no barrier between the steps.


@noyau.op("f32[n] -> f32[]")
def total(x):
    return x.sum()


@total.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def halves_broken(x, out):
    own = cuda.shared.array(BLOCK, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    own[thread] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = BLOCK // 2
    while half > 0:
        if thread < half:
            own[thread] += own[thread + half]  # defect: race
        half //= 2
    if thread == 0:
        cuda.atomic.add(out, (), own[0])


@total.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def halves_mended(x, out):
    own = cuda.shared.array(BLOCK, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    own[thread] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = BLOCK // 2
    while half > 0:
        if thread < half:
            own[thread] += own[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        cuda.atomic.add(out, (), own[0])


# Neighbours through shared memory: threads past the end return before the barrier.


@noyau.op("f32[n] -> f32[n]")
def backwards(x):
    return x[::-1]


@backwards.kernel(launch=blocks)
@cuda.jit
def early_broken(x, out):
    own = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    if i >= x.size:
        return  # other
    own[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()  # defect: divergent-barrier
    out[x.size - 1 - i] = own[cuda.threadIdx.x]


@backwards.kernel(launch=blocks)
@cuda.jit
def early_mended(x, out):
    own = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    if i < x.size:
        own[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    if i < x.size:
        out[x.size - 1 - i] = own[cuda.threadIdx.x]


# A barrier in one branch alone.


@noyau.op("f32[n] -> f32[n]")
def negated(x):
    return -x


@negated.kernel(launch=blocks)
@cuda.jit
def branch_broken(x, out):
    i = cuda.grid(1)
    if cuda.threadIdx.x % 2 == 0:
        cuda.syncthreads()  # defect: divergent-barrier
    if i < x.size:
        out[i] = -x[i]


@negated.kernel(launch=blocks)
@cuda.jit
def branch_mended(x, out):
    i = cuda.grid(1)
    cuda.syncthreads()
    if i < x.size:
        out[i] = -x[i]


# A sum of a warp by shuffles: lanes past the end have returned, and the mask names them all.


@noyau.op("f32[n] -> f32[]")
def warps(x):
    return x.sum()


@warps.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def shuffle_broken(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return  # other
    value = x[i]
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)  # defect: divergent-barrier
    if cuda.laneid == 0:
        cuda.atomic.add(out, (), value)


@warps.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def shuffle_mended(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else float32(0)
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
    if cuda.laneid == 0:
        cuda.atomic.add(out, (), value)


# A stencil whose halo is loaded after the barrier by the first threads, and read by others.


@noyau.op("f32[n] -> f32[n]")
def smooth(x):
    wide = np.concatenate((x[:1], x, x[-1:]))
    return (wide[:-2] + wide[1:-1] + wide[2:]) / np.float32(3)


@smooth.kernel(launch=blocks)
@cuda.jit
def halo_broken(x, out):
    own = cuda.shared.array(BLOCK + 2, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    own[thread + 1] = x[min(i, x.size - 1)]
    cuda.syncthreads()
    if thread < 2:
        own[thread * (BLOCK + 1)] = x[max(0, min(i + thread * BLOCK - 1, x.size - 1))]  # other
    if i < x.size:
        out[i] = (own[thread] + own[thread + 1] + own[thread + 2]) / float32(3)  # defect: race


@smooth.kernel(launch=blocks)
@cuda.jit
def halo_mended(x, out):
    own = cuda.shared.array(BLOCK + 2, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    own[thread + 1] = x[min(i, x.size - 1)]
    if thread == 0:
        own[0] = x[max(0, min(i - 1, x.size - 1))]
    if thread == BLOCK - 1:
        own[BLOCK + 1] = x[min(i + 1, x.size - 1)]
    cuda.syncthreads()
    if i < x.size:
        out[i] = (own[thread] + own[thread + 1] + own[thread + 2]) / float32(3)


# A tile that only some threads fill, and all read.


@noyau.op("f32[n, 32] -> f32[n, 32]")
def flipped(x):
    return x[:, ::-1]


@flipped.kernel(launch=lambda n: (n, 32))
@cuda.jit
def tile_broken(x, out):
    own = cuda.shared.array(32, float32)
    thread, row = cuda.threadIdx.x, cuda.blockIdx.x
    if thread < 31:
        own[thread] = x[row, thread]
    cuda.syncthreads()
    out[row, thread] = own[31 - thread]  # defect: uninitialised


@flipped.kernel(launch=lambda n: (n, 32))
@cuda.jit
def tile_mended(x, out):
    own = cuda.shared.array(32, float32)
    thread, row = cuda.threadIdx.x, cuda.blockIdx.x
    own[thread] = x[row, thread]
    cuda.syncthreads()
    out[row, thread] = own[31 - thread]


# Each block writes its sum, and the last to come adds them up: without a fence it may read what was there before.


@noyau.op("f32[n] -> f32[], parts: f32[1024], tickets: i32[]", inputs=lambda rng, n=500: (rng.random(n, np.float32),))
def last_block(x):
    sums = [part.sum() for part in np.split(x, range(BLOCK, x.size, BLOCK))]
    parts = np.zeros(1024, np.float32)
    parts[: len(sums)] = sums
    return x.sum(), parts, np.int32(-(-x.size // BLOCK))


@last_block.kernel(launch=blocks, init={"out": 0, "parts": 0, "tickets": 0})
@cuda.jit
def ticket_broken(x, out, parts, tickets):
    if cuda.threadIdx.x == 0:
        first = cuda.blockIdx.x * BLOCK
        part = float32(0)
        for i in range(first, min(first + BLOCK, x.size)):
            part += x[i]
        parts[cuda.blockIdx.x] = part  # other
        if cuda.atomic.add(tickets, (), 1) == cuda.gridDim.x - 1:
            for block in range(cuda.gridDim.x):
                out[()] += parts[block]  # defect: race


@last_block.kernel(launch=blocks, init={"out": 0, "parts": 0, "tickets": 0})
@cuda.jit
def ticket_mended(x, out, parts, tickets):
    if cuda.threadIdx.x == 0:
        first = cuda.blockIdx.x * BLOCK
        part = float32(0)
        for i in range(first, min(first + BLOCK, x.size)):
            part += x[i]
        parts[cuda.blockIdx.x] = part
        cuda.threadfence()
        if cuda.atomic.add(tickets, (), 1) == cuda.gridDim.x - 1:
            for block in range(cuda.gridDim.x):
                out[()] += parts[block]
