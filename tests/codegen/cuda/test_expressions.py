"""Expressions in CUDA C++: vectors, registers, and functions that are near enough."""

from __future__ import annotations

import pytest

from noyau import nn
from noyau.dtypes import DType
from noyau.kernels.programs.generate import generate_usual


def softmax_text(dtype):
    return generate_usual(nn.softmax.description, nn.softmax.usual([dtype], [2]), "cuda").text


def test_cells_move_16_bytes_at_once():
    text = softmax_text(DType.BF16)
    assert "noyau_load<uint16_t, 8>(&x[" in text
    assert "noyau_store<uint16_t, 8>(&out[" in text
    assert "noyau_bf16_of(x_kept[" in text


def test_what_is_stored_in_a_half_is_rounded_once():
    text = softmax_text(DType.BF16)
    assert "out_cells.at[cell] = noyau_f32_to_bf16(" in text
    assert "noyau_f32_to_bf16(noyau_bf16_to_f32(" not in text


@pytest.mark.parametrize(("dtype", "is_near"), [(DType.BF16, True), (DType.F32, False)])
def test_where_all_arrays_are_halves_exp_is_near(dtype, is_near):
    text = softmax_text(dtype)
    assert ("= noyau_near_exp(" in text) is is_near
    assert ("= expf(" in text) is not is_near


def test_a_cluster_opens_its_meeting():
    text = softmax_text(DType.BF16)
    assert "__cluster_dims__(8, 1, 1)" in text
    assert text.count("noyau_open(&meeting);") == 3
    assert "noyau_merge_blocks<8>(noyau_max_f32{" in text
