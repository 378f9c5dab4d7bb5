"""Offsets of Triton: 32 bits, unless something is widened or added to a pointer."""

from __future__ import annotations

import ast
import textwrap

import numpy as np
import pytest

from noyau.sanitizer.lint.abstract_interpreter import Walk
from noyau.sanitizer.lint.arithmetic import Triton, phantom
from noyau.sanitizer.lint.values import Float, Interval

ROWS, COLS = 100_000, 50_000
LOST = {
    "a row": "tl.load(x + row * stride + tl.arange(0, 1024))",
    "two places": "offsets = row * stride + tl.arange(0, 1024)\ntl.store(x + offsets, 0)",
    "a place of all": "tl.load(x + tl.program_id(1) * 65536 + tl.arange(0, 65536))",
}
KEPT = {
    "widened": "tl.load(x + row.to(tl.int64) * stride + tl.arange(0, 1024))",
    "step by step": "p = x + tl.arange(0, 1024)\nfor k in range(0, rows):\n    v = tl.load(p)\n    p += stride",
    "small": "tl.load(x + row + tl.arange(0, 1024))",
    "not used": "y = row * stride",
}


def walked(text):
    given = {"x": phantom((ROWS, COLS), np.dtype(np.float32))}
    given |= {"stride": Interval.of(COLS, 32), "rows": Interval.of(ROWS, 32)}
    walk = Walk(Triton((ROWS, 76_295, 1), (1, 1, 1), {}), given)
    walk.walk(ast.parse("row = tl.program_id(0)\n" + textwrap.dedent(text)).body)
    return walk


@pytest.mark.parametrize("name", LOST)
def test_an_offset_that_overflows(name):
    assert [each.overflow.value > 2**31 for each in walked(LOST[name]).touches] == [True]


@pytest.mark.parametrize("name", KEPT)
def test_an_offset_that_does_not(name):
    assert walked(KEPT[name]).touches == []


def test_words_of_triton():
    walk = walked(
        """
        n = tl.num_programs(0)
        blocks = tl.cdiv(rows, 128)
        total = tl.zeros((16,), dtype=tl.float32)
        for k in range(0, blocks):
            total += tl.load(x + k * 128 + tl.arange(0, 128))
        """
    )
    assert walk.names["n"] == Interval.of(ROWS, 32)
    assert walk.names["blocks"] == Interval.of(782, 32)
    assert walk.names["total"] == Float(32)
    assert [(each.name, each.terms) for each in walk.sums] == [("total", 782)]
