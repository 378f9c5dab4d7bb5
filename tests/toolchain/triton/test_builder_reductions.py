from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from noyau.toolchain.triton import interpreter

pytestmark = pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="Triton compiles here")


@triton.jit
def last(a, b):
    return b


@triton.jit
def affine(a, b, c, d):
    """Two functions x -> a x + b, one after the other: in another order it is another one."""
    return a * c, b * c + d


@triton.jit
def kernel(x, o, sums, largest, places, finals, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + row[:, None] * COLUMNS + column[None, :])
    tl.store(sums + row, tl.sum(value, 1))
    tl.store(largest, tl.max(value))
    tl.store(places + column, tl.argmax(value, 0))
    tl.store(finals + row, tl.reduce(value, 1, last))
    _, run = tl.associative_scan((value, value), 1, affine)
    tl.store(o + row[:, None] * COLUMNS + column[None, :], run + tl.cumsum(value, 1, reverse=True))


def test_they_are_those_of_torch_and_keep_the_order():
    interpreter.install()
    x = torch.linspace(-1, 1, 32).reshape(4, 8)[:, torch.randperm(8, generator=torch.Generator().manual_seed(1))]
    x = x.contiguous()
    out, sums, largest = torch.empty(4, 8), torch.empty(4), torch.empty(1)
    places, finals = torch.empty(8, dtype=torch.int32), torch.empty(4)
    kernel[(1,)](x, out, sums, largest, places, finals, ROWS=4, COLUMNS=8)
    torch.testing.assert_close(sums, x.sum(1))
    assert largest.item() == x.max().item()
    assert places.tolist() == x.argmax(0).tolist()
    assert torch.equal(finals, x[:, -1])
    run = [x[:, 0]]
    for column in range(1, 8):
        run.append(run[-1] * x[:, column] + x[:, column])
    torch.testing.assert_close(out, torch.stack(run, 1) + x.flip(1).cumsum(1).flip(1))
