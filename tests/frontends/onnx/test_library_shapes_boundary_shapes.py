"""The shapes of boundaries: by rule, equal to what the operator really gives."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.dims import Dim, shape_of
from tests.frontends.onnx.models import imported, results

CONV = "(float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float y) {{ y = Conv<{}>(x, k) }}"
POOL = "(float[n, 3, h, w] x) => (float y) {{ y = MaxPool<kernel_shape = [3, 2]{}>(x) }}"
IMAGE = {"x": np.random.default_rng(0).standard_normal((2, 3, 9, 12)).astype(np.float32)}
KERNEL = {"k": np.random.default_rng(1).standard_normal((8, 3, 3, 3)).astype(np.float32)}
SIZES = {"n": 2, "h": 9, "w": 12}


@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape = [3, 3]",
        "pads = [1, 1, 1, 1]",
        "pads = [0, 1, 2, 0], strides = [2, 3]",
        "strides = [2, 2], dilations = [2, 1]",
        'auto_pad = "VALID", strides = [2, 2]',
        'auto_pad = "SAME_UPPER", strides = [2, 2]',
    ],
)
def test_convolutions(attributes):
    found = imported(CONV.format(attributes))
    assert found.opaque == {0: "Conv is a library call"}
    shape = found.graph["y"].shape
    assert {name for dim in shape for name in dim.names} == {"n", "h", "w"}
    got = results(found, {**IMAGE, **KERNEL})[0]
    assert [dim.evaluate(SIZES) for dim in shape] == list(got.shape)


@pytest.mark.parametrize("attributes", ["", ", strides = [2, 2]", ", pads = [1, 1, 1, 1]"])
def test_pools(attributes):
    found = imported(POOL.format(attributes))
    got = results(found, IMAGE)[0]
    assert [dim.evaluate(SIZES) for dim in found.graph["y"].shape] == list(got.shape)


def test_two_branches_of_one_extent_add_up():
    found = imported(
        """(float[n, 3, h, w] x, float[8, 3, 3, 3] k, float[8, 3, 1, 1] l) => (float y) {
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, k) b = Conv<strides = [2, 2]>(x, l) y = Add(a, b) }"""
    )
    assert not found.demands
    assert found.graph["y"].shape == (Dim.of("n"), Dim.of(8), (Dim.of("h") - 1) // 2 + 1, (Dim.of("w") - 1) // 2 + 1)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("(float[n, k] x, float[k, m] w) => (float y) { y = Gemm(x, w) }", ["n", "m"]),
        ("(float[k, n] x, float[m, k] w) => (float y) { y = Gemm<transA = 1, transB = 1>(x, w) }", ["n", "m"]),
        ("(float[b, 1, n, k] x, float[h, k, m] w) => (float y) { y = MatMul(x, w) }", ["b", "h", "n", "m"]),
        ("(float[k] x, float[h, k, m] w) => (float y) { y = MatMul(x, w) }", ["h", "m"]),
        ("(float[n, k] x, float[k] w) => (float y) { y = MatMul(x, w) }", ["n"]),
        ("(float[n, m] x, bool[k] c) => (float y) { y = Compress<axis = 1>(x, c) }", ["n", "d0"]),
        ("(float[n, m] x, bool[k] c) => (float y) { y = Compress(x, c) }", ["d0"]),
        ("(float[n, m] x, int64[3] t) => (float y) { y = Reshape(x, t) }", ["d0", "d1", "d2"]),
        ("(float[n, m] x, int64[2] s, int64[2] e) => (float y) { y = Slice(x, s, e) }", ["d0", "d1"]),
        ("(float[n, m] x, int64[k] a) => (float y) { y = ReduceSum(x, a) }", ["d0", "d1"]),
        ("(float[n, m] x, int64[2] t) => (float y, float z) { y, z = Split<axis = 1>(x, t) }", ["n", "d0"]),
        ("(float[n, m] x, int64[n] l) => (float y) { y = ReverseSequence(x, l) }", ["n", "m"]),
        ("(float a, float b, float c) => (float y) { y = Range(a, b, c) }", ["d0"]),
        (
            "(float[n, k] x, float[k, m] w, float[m, p] v) => (float y) "
            '{ y = Einsum<equation = "ik,km,mp->pi">(x, w, v) }',
            ["p", "n"],
        ),
    ],
)
def test_rules(text, shape):
    found = imported(text)
    assert list(found.opaque) == [0]
    assert found.graph["y"].shape == shape_of(shape)


def test_the_filler_of_an_unknown_shape_gives_the_dtype():
    found = imported("(int64[2] t) => (int32 y) { y = ConstantOfShape<value = int32[1] {7}>(t) }")
    assert (found.graph["y"].dtype, len(found.graph["y"].shape)) == (DType.I32, 2)
    np.testing.assert_array_equal(results(found, {"t": np.array([2, 3])})[0], np.full((2, 3), 7))


def test_what_an_exporter_declares_completes_a_rule():
    found = imported("(float[n, m] x, int64[2] t) => (float[p, 5] y) { y = Reshape(x, t) }")
    assert found.graph["y"].shape == shape_of(["p", 5])


def test_a_declared_zero_says_nothing():
    found = imported("(float[n, m] x, int64[2] t) => (float[0, 5] y) { y = Reshape(x, t) }")
    assert found.graph["y"].shape == shape_of(["d0", 5])
