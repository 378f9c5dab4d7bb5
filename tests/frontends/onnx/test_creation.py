"""Values from few numbers: ranges, OneHot, EyeLike, ConstantOfShape; triangles."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.ir.dims import Dim
from noyau.ir.graph import Iota
from tests.frontends.onnx.models import agree, imported, results

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize("bounds", [(0, 7, 2), (5, 0, -2), (3, 3, 1), (0, -4, 1)])
def test_a_range_of_constants(bounds):
    start, end, step = bounds
    text = f"""() => (int64[n] y) {{ a = Constant<value_int = {start}>() b = Constant<value_int = {end}>()
        c = Constant<value_int = {step}>() y = Range(a, b, c) }}"""
    agree(text, {})


def test_a_range_to_a_size_is_an_index():
    found = imported(
        """(float[n] x) => (int64[n] y) { z = Constant<value_int = 0>() o = Constant<value_int = 1>()
        s = Shape(x) m = Squeeze(s) y = Range(z, m, o) }"""
    )
    assert found.graph["y"].kind == Iota(Dim.of("#0"))
    assert found.graph["y"].shape == (Dim.of("n"),)
    np.testing.assert_array_equal(results(found, {"x": X[0, 0]})[0], range(5))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("edge", [None, -7, -1, 0, 2, 9])
def test_triangles(upper, edge):
    extra = "" if edge is None else f"k = Constant<value_int = {edge}>() "
    text = (
        f"(float[a, b, c] x) => (float[a, b, c] y) {{ {extra}y = Trilu<upper = {upper}>(x{', k' if extra else ''}) }}"
    )
    agree(text, {"x": X})


def test_a_triangle_whose_edge_is_known_late():
    text = "(float[a, b, c] x, int64 k) => (float[a, b, c] y) { y = Trilu(x, k) }"
    agree(text, {"x": X, "k": np.array(1)})


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis):
    text = f"""(int64[a, b] x, float[2] v) => (float y) {{ d = Constant<value_int = 4>()
        y = OneHot<axis = {axis}>(x, d, v) }}"""
    agree(text, {"x": np.array([[0, 3, -1], [-4, 4, -5]]), "v": np.array([-2, 7], np.float32)})


def test_eyes():
    for k in (-1, 0, 2):
        agree(f"(float[a, b] x) => (double[a, b] y) {{ y = EyeLike<dtype = 11, k = {k}>(x) }}", {"x": X[0]})


def test_constants_of_a_shape():
    text = """(float[a, b] x) => (int32[b, a] y) { t = Transpose(x) s = Shape(t)
        y = ConstantOfShape<value = int32[1] {7}>(s) }"""
    agree(text, {"x": X[0]})
