"""Shape arithmetic: its cells as Dims, beside what NumPy gives for the same cells as numbers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from noyau.ir.dims import Dim
from tests.frontends.onnx.models import imported, model, results

X = np.zeros((2, 3, 8), np.float32)
OPENING = "(float[a, b, 8] x) => (int64 y) { s = Shape(x) "
ENDINGS = [
    "k = Constant<value_int = 1>() y = Gather(s, k) }",
    "k = Constant<value_ints = [-1, 0, 0]>() y = Gather(s, k) }",
    "k = Constant<value_ints = [2]>() y = Add(s, k) }",
    "k = Constant<value_ints = [2, 3, 4]>() y = Mul(s, k) }",
    "k = Constant<value_int = 3>() y = Sub(k, s) }",
    "k = Constant<value_int = 2>() y = Div(s, k) }",
    "k = Constant<value_int = 2>() y = Mod(s, k) }",
    "y = Neg(s) }",
    "y = Abs(s) }",
    "k = Constant<value_int = 5>() y = Max(s, k) }",
    "k = Constant<value_int = 5>() y = Min(s, k) }",
    "y = ReduceProd<keepdims = 0>(s) }",
    "y = ReduceSum(s) }",
    "y = ReduceMax<keepdims = 0>(s) }",
    "y = ReduceMin<keepdims = 0>(s) }",
    "y = Size(x) }",
    "k = Constant<value_ints = [1]>() e = Constant<value_ints = [9]>() y = Slice(s, k, e) }",
    "k = Constant<value_ints = [-1]>() e = Constant<value_ints = [-9]>() z = Constant<value_ints = [0]>() "
    "y = Slice(s, k, e, z, k) }",
    "y = Concat<axis = 0>(s, s) }",
    "k = Constant<value_ints = [3, 1]>() y = Reshape(s, k) }",
    "k = Constant<value_ints = [1]>() y = Unsqueeze(s, k) }",
    "k = Constant<value_ints = [0]>() t = Unsqueeze(s, k) y = Transpose(t) }",
    "k = Constant<value_ints = [0]>() t = Unsqueeze(s, k) y = Squeeze(t, k) }",
    "c = Cast<to = 6>(s) y = Cast<to = 7>(c) }",
    "y = CastLike(s, s) }",
    "y = Identity(s) }",
    "a1, b1, c1 = Split<axis = 0, num_outputs = 3>(s) y = Concat<axis = 0>(c1, a1) }",
    "k = Constant<value_ints = [1]>() one = ConstantOfShape<value = int64[1] {7}>(k) y = Mul(s, one) }",
    "k = Constant<value_ints = [1]>() t = Slice(s, k, k2) y = Expand(t, e) }".replace(
        "t = Slice", "k2 = Constant<value_ints = [2]>() e = Constant<value_ints = [4]>() t = Slice"
    ),
    "m = Constant<value_int = -1>() e = Equal(s, m) y = Where(e, m, s) }",
    "m = Constant<value_int = -1>() l = Less(s, m) n = Not(l) y = Where(n, s, m) }",
    "m = Constant<value_int = -1>() g = GreaterOrEqual(m, s) h = Greater(s, m) o = Or(g, h) y = Where(o, s, m) }",
    "m = Constant<value_int = -1>() g = LessOrEqual(m, s) h = Greater(s, m) o = And(g, h) y = Where(o, s, m) }",
    "p = Shape<start = 1>(x) q = Shape<end = -1>(x) r = Shape<start = -9, end = 9>(x) y = Concat<axis = 0>(p, q, r) }",
    "f = Constant<value_int = 0>() e = Constant<value_int = 6>() d = Constant<value_int = 2>() y = Range(f, e, d) }",
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_arithmetic_on_known_cells(ending):
    proto = model(OPENING + ending)
    found = imported(proto)
    assert found.arithmetic == frozenset(range(len(proto.graph.node)))
    assert not found.opaque
    (got,), (want,) = results(found, {"x": X}), ReferenceEvaluator(proto).run(None, {"x": X})
    np.testing.assert_array_equal(got, want)
    assert (got.dtype, got.shape) == (np.asarray(want).dtype, np.asarray(want).shape)


@pytest.mark.parametrize(
    "ending",
    [
        "k = Constant<value_int = 4>() d = Sub(s, k) z = Constant<value_int = 2>() y = Div(d, z) }",
        "k = Constant<value_int = 4>() l = Less(s, k) y = Where(l, k, s) }",
        "k = Constant<value_int = 4>() d = Sub(s, k) y = Abs(d) }",
    ],
)
def test_what_is_not_certain_is_computed(ending):
    """The sign of `a - 4` is unknown: the value is made by scalar functions of sizes, and is right."""
    proto = model(OPENING + ending)
    found = imported(proto)
    assert not found.opaque
    assert len(proto.graph.node) - 1 not in found.arithmetic
    (got,), (want,) = results(found, {"x": X}), ReferenceEvaluator(proto).run(None, {"x": X})
    np.testing.assert_array_equal(got, want)


def test_the_cells_are_dims():
    found = imported(
        "(float[a, b, 8] x) => (float y) { s = Shape(x) p = ReduceProd(s) y = Reshape(x, p) }",
    )
    assert found.graph["y"].shape == (Dim.of("a") * "b" * 8,)


def test_a_mask_is_no_shape():
    """A table made of ranges stays an index, not a list of its cells."""
    found = imported(
        """() => (bool y) { z = Constant<value_int = 0>() o = Constant<value_int = 1>() n = Constant<value_int = 12>()
        r = Range(z, n, o) k = Constant<value_ints = [1]>() t = Unsqueeze(r, k) y = LessOrEqual(r, t) }"""
    )
    assert found.arithmetic == frozenset(range(6))
    np.testing.assert_array_equal(results(found, {})[0], np.tri(12, dtype=bool))


def test_formulas_that_double_with_each_node_stop():
    squares = " ".join(f"s{k + 1} = Mul(s{k}, s{k})" for k in range(40))
    found = imported(f"(float[a, b] x) => (int64[2] s40) {{ s0 = Shape(x) {squares} }}")
    assert not found.opaque
    assert 40 not in found.arithmetic
    assert results(found, {"x": np.zeros((1, 0), np.float32)})[0].tolist() == [1, 0]


def test_sums_that_double_with_each_node_stop():
    text = " ".join(f"s{k + 1} = Concat<axis = 0>(s{k}, s{k})" for k in range(20))
    found = imported(f"(float[a, b] x) => (int64[n] s20) {{ s0 = Shape(x) {text} }}")
    assert not found.opaque
    assert found.graph["s20"].shape == (Dim.of(2**21),)
