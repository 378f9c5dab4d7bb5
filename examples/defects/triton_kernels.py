"""Defects of kernels in Triton, each beside its mended twin: noyau check examples/defects/triton_kernels.py

No GPU is needed. The line of a defect says what it is (`defect: KIND`); where two lines are at fault, `other` is the
other one.
"""

import numpy as np
import triton
import triton.language as tl

import noyau

BLOCK = 64


def programs(n, BLOCK):
    return (triton.cdiv(n, BLOCK),)


# A sum without a mask: the last program goes past the end.


@noyau.op("f32[n], f32[n] -> f32[n]")
def add(x, y):
    return x + y


@add.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def mask_broken(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, both)  # defect: out-of-bounds


@add.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def mask_mended(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, both, mask=at < n)


# A mask that lets one cell too many through.


@noyau.op("f32[n] -> f32[n]")
def negated(x):
    return -x


@negated.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def tail_broken(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, -value, mask=at <= n)  # defect: out-of-bounds


@negated.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def tail_mended(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, -value, mask=at < n)


# The grid is rounded down: the last n % BLOCK cells are never stored.


@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x


@double.kernel(launch=lambda n, BLOCK: (n // BLOCK,), constants={"BLOCK": 64})  # defect: unwritten
@triton.jit
def grid_broken(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value + value, mask=at < n)


@double.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def grid_mended(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value + value, mask=at < n)


# A sum to which every program adds without an atomic.


@noyau.op("f32[n] -> f32[1]")
def total(x):
    return x.sum(keepdims=True)


@total.kernel(launch=programs, constants={"BLOCK": 64}, init={"out": 0})
@triton.jit
def sum_broken(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    before = tl.load(out)
    tl.store(out, before + part)  # defect: race


@total.kernel(launch=programs, constants={"BLOCK": 64}, init={"out": 0})
@triton.jit
def sum_mended(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    tl.atomic_add(out, part)


# An output that is added to before anything was stored there.


@noyau.op("f32[n, 32] -> f32[n]")
def rows(x):
    return x.sum(1)


@rows.kernel(launch=lambda n: (n,))
@triton.jit
def empty_broken(x, out):
    row = tl.program_id(0)
    for start in range(0, 32, 16):
        part = tl.sum(tl.load(x + row * 32 + start + tl.arange(0, 16)))
        before = tl.load(out + row)  # defect: uninitialised
        tl.store(out + row, before + part)


@rows.kernel(launch=lambda n: (n,))
@triton.jit
def empty_mended(x, out):
    row = tl.program_id(0)
    part = tl.zeros((16,), tl.float32)
    for start in range(0, 32, 16):
        part += tl.load(x + row * 32 + start + tl.arange(0, 16))
    tl.store(out + row, tl.sum(part))


# Rows of 24 cells that are stored as if they had 32: the next program stores there too, and the last one past the end.


@noyau.op("f32[n, 24] -> f32[n, 24]")
def halved(x):
    return x / 2


@halved.kernel(launch=lambda n: (n,))
@triton.jit
def stride_broken(x, out):
    row, column = tl.program_id(0), tl.arange(0, 32)
    value = tl.load(x + row * 24 + column, mask=column < 24)
    tl.store(out + row * 32 + column, value / 2, mask=column < 24)  # defect: out-of-bounds


@halved.kernel(launch=lambda n: (n,))
@triton.jit
def stride_mended(x, out):
    row, column = tl.program_id(0), tl.arange(0, 32)
    value = tl.load(x + row * 24 + column, mask=column < 24)
    tl.store(out + row * 24 + column, value / 2, mask=column < 24)


# A row that is stored by all its lanes: without a mask each program writes into the row of the next.


@noyau.op("f32[n, 24] -> f32[n, 24]")
def shifted(x):
    return x + np.float32(1)


@shifted.kernel(launch=lambda n: (n,))
@triton.jit
def lanes_broken(x, out, n):
    row, column = tl.program_id(0), tl.arange(0, 32)
    value = tl.load(x + row * 24 + column, mask=row * 24 + column < n * 24)
    tl.store(out + row * 24 + column, value + 1, mask=row * 24 + column < n * 24)  # defect: written-twice


@shifted.kernel(launch=lambda n: (n,))
@triton.jit
def lanes_mended(x, out):
    row, column = tl.program_id(0), tl.arange(0, 32)
    value = tl.load(x + row * 24 + column, mask=column < 24)
    tl.store(out + row * 24 + column, value + 1, mask=column < 24)
