"""More correct kernels in the style of Triton's tutorials: with atomics, locks, scans and online sums."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

import noyau


def programs(n, BLOCK):
    return (triton.cdiv(n, BLOCK),)


@noyau.op("i32[n] -> i32[16]")
def histogram(x):
    return (x[:, None] == np.arange(16)).sum(0, dtype=np.int32)


@histogram.kernel(launch=programs, constants={"BLOCK": 64}, init={"out": 0})
@triton.jit
def by_atomics(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)


@histogram.kernel(launch=programs, constants={"BLOCK": 64}, init={"out": 0})
@triton.jit
def privatised(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.histogram(tl.load(x + at, mask=at < n, other=0), 16, mask=at < n)
    tl.atomic_add(out + tl.arange(0, 16), own, sem="relaxed")


@noyau.op("f32[n] -> f32[1], parts: f32[8], tickets: i32[1]")
def total(x):
    parts = np.zeros(8, np.float32)
    for k in range(8):
        parts[k] = x[k * 64 : (k + 1) * 64].sum()
    return x[:512].sum(keepdims=True), parts, np.full(1, 8, np.int32)


@total.kernel(launch=lambda: (8,), init={"tickets": 0})
@triton.jit
def last_one_sums(x, out, parts, tickets, n):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0)))
    tl.debug_barrier()
    if tl.atomic_add(tickets, 1) == tl.num_programs(0) - 1:
        tl.store(out + tl.arange(0, 1), tl.sum(tl.load(parts + tl.arange(0, 8)), keep_dims=True))


@noyau.op("f32[m, n], f32[n], f32[n] -> f32[m, n], mean: f32[m], rstd: f32[m]")
def layer_norm(x, w, b):
    mean = x.mean(1)
    rstd = 1 / np.sqrt(((x - mean[:, None]) ** 2).mean(1) + 1e-5)
    return (x - mean[:, None]) * rstd[:, None] * w + b, mean, rstd


@layer_norm.kernel(launch=lambda m: (m,), constants={"BLOCK": 16})
@triton.jit
def norm_forward(x, w, b, out, mean, rstd, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        sums += tl.load(x + row * n + column, mask=column < n, other=0.0).to(tl.float32)
    middle = tl.sum(sums, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * n + column, mask=column < n, other=0.0)
        value = tl.where(column < n, value - middle, 0.0)
        squares += value * value
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + 1e-5)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        weight = tl.load(w + column, mask=column < n)
        bias = tl.load(b + column, mask=column < n)
        value = tl.load(x + row * n + column, mask=column < n, other=0.0)
        tl.store(out + row * n + column, (value - middle) * scale * weight + bias, mask=column < n)


@noyau.op("f32[m, n], f32[m, n] -> f32[2, n], locks: i32[4]")
def column_sums(x, dy):
    products = x * dy
    return np.stack([products[0::2].sum(0), products[1::2].sum(0)]), np.array([0, 0, 1, 1], np.int32)


@column_sums.kernel(launch=lambda m: (m,), constants={"BLOCK": 32, "GROUP": 2}, init={"locks": 0})
@triton.jit
def norm_backward_with_locks(x, dy, sums, locks, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    own = row % GROUP
    lock, count_ptr = locks + own, locks + GROUP + own
    mask = column < n
    part = tl.load(x + row * n + column, mask=mask) * tl.load(dy + row * n + column, mask=mask)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)
    if count == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        part += tl.load(sums + own * n + column, mask=mask)
    tl.store(sums + own * n + column, part, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@noyau.op("f32[k, n] -> f32[n]")
def merged(parts):
    return parts.sum(0)


@merged.kernel(launch=programs, constants={"BLOCK": 16})
@triton.jit
def norm_backward_merged(parts, out, k, n, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((8, BLOCK), dtype=tl.float32)
    for start in range(0, k, 8):
        row = start + tl.arange(0, 8)
        mask = (row[:, None] < k) & (column[None, :] < n)
        sums += tl.load(parts + row[:, None] * n + column[None, :], mask=mask, other=0.0)
    tl.store(out + column, tl.sum(sums, axis=0), mask=column < n)


@noyau.op("f32[s, 16], f32[s, 16], f32[s, 16] -> f32[s, 16]")
def attention(q, k, v):
    scores = q @ k.T / np.float32(4)
    e = np.exp(scores - scores.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)) @ v


@triton.jit
def rescaled(high, score):
    higher = tl.maximum(high, tl.max(score, 1))
    return higher, tl.exp(high - higher)


@attention.kernel(launch=lambda s: (triton.cdiv(s, 16),))
@triton.jit
def flash(q, k, v, out, s):
    row, width = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, 16)
    query = tl.load(q + row[:, None] * 16 + width, mask=row[:, None] < s, other=0.0)
    high = tl.full([16], -1e30, tl.float32)
    sums = tl.zeros([16], tl.float32)
    total = tl.zeros([16, 16], tl.float32)
    for start in range(0, s, 16):
        column = start + tl.arange(0, 16)
        key = tl.load(k + column[None, :] * 16 + width[:, None], mask=column[None, :] < s, other=0.0)
        score = tl.where(column[None, :] < s, tl.dot(query, key, input_precision="ieee") / 4.0, -1e30)
        high, less = rescaled(high, score)
        weight = tl.exp(score - high[:, None])
        value = tl.load(v + column[:, None] * 16 + width, mask=column[:, None] < s, other=0.0)
        sums = sums * less + tl.sum(weight, 1)
        total = total * less[:, None] + tl.dot(weight, value, input_precision="ieee")
    tl.store(out + row[:, None] * 16 + width, total / sums[:, None], mask=row[:, None] < s)


@noyau.op("f32[m, 32] -> f32[m, 32]")
def running(x):
    return np.cumsum(x, 1)


@running.kernel(launch=lambda m: (m,))
@triton.jit
def by_cumsum(x, out):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


@triton.jit
def plus(a, b):
    return a + b


@running.kernel(launch=lambda m: (m,))
@triton.jit
def by_scan(x, out):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, plus))


@noyau.op("f32[m, 32] -> i32[m]")
def best(x):
    return x.argmax(1).astype(np.int32)


@best.kernel(launch=lambda m: (m,))
@triton.jit
def by_argmax(x, out):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(out + tl.program_id(0), tl.argmax(tl.load(x + at), axis=0))


@noyau.op("i32[n] -> i32[1]")
def largest(x):
    return np.maximum(x.max(initial=-100, keepdims=True), -100)


@largest.kernel(launch=programs, constants={"BLOCK": 64}, init={"out": -100})
@triton.jit
def by_atomic_max(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out, tl.max(tl.load(x + at, mask=at < n, other=-100)))


@noyau.op("f32[n] -> f32[n]")
def scaled(x):
    return x * np.float32(3)


@scaled.kernel(launch=programs, updates="x")
@triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_in_place(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + at, tl.load(x + at) * 3.0)
    else:
        tl.store(x + at, tl.load(x + at, mask=at < n) * 3.0, mask=at < n)


@noyau.op("f16[n] -> f16[n]")
def halves(x):
    return x * np.float16(2)


@halves.kernel(launch=lambda: (2,), constants={"BLOCK": 32})
@triton.jit
def grid_stride(x, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    while start < n:
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n).to(tl.float32)
        tl.store(out + at, (value * 2).to(tl.float16), mask=at < n)
        start += tl.num_programs(0) * BLOCK
