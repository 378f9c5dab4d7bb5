"""Quantisation: halves to even, saturation, scales for all, along an axis and by blocks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.frontends.onnx.models import WORDS, agree, imported, model, results, run

X = np.array([[-300, -1.5, -0.5, 0.5], [1.5, 2.5, 127.4, 300]], np.float32)


@pytest.mark.parametrize("word", ["uint8", "int8", "uint16", "int16"])
def test_one_scale_for_all(word):
    dtype = np.dtype(word)
    text = f"(float[n, m] x, float s, {word} z) => ({word} y) {{ y = QuantizeLinear(x, s, z) }}"
    found = imported(text, 21)
    assert not found.opaque
    (got,) = results(found, {"x": X, "s": np.float32(1), "z": dtype.type(3)})
    limits = np.iinfo(dtype)
    np.testing.assert_array_equal(got, np.clip(np.rint(X) + 3, limits.min, limits.max).astype(dtype))


def test_a_scale_along_an_axis():
    given = {"s": np.array([0.5, 2, 1, 4], np.float32), "z": np.array([0, 1, 2, 3], np.uint8)}
    there = "(float[n, m] x, float[4] s, uint8[4] z) => (uint8 y) { y = QuantizeLinear<axis = 1>(x, s, z) }"
    agree(model(there, 21), {"x": np.abs(X), **given})
    back = "(uint8[n, m] x, float[4] s, uint8[4] z) => (float y) { y = DequantizeLinear<axis = -1>(x, s, z) }"
    agree(model(back, 21), {"x": np.arange(8, dtype=np.uint8).reshape(2, 4), **given})


def test_a_scale_by_blocks():
    text = "(int8[n, 4] x, float[n, 2] s) => (float y) { y = DequantizeLinear<axis = 1, block_size = 2>(x, s) }"
    x = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    agree(model(text, 21), {"x": x, "s": np.array([[1, 2], [3, 4]], np.float32)})


def test_a_dynamic_one_goes_through_its_body():
    text = "(float[n, m] x) => (uint8 y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"
    agree(model(text, 20), {"x": X[:, 1:]})


def test_a_type_that_noyau_has_not_is_a_boundary():
    text = "(float[n, m] x, float s) => (float8e5m2 y) { y = QuantizeLinear<output_dtype = 19>(x, s) }"
    assert "type that noyau has not" in imported(text, 21).opaque[0]


@pytest.mark.parametrize("source", WORDS)
def test_casts_among_all_dtypes(source):
    for target in WORDS:
        values = np.array([0, 1, 2, 3, 100]).astype(WORDS[source])
        number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(WORDS[target]))
        got = run(f"({source}[n] x) => ({target}[n] y) {{ y = Cast<to = {number}>(x) }}", values)
        assert got.dtype == WORDS[target]
        np.testing.assert_array_equal(got, values.astype(WORDS[target]))
