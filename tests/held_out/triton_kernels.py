"""Kernels in Triton, right ones and wrong ones by their names. They were written after the checker."""

import numpy as np
import triton
import triton.language as tl

import noyau


@noyau.op("f32[m, n] -> f32[m]")
def lse(x):
    t = x.max(1, keepdims=True)
    return (np.log(np.exp(x - t).sum(1)) + t[:, 0]).astype(x.dtype)


@lse.kernel(launch=lambda m: (m,))
@triton.jit
def lse_right(x, out, n):
    r = tl.program_id(0)
    at = tl.arange(0, 64)
    top = float("-inf")
    s = 0.0
    for k in range(0, n, 64):
        v = tl.load(x + r * n + k + at, mask=k + at < n, other=float("-inf"))
        new = tl.maximum(top, tl.max(v, 0))
        s = s * tl.exp(top - new) + tl.sum(tl.exp(v - new), 0)
        top = new
    tl.store(out + r, top + tl.log(s))


@lse.kernel(launch=lambda m: (m,))
@triton.jit
def lse_wrong_other(x, out, n):  # masked lanes count as 0
    r = tl.program_id(0)
    at = tl.arange(0, 64)
    top = float("-inf")
    s = 0.0
    for k in range(0, n, 64):
        v = tl.load(x + r * n + k + at, mask=k + at < n, other=0.0)
        new = tl.maximum(top, tl.max(v, 0))
        s = s * tl.exp(top - new) + tl.sum(tl.exp(v - new), 0)
        top = new
    tl.store(out + r, top + tl.log(s))


@lse.kernel(launch=lambda m: (m,))
@triton.jit
def lse_wrong_rescale(x, out, n):  # the sum is not rescaled
    r = tl.program_id(0)
    at = tl.arange(0, 64)
    top = float("-inf")
    s = 0.0
    for k in range(0, n, 64):
        v = tl.load(x + r * n + k + at, mask=k + at < n, other=float("-inf"))
        new = tl.maximum(top, tl.max(v, 0))
        s = s + tl.sum(tl.exp(v - new), 0)
        top = new
    tl.store(out + r, top + tl.log(s))


@noyau.op("f32[m, k], f32[k, n] -> f32[m, n]")
def product(a, b):
    return a @ b


@product.kernel(launch=lambda m, n: ((m + 15) // 16, (n + 15) // 16))
@triton.jit
def mm_right(a, b, out, m, n, k):
    r = tl.program_id(0) * 16 + tl.arange(0, 16)
    c = tl.program_id(1) * 16 + tl.arange(0, 16)
    p = tl.arange(0, 16)
    acc = tl.zeros((16, 16), tl.float32)
    for q in range(0, k, 16):
        x = tl.load(a + r[:, None] * k + (q + p)[None, :], mask=(r[:, None] < m) & ((q + p)[None, :] < k), other=0.0)
        y = tl.load(b + (q + p)[:, None] * n + c[None, :], mask=((q + p)[:, None] < k) & (c[None, :] < n), other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(out + r[:, None] * n + c[None, :], acc, mask=(r[:, None] < m) & (c[None, :] < n))


@product.kernel(launch=lambda m, n: ((m + 15) // 16, (n + 15) // 16))
@triton.jit
def mm_wrong_kmask(a, b, out, m, n, k):  # k is masked in a alone: b reads the next rows, times zero
    r = tl.program_id(0) * 16 + tl.arange(0, 16)
    c = tl.program_id(1) * 16 + tl.arange(0, 16)
    p = tl.arange(0, 16)
    acc = tl.zeros((16, 16), tl.float32)
    for q in range(0, k, 16):
        x = tl.load(a + r[:, None] * k + (q + p)[None, :], mask=(r[:, None] < m) & ((q + p)[None, :] < k), other=0.0)
        y = tl.load(b + (q + p)[:, None] * n + c[None, :], mask=c[None, :] < n, other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(out + r[:, None] * n + c[None, :], acc, mask=(r[:, None] < m) & (c[None, :] < n))


@product.kernel(launch=lambda m, n: ((m + 15) // 16, (n + 15) // 16))
@triton.jit
def mm_wrong_whole(a, b, out, m, n, k):  # the last part of k is left out
    r = tl.program_id(0) * 16 + tl.arange(0, 16)
    c = tl.program_id(1) * 16 + tl.arange(0, 16)
    p = tl.arange(0, 16)
    acc = tl.zeros((16, 16), tl.float32)
    for q in range(0, k // 16 * 16, 16):
        x = tl.load(a + r[:, None] * k + (q + p)[None, :], mask=r[:, None] < m, other=0.0)
        y = tl.load(b + (q + p)[:, None] * n + c[None, :], mask=c[None, :] < n, other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(out + r[:, None] * n + c[None, :], acc, mask=(r[:, None] < m) & (c[None, :] < n))


@noyau.op("f32[n] -> f32[]")
def dotted(x):
    return (x * x).sum()


@dotted.kernel(launch=lambda n: ((n + 127) // 128,), init={"out": 0})
@triton.jit
def dot_right(x, out, n):
    at = tl.program_id(0) * 128 + tl.arange(0, 128)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(out, tl.sum(v * v, 0))


@dotted.kernel(launch=lambda n: ((n + 127) // 128,), init={"out": 0})
@triton.jit
def dot_wrong_plain(x, out, n):
    at = tl.program_id(0) * 128 + tl.arange(0, 128)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out, tl.load(out) + tl.sum(v * v, 0))


@noyau.op("f32[n], i32[n] -> f32[n]")
def gathered(x, i):
    return x[np.clip(i, 0, len(x) - 1)] if len(x) else x


@gathered.kernel(launch=lambda n: ((n + 31) // 32,))
@triton.jit
def ga_right(x, i, out, n):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    j = tl.load(i + at, mask=at < n, other=0)
    j = tl.minimum(tl.maximum(j, 0), n - 1)
    tl.store(out + at, tl.load(x + j, mask=at < n), mask=at < n)


@gathered.kernel(launch=lambda n: ((n + 31) // 32,))
@triton.jit
def ga_wrong_clip(x, i, out, n):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    j = tl.load(i + at, mask=at < n, other=0)
    j = tl.minimum(j, n - 1)
    tl.store(out + at, tl.load(x + j, mask=at < n), mask=at < n)


@noyau.op("f32[n] -> f32[n]")
def reversed_(x):
    return x[::-1].copy()


@reversed_.kernel(launch=lambda n: ((n + 31) // 32,))
@triton.jit
def rev_right(x, out, n):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(out + at, tl.load(x + (n - 1 - at), mask=at < n), mask=at < n)


@reversed_.kernel(launch=lambda n: ((n + 31) // 32,))
@triton.jit
def rev_wrong_off(x, out, n):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(out + at, tl.load(x + (n - at), mask=at < n), mask=at < n)


@reversed_.kernel(launch=lambda n: ((n + 31) // 32,))
@triton.jit
def rev_wrong_block(x, out, n):  # each block is reversed in its place
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    other = tl.program_id(0) * 32 + 31 - tl.arange(0, 32)
    tl.store(out + at, tl.load(x + other, mask=other < n, other=0.0), mask=at < n)
