"""The text of products of few rows: its words, tiles and layout."""

from __future__ import annotations

import re

import pytest

from noyau.codegen.triton.row_products import FORMS, RowProducts, WeightForm, source
from noyau.dtypes import DType

LAUNCHES = """

@triton.jit
def NAME_0(x, w0, s0, w1, s1, b1, y0, y1, EARLY: tl.constexpr):
    block = tl.program_id(0) - 0
    if (block >= 0) & (block < 2):
        NAME_part(x, w0, s0, w0, w0, s0, w0, y0, block, EARLY, 8, False, False)
    block = tl.program_id(0) - 2
    if block >= 0:
        NAME_part(x, w1, s1, b1, w1, s1, b1, y1, block, EARLY, 5, True, True)


def NAME(x, w0, s0, w1, s1, b1):
    EARLY = x.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (9, 0)
    y0 = torch.empty((1, 8), dtype=x.dtype, device=x.device)
    y1 = torch.empty((1, 5), dtype=x.dtype, device=x.device)
    NAME_0[(4,)](x, w0, s0, w1, s1, b1, y0, y1, EARLY, num_warps=4)
    return y0, y1
"""


def test_the_text_of_two_products_with_weights_of_8_bits():
    name, text = source(RowProducts(WeightForm(8), 1, 64, (8, 5), (False, True), DType.BF16))
    assert text.replace(name, "NAME").endswith(LAUNCHES)
    assert (name, text) == source(RowProducts(WeightForm(8), 1, 64, (8, 5), (False, True), DType.BF16))


@pytest.mark.parametrize("form", [WeightForm(), *FORMS], ids=str)
@pytest.mark.parametrize(("rows", "depth", "is_whole"), [(1, 2048, True), (16, 4096, True), (1, 2100, False)])
def test_every_word_of_a_text_has_its_value(form, rows, depth, is_whole):
    products = RowProducts(form, rows, depth, (4096,), (True,), DType.F16)
    _, text = source(products)
    assert not set(re.findall(r"\b[A-Z]{2,}\b", text)) - {"EARLY", "WIDTH", "LINE", "END", "MIDDLE", "BIASED"}
    assert (f"if {is_whole} and WIDTH % {products.tile[0]} == 0:" in text) is True
    assert f"    if {rows > 1}:  # what loops with products load is moved before them\n        if EARLY" in text
    assert f"        if not {rows > 1}:\n            if EARLY" in text


@pytest.mark.parametrize(
    ("form", "depth", "padded", "span"),
    [
        (WeightForm(), 70, 70, 70),
        (WeightForm(8), 70, 70, 70),
        (WeightForm(8), 2048, 2048, 512),
        (WeightForm(4, 32), 70, 128, 64),
    ],
)
def test_what_lies_side_by_side_is_cells_words_or_two_halves_of_whole_groups(form, depth, padded, span):
    products = RowProducts(form, 1, depth, (4,), (False,), DType.F32)
    assert (products.padded, products.span) == (padded, span)
    assert products.tile[1] & (products.tile[1] - 1) == 0


def test_words_for_forms():
    assert [str(each) for each in (WeightForm(8), WeightForm(4, 64))] == ["8 bits by channel", "4 bits in groups of 64"]
