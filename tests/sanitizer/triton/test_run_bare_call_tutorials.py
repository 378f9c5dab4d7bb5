"""Kernels in the manner of tutorials on tensors as one has them: what is wrong by kind and line, what is right not."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton
import triton.language as tl

from noyau.sanitizer.routes import call

N = 200


@triton.jit
def mask_of_either(out, m, n, B: tl.constexpr):
    row, column = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    is_inside = (row[:, None] < m) | (column[None, :] < n)
    tl.store(out + row[:, None] * n + column[None, :], 1.0, mask=is_inside)  # out-of-bounds


@triton.jit
def result_of_the_neighbour(x, out, n, B: tl.constexpr):
    p = tl.program_id(0)
    at = p * B + tl.arange(0, B)
    before = tl.load(out + p * B - 1, mask=p > 0, other=0.0)  # race
    tl.store(out + at, before + tl.cumsum(tl.load(x + at, mask=at < n, other=0.0), 0), mask=at < n)


@triton.jit
def relaxed_ticket(x, parts, out, count, n, B: tl.constexpr):
    p = tl.program_id(0)
    at = p * B + tl.arange(0, B)
    tl.store(parts + p, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))
    if tl.atomic_add(count, 1, sem="relaxed") == tl.num_programs(0) - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, 4))))  # race


@triton.jit
def overlapping_tiles(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * (B - 2) + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n) * (1.0 + tl.program_id(0)), mask=at < n)  # race


@triton.jit
def zeroed_by_the_first(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(out, 0.0)  # race
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


@triton.jit
def unknown_token(tokens, table, out, D: tl.constexpr):
    i, column = tl.program_id(0), tl.arange(0, D)
    row = tl.load(tokens + i)
    tl.store(out + i * D + column, tl.load(table + row * D + column))  # out-of-bounds


@triton.jit
def turned_in_place(x, cos, sin, stride, H: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, H)
    low, high = tl.load(x + row * stride + column), tl.load(x + row * stride + H + column)
    c, s = tl.load(cos + row * H + column), tl.load(sin + row * H + column)
    tl.store(x + row * stride + column, low * c - high * s)
    tl.store(x + row * stride + H + column, high * c + low * s)


@triton.jit
def locked_sum(x, out, lock, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    own = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + own)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def lock_given_back_too_early(x, out, lock, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    own = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.store(out, tl.load(out) + own)  # race
    tl.atomic_xchg(lock, 0, sem="relaxed")


@triton.jit
def max_by_swaps(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    own = tl.max(tl.load(x + at, mask=at < n, other=0))
    old = tl.load(out)
    while old < own:
        guess = old
        old = tl.atomic_cas(out, guess, own)
        if old == guess:
            old = own


@triton.jit
def rows_in_order(x, out, n, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    tl.store(out + row * n + at, tl.sort(tl.load(x + row * n + at, mask=at < n, other=float("inf"))), mask=at < n)


@triton.jit
def counted_by_programs(x, bins, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=15), 16)
    tl.atomic_add(bins + tl.arange(0, 16), counts)


@triton.jit
def loss_in_one_pass(scores, targets, loss, n, B: tl.constexpr):
    row, high, total = tl.program_id(0), -float("inf"), 0.0
    for start in range(0, n, B):
        at = start + tl.arange(0, B)
        score = tl.load(scores + row * n + at, mask=at < n, other=-float("inf"))
        higher = tl.maximum(high, tl.max(score))
        total = total * tl.exp(high - higher) + tl.sum(tl.exp(score - higher))
        high = higher
    tl.store(loss + row, tl.log(total) + high - tl.load(scores + row * n + tl.load(targets + row)))


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


X, WHOLE = torch.arange(N, dtype=torch.float32), torch.int32
WRONG = [
    (mask_of_either, (2, 2), (zeros(20, 30), 20, 30, 16)),
    (result_of_the_neighbour, (4,), (X, zeros(N), N, 64)),
    (relaxed_ticket, (4,), (X, zeros(4), zeros(1), zeros(1, dtype=WHOLE), N, 64)),
    (lock_given_back_too_early, (4,), (X, zeros(1), zeros(1, dtype=WHOLE), N, 64)),
    (overlapping_tiles, (4,), (X, zeros(N), N, 64)),
    (zeroed_by_the_first, (4,), (X, zeros(1), N, 64)),
    (unknown_token, (3,), (torch.tensor([0, 50, 2]), zeros(50, 32), zeros(3, 32), 32)),
]
RIGHT = [
    (turned_in_place, (5,), (zeros(5, 32), zeros(5, 16), zeros(5, 16), 32, 16)),
    (locked_sum, (4,), (X, zeros(1), zeros(1, dtype=WHOLE), N, 64)),
    (max_by_swaps, (4,), (torch.arange(N, dtype=WHOLE), zeros(1, dtype=WHOLE), N, 64)),
    (rows_in_order, (5,), (torch.rand(5, 20), zeros(5, 20), 20, 32)),
    (counted_by_programs, (4,), (torch.arange(N, dtype=WHOLE) % 10, zeros(16, dtype=WHOLE), N, 64)),
    (loss_in_one_pass, (5,), (torch.rand(5, 77), torch.tensor([0, 76, 3, 4, 5]), zeros(5), 77, 32)),
]


@pytest.mark.parametrize(("kernel", "grid", "args"), WRONG, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_wrong_is_found_at_its_line(kernel, grid, args):
    lines, first = inspect.getsourcelines(kernel.fn)
    ((line, kind),) = [(first + k, each.split("# ")[1].strip()) for k, each in enumerate(lines) if "  # " in each]
    found, _ = call(kernel, args, grid, "", "it")
    told = [
        (each.kind, {each.place.rpartition(":")[2], each.other_place.rpartition(":")[2]}) for each in found.findings
    ]
    assert any(each == kind and str(line) in places for each, places in told), told


@pytest.mark.parametrize(("kernel", "grid", "args"), RIGHT, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_right_is_silent(kernel, grid, args):
    found, _ = call(kernel, args, grid, "", "it")
    assert found.findings == ()
    assert found.accesses
