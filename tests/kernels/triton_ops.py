"""Ops with kernels in Triton: right ones, and one for each of the bugs that a check is to name."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

import noyau


@noyau.op("f32[n], f32 -> f32[n]")
def scaled(x, by):
    return x * by


def programs(n, BLOCK):
    return (triton.cdiv(n, BLOCK),)


@scaled.kernel(launch=programs, constants={"BLOCK": [64, 128]}, options={"num_warps": 8})
@triton.jit
def blocks(x, by, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


@scaled.kernel(launch=programs, args=lambda x, by, out, n: (out, x, by, n))
@triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(to, x, by, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(to + at, tl.load(x + at) * by)
    else:
        tl.store(to + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


@scaled.kernel(launch=programs, constants={"BLOCK": 64}, init={"out": "x"}, name="on_a_copy")
@triton.jit
def on_a_copy(by, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) * by, mask=at < n)


@noyau.op("f32[n], f32 -> f32[n]", name="scaled")
def wrong(x, by):
    return x * by


@wrong.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def no_mask(x, by, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * by)


@wrong.kernel(launch=lambda n, BLOCK: n // BLOCK, constants={"BLOCK": 64})
@triton.jit
def no_tail(x, by, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


@wrong.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def in_place(x, by, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    product = tl.load(x + at, mask=at < n) * by
    tl.store(x + at, product, mask=at < n)
    tl.store(out + at, product, mask=at < n)


@wrong.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def far_away(x, by, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at.to(tl.int64) * 100000000000, tl.load(x + at, mask=at < n) * by, mask=at < n)


@wrong.kernel(launch=(1,))
@triton.jit
def refused(x, by, out):
    tl.store(out + tl.arange(0, 3), by)


@noyau.op("float[m, n] -> float[m]")
def row_sums(x):
    return x.astype(np.float32).sum(-1).astype(x.dtype)


@row_sums.kernel(
    launch=lambda m, device: min(m, 2 * device.sm_count),
    args=lambda x, out, m, n: (x, out, m, n, x.stride(0), x.stride(1)),
    constants={"BLOCK": 64},
)
@triton.jit
def by_rows(x, out, m, n, down, along, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), m, tl.num_programs(0)):
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            at = start + tl.arange(0, BLOCK)
            total += tl.load(x + row * down + at * along, mask=at < n, other=0).to(tl.float32)
        tl.store(out + row, tl.sum(total))


@noyau.op("float[n] -> float[n]")
def doubled(x):
    return x + x


@doubled.kernel(launch=programs, constants={"BLOCK": 64}, updates="x")
@triton.jit
def over(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(x + at, value + value, mask=at < n)
