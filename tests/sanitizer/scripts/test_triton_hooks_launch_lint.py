from __future__ import annotations

import torch
import triton
import triton.language as tl

from noyau.kernels.user_kernel import three
from noyau.sanitizer.scripts.triton_hooks import lint_launch


@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr, factor=2):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, factor * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def scaled_wide(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def many(cells):
    return torch.empty(cells, dtype=torch.int8, device="meta")


def said(function, cells, grid, **named):
    return lint_launch(function, [many(cells), many(cells), cells], {"BLOCK": 1024, **named}, grid, "it", "n")


def test_offsets_that_overflow_are_told_at_their_line():
    (found, *_) = said(
        scaled, 3 * 2**30, lambda given: (triton.cdiv(given["n"], given["BLOCK"] * given["factor"] // 2),)
    )
    assert (found.kind, found.severity) == ("precision", "warning")
    assert found.place.endswith(f"test_triton_hooks_launch_lint.py:{scaled.fn.__code__.co_firstlineno + 2}")
    assert found.message.startswith("tl.program_id(0) * BLOCK reaches 3221224448 for n, and int32 ends at 2147483647")
    assert "to(tl.int64)" in found.mend
    assert said(scaled_wide, 3 * 2**30, (3 * 2**20,)) == []
    assert said(scaled, 2**30, (2**20,)) == []


def test_too_few_programs_are_told_where_they_are_launched():
    (found,) = said(scaled, 2**20, 2)
    assert found.kind == "launch"
    assert found.message.startswith("[2] has 2 programs for 1048576 cells: of")
    assert "test_triton_hooks_launch_lint.py" in found.place
    assert said(scaled, 2**10, 1) == []


def test_grids_have_three_extents():
    assert three(4) == (4, 1, 1)
    assert three((2, 3)) == (2, 3, 1)
