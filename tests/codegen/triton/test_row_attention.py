"""The text of attention of few rows: how keys are cut into parts, and its words."""

from __future__ import annotations

import re

import pytest

from noyau.codegen.triton.row_attention import RowAttention, source
from noyau.dtypes import DType


@pytest.mark.parametrize(
    ("heads", "length", "depth", "tile", "parts"),
    [
        (16, 1024, 128, 32, (32, 1)),
        (16, 5000, 128, 32, (53, 3)),
        (1, 40, 24, 64, (1, 1)),
        (2000, 4096, 64, 64, (1, 64)),
        (1, 100_000, 256, 16, (32, 196)),
    ],
)
def test_keys_are_cut_into_parts_that_fill_a_gpu(heads, length, depth, tile, parts):
    own = RowAttention(1, heads, 1, 1, length, depth, 0.1, DType.BF16)
    assert (own.tile, own.parts) == (tile, parts)
    assert (parts[0] - 1) * parts[1] * tile < length <= parts[0] * parts[1] * tile


@pytest.mark.parametrize(("mask", "kind"), [(None, 0), (DType.BOOL, 1), (DType.BF16, 2)])
def test_every_word_of_a_text_has_its_value(mask, kind):
    own = RowAttention(2, 4, 3, 2, 70, 24, 0.1, DType.BF16, mask, (0, 210, 70))
    name, text = source(own)
    assert not set(re.findall(r"\b[A-Z]{2,}[0-9]?\b", text)) - {"EARLY"}
    assert f"if {kind} == 1:" in text
    assert "row % 3 * 70" in text
    assert (name, text) == source(own)
