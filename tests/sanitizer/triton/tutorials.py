"""Correct kernels in the style of Triton's tutorials, each on an op whose reference says what it gives."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

import noyau


def programs(n, BLOCK):
    return (triton.cdiv(n, BLOCK),)


def tiles(m, n, BLOCK):
    return (triton.cdiv(m, BLOCK) * triton.cdiv(n, BLOCK),)


@noyau.op("f32[n], f32[n] -> f32[n]")
def add(x, y):
    return x + y


@add.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@noyau.op("f32[m, n] -> f32[m, n]")
def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@softmax.kernel(launch=lambda m: (min(m, 3),), constants={"BLOCK": 64})
@triton.jit
def persistent_softmax(x, out, m, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=2):
        value = tl.load(x + row * n + column, mask=column < n, other=-float("inf"))
        raised = tl.exp(value - tl.max(value, axis=0))
        tl.store(out + row * n + column, raised / tl.sum(raised, axis=0), mask=column < n)


@noyau.op("f32[m, k], f32[k, n] -> f32[m, n]")
def product(a, b):
    return a @ b


@product.kernel(launch=tiles, constants={"BLOCK": 16, "GROUP": 2})
@triton.jit
def grouped_product(a, b, out, m, n, k, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    pid, tall, wide = tl.program_id(0), tl.cdiv(m, BLOCK), tl.cdiv(n, BLOCK)
    first = pid // (GROUP * wide) * GROUP
    height = min(tall - first, GROUP)
    pid_m = first + (pid % (GROUP * wide)) % height
    pid_n = (pid % (GROUP * wide)) // height
    row = (pid_m * BLOCK + tl.arange(0, BLOCK)) % m
    column = (pid_n * BLOCK + tl.arange(0, BLOCK)) % n
    inner = tl.arange(0, BLOCK)
    a_ptrs = a + row[:, None] * k + inner[None, :]
    b_ptrs = b + inner[:, None] * n + column[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(tl.cdiv(k, BLOCK)):
        left = tl.load(a_ptrs, mask=inner[None, :] < k - step * BLOCK, other=0.0)
        right = tl.load(b_ptrs, mask=inner[:, None] < k - step * BLOCK, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
        a_ptrs += BLOCK
        b_ptrs += BLOCK * n
    at_m = pid_m * BLOCK + tl.arange(0, BLOCK)
    at_n = pid_n * BLOCK + tl.arange(0, BLOCK)
    inside = (at_m[:, None] < m) & (at_n[None, :] < n)
    tl.store(out + at_m[:, None] * n + at_n[None, :], total, mask=inside)


@product.kernel(launch=tiles, constants={"BLOCK": 16})
@triton.jit
def block_pointers(a, b, out, m, n, k, BLOCK: tl.constexpr):
    pid_m, pid_n = tl.program_id(0) // tl.cdiv(n, BLOCK), tl.program_id(0) % tl.cdiv(n, BLOCK)
    left = tl.make_block_ptr(a, (m, k), (k, 1), (pid_m * BLOCK, 0), (BLOCK, BLOCK), (1, 0))
    right = tl.make_block_ptr(b, (k, n), (n, 1), (0, pid_n * BLOCK), (BLOCK, BLOCK), (1, 0))
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, k, BLOCK):
        x = tl.load(left, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(right, boundary_check=(0, 1), padding_option="zero")
        total += tl.dot(x, y, input_precision="ieee")
        left = tl.advance(left, (0, BLOCK))
        right = tl.advance(right, (BLOCK, 0))
    there = tl.make_block_ptr(out, (m, n), (n, 1), (pid_m * BLOCK, pid_n * BLOCK), (BLOCK, BLOCK), (1, 0))
    tl.store(there, total, boundary_check=(0, 1))


@product.kernel(launch=lambda: (2,), constants={"BLOCK": 16})
@triton.jit
def persistent_product(a, b, out, m, n, k, BLOCK: tl.constexpr):
    wide = tl.cdiv(n, BLOCK)
    for tile in range(tl.program_id(0), tl.cdiv(m, BLOCK) * wide, tl.num_programs(0)):
        row = tile // wide * BLOCK + tl.arange(0, BLOCK)
        column = tile % wide * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(0, k, BLOCK):
            inner = start + tl.arange(0, BLOCK)
            left = tl.load(a + row[:, None] * k + inner, mask=(row[:, None] < m) & (inner < k), other=0.0)
            right = tl.load(b + inner[:, None] * n + column, mask=(inner[:, None] < k) & (column < n), other=0.0)
            total += tl.dot(left, right, input_precision="ieee")
        tl.store(out + row[:, None] * n + column, total, mask=(row[:, None] < m) & (column < n))


@product.kernel(launch=lambda m, n, BLOCK: (*tiles(m, n, BLOCK), 2), constants={"BLOCK": 16}, init={"out": 0})
@triton.jit
def split_k(a, b, out, m, n, k, BLOCK: tl.constexpr):
    wide = tl.cdiv(n, BLOCK)
    row = tl.program_id(0) // wide * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(0) % wide * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(tl.program_id(1) * BLOCK, k, BLOCK * tl.num_programs(1)):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + row[:, None] * k + inner, mask=(row[:, None] < m) & (inner < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + column, mask=(inner[:, None] < k) & (column < n), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.atomic_add(out + row[:, None] * n + column, total, mask=(row[:, None] < m) & (column < n))


@noyau.op("f32[n], f32[n], f32 -> f32[n]")
def dropout(x, chance, p):
    return np.where(chance > p, x / (1 - p), np.float32(0))


@dropout.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def dropout_kernel(x, chance, p, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(chance + at, mask=at < n) > p
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=at < n) / (1 - p), 0.0), mask=at < n)


@noyau.op("f32[n] -> f32[n]")
def random(x):
    return x


@random.kernel(launch=programs, constants={"BLOCK": 64})
@triton.jit
def seeded(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(tl.rand(7, at) >= 0.0, value, value + 1), mask=at < n)


@noyau.op("f32[m, n] -> f32[n, m]")
def transpose(x):
    return x.T


@transpose.kernel(launch=lambda m, n, BLOCK: (triton.cdiv(m, BLOCK), triton.cdiv(n, BLOCK)), constants={"BLOCK": 16})
@triton.jit
def by_tiles(x, out, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + row[:, None] * n + column, mask=(row[:, None] < m) & (column < n))
    tl.store(out + column[:, None] * m + row, tl.trans(tile), mask=(column[:, None] < n) & (row < m))


@transpose.kernel(launch=lambda m, n: (m, n, 1))
@triton.jit
def cell_by_cell(x, out, m, n):
    row, column = tl.program_id(0), tl.program_id(1)
    tl.store(out + column * m + row, tl.load(x + row * n + column))


@noyau.op("f32[m, 32] -> f32[m, 32]")
def doubled(x):
    return x + x


@doubled.kernel(launch=lambda m: (triton.cdiv(m, 8),))
@triton.jit
def descriptors(x, out, m):
    source = tl.make_tensor_descriptor(x, [m, 32], [32, 1], [8, 16])
    there = tl.make_tensor_descriptor(out, [m, 32], [32, 1], [8, 16])
    for column in range(0, 32, 16):
        tile = source.load([tl.program_id(0) * 8, column])
        there.store([tl.program_id(0) * 8, column], tile + tile)


@noyau.op(
    "f32[m, 64], i32[k] -> f32[k, 64]",
    inputs=lambda rng, k=9: (rng.random((5, 64), np.float32), rng.integers(0, 5, k, np.int32)),
)
def embedding(table, tokens):
    return table[tokens]


@embedding.kernel(launch=lambda k: (k,))
@triton.jit
def gathered(table, tokens, out):
    token, column = tl.load(tokens + tl.program_id(0)), tl.arange(0, 64)
    tl.store(out + tl.program_id(0) * 64 + column, tl.load(table + token * 64 + column))
