"""Updates merged at places that are looked up."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.ir.graph import Scatter
from tests.frontends.onnx.models import agree, imported, results

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(reduction, axis):
    text = f"""(float[a, b] x, int64[c, d] i, float[c, d] u) => (float y) {{
        y = ScatterElements<axis = {axis}, reduction = "{reduction}">(x, i, u) }}"""
    places = np.array([[0, 2], [-1, 1]]) if reduction == "none" else np.array([[0, 2], [0, 2]])
    found = agree(text, {"x": X, "i": places, "u": np.array([[5, -6], [7, 8]], np.float32)})
    assert isinstance(found.graph["y"].kind, Scatter)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(reduction):
    text = f"""(float[a, b] x, int64[c, 2] i, float[c] u) => (float y) {{
        y = ScatterND<reduction = "{reduction}">(x, i, u) }}"""
    places = np.array([[0, 1], [2, 3], [1, -1]])
    agree(text, {"x": X, "i": places, "u": np.array([5, -6, 7], np.float32)})


def test_rows_at_once():
    text = "(float[a, b] x, int64[c, 1] i, float[c, b] u) => (float y) { y = ScatterND(x, i, u) }"
    agree(text, {"x": X, "i": np.array([[2], [0]]), "u": -X[:2]})


def test_a_place_outside_is_an_error():
    found = imported("(float[a, b] x, int64[c, d] i, float[c, d] u) => (float y) { y = ScatterElements(x, i, u) }")
    with pytest.raises(InputError, match="an index is outside"):
        results(found, {"x": X, "i": np.array([[3]]), "u": np.ones((1, 1), np.float32)})


def test_an_unknown_reduction_is_a_boundary():
    text = """(float[a, b] x, int64[c, d] i, float[c, d] u) => (float y) {
        y = ScatterElements<reduction = "xor">(x, i, u) }"""
    assert imported(text).opaque == {0: "ScatterElements cannot merge f32 into f32 by 'xor'"}
