"""The text of products of few rows: its tiles, masks and layout, as one example has them."""

from __future__ import annotations

import pytest

from noyau.codegen.triton.row_products import FORMS, RowProducts, WeightForm, source
from noyau.dtypes import DType

TEXT = """import torch
import triton
import triton.language as tl


@triton.jit
def NAME_0(x, w0, s0, w1, s1, b1, y0, y1, EARLY: tl.constexpr):
    block = tl.program_id(0)
    if block < 2:
        n = block * 4 + tl.arange(0, 4)
        acc0 = tl.zeros((4, 64), tl.float32)
        for k0 in range(0, 64, 64):
            k = k0 + tl.arange(0, 64)
            c0 = tl.load(w0 + n[:, None] * 64 + k[None, :])
            if EARLY: tl.extra.cuda.gdc_wait(); tl.extra.cuda.gdc_launch_dependents()
            v = tl.load(x + k).to(tl.float32)
            acc0 += ((c0.to(tl.int32) | 1258291200).to(tl.float32, bitcast=True) - 8388736.0) * v[None, :]
        r0 = tl.sum(acc0, 1)
        r0 *= tl.load(s0 + n)
        tl.store(y0 + n, r0.to(tl.bfloat16))
    else:
        n = (block - 2) * 4 + tl.arange(0, 4)
        acc1 = tl.zeros((4, 64), tl.float32)
        for k0 in range(0, 64, 64):
            k = k0 + tl.arange(0, 64)
            c1 = tl.load(w1 + n[:, None] * 64 + k[None, :], mask=(n < 5)[:, None], other=0)
            if EARLY: tl.extra.cuda.gdc_wait(); tl.extra.cuda.gdc_launch_dependents()
            v = tl.load(x + k).to(tl.float32)
            acc1 += ((c1.to(tl.int32) | 1258291200).to(tl.float32, bitcast=True) - 8388736.0) * v[None, :]
        r1 = tl.sum(acc1, 1)
        r1 *= tl.load(s1 + n, mask=n < 5, other=0)
        r1 += tl.load(b1 + n, mask=n < 5, other=0).to(tl.float32)
        tl.store(y1 + n, r1.to(tl.bfloat16), mask=n < 5)


def NAME(x, w0, s0, w1, s1, b1):
    y0 = torch.empty((1, 8), dtype=torch.bfloat16, device=x.device)
    y1 = torch.empty((1, 5), dtype=torch.bfloat16, device=x.device)
    EARLY = x.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (9, 0)
    NAME_0[(4,)](x, w0, s0, w1, s1, b1, y0, y1, EARLY, num_warps=4)
    return y0, y1
"""


def test_the_text_of_two_products_with_weights_of_8_bits():
    name, text = source(RowProducts(WeightForm(8), 1, 64, (8, 5), (False, True), DType.BF16))
    assert text.replace(name, "NAME") == TEXT
    assert (name, text) == source(RowProducts(WeightForm(8), 1, 64, (8, 5), (False, True), DType.BF16))


@pytest.mark.parametrize("form", [WeightForm(), *FORMS], ids=str)
@pytest.mark.parametrize(("rows", "depth"), [(1, 2048), (16, 4096)])
def test_whole_tiles_have_no_masks_but_for_the_rows(form, rows, depth):
    _, text = source(RowProducts(form, rows, depth, (4096,), (True,), DType.F16))
    assert (" < " in text.replace("(m < 16)", "")) is False
    assert text.count("tl.dot") == (0 if rows == 1 else 2 if form.bits == 4 else 1)
    assert (text.index("gdc_wait()") < text.index("for k0")) is (rows > 1)  # else a load would be moved before it


@pytest.mark.parametrize(
    ("form", "depth", "padded", "span"),
    [(WeightForm(), 70, 70, 70), (WeightForm(8), 70, 70, 70), (WeightForm(4, 32), 70, 128, 64)],
)
def test_both_halves_of_4_bits_are_whole_groups(form, depth, padded, span):
    products = RowProducts(form, 1, depth, (4,), (False,), DType.F32)
    assert (products.padded, products.span) == (padded, span)
    assert products.tile[1] & (products.tile[1] - 1) == 0


def test_words_for_forms():
    assert [str(each) for each in (WeightForm(8), WeightForm(4, 64))] == ["8 bits by channel", "4 bits in groups of 64"]
