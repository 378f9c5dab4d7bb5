"""Gather and its kin, slices, ranges and masks, over symbolic extents."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.values import guards
from noyau.errors import InputError
from noyau.frontends.onnx.gathers import slice_bounds
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, View
from tests.frontends.onnx.models import agree, imported, results

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
BOUNDS = [-9, -6, -5, -4, -1, 0, 1, 3, 4, 5, 6, 9, 2**63 - 1, -(2**63), 2**31 - 1]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
def test_slices_clamp_as_numpy_does(step):
    for size in (0, 1, 2, 5):
        for start in BOUNDS:
            for end in BOUNDS:
                first, length = slice_bounds(Dim.of("n"), start, end, step)
                got = [first.evaluate({"n": size}) + step * k for k in range(length.evaluate({"n": size}))]
                assert got == list(range(size))[slice(start, end, step)], (size, start, end, step)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("places", [[0, 2, -1, 1], [[0], [-3]], 1, -1])
def test_gather(axis, places):
    found = imported(
        f"(float[a, b, c] x, int64{'[k]' if isinstance(places, list) else ''} i) => (float y) "
        f"{{ y = Gather<axis = {axis}>(x, i) }}".replace("[k] i", "[k, m] i" if np.ndim(places) == 2 else "[k] i")
    )
    assert not found.opaque
    assert isinstance(found.graph["y"].kind, Gather)
    (got,) = results(found, {"x": X, "i": np.array(places)})
    np.testing.assert_array_equal(got, np.take(X, np.array(places), axis))


@pytest.mark.parametrize("place", [3, -4])
def test_an_index_outside_is_an_error(place):
    found = imported("(float[a, b, c] x, int64[k] i) => (float y) { y = Gather(x, i) }")
    with pytest.raises(InputError, match="an index is outside"):
        results(found, {"x": X, "i": np.array([0, place])})


def test_a_range_of_another_size_is_a_view_within_bounds():
    """The first rows of a table: that it has so many is asked when the sizes are known, not at each cell."""
    text = """(float[a, 5] table, float[n] x) => (float y) { zero = Constant<value_int = 0>()
        one = Constant<value_int = 1>() s = Shape(x) n = Gather(s, zero) at = Range(zero, n, one)
        y = Gather(table, at) }"""
    found = agree(text, {"table": X[0], "x": X[0, :3, 0]})
    assert found.graph["y"].kind == View((Dim.of("#0"), Dim.of("#1")))
    (guard,) = guards(found.graph)
    assert guard.right == Dim.of("a") - 1
    with pytest.raises(InputError, match="cannot be read"):
        results(found, {"table": X[0], "x": np.zeros(5, np.float32)})


def test_a_range_that_may_be_negative_is_looked_up():
    text = """(float[a, 5] table, float[n] x) => (float y) { zero = Constant<value_int = 0>()
        one = Constant<value_int = 1>() s = Shape(x) n = Gather(s, zero) at = Range(zero, n, one)
        less = Sub(at, one) y = Gather(table, less) }"""
    found = agree(text, {"table": X[0], "x": X[0, :3, 0]})
    assert isinstance(found.graph["y"].kind, Gather)


def test_constant_indices_are_a_view():
    found = agree(
        "(float[a, 4, c] x) => (float y) { i = Constant<value_int = -2>() y = Gather<axis = 1>(x, i) }", {"x": X}
    )
    assert found.graph["y"].kind == View((Dim.of("#0"), Dim.of(2), Dim.of("#1")))


def test_positions_are_a_view():
    """A range, moved and multiplied, indexes its own extent: no lookup is left."""
    found = agree(
        """(float[a, b] x) => (float y) { one = Constant<value_int = 1>() whole = Constant<value_ints = [-1]>()
        s = Shape(x) n = Gather(s, one) f = Reshape(x, whole)
        start = Constant<value_int = 0>() step = Constant<value_int = 1>() m = Gather(s, start)
        rows = Range(start, m, step) offsets = Mul(rows, n) k = Constant<value_ints = [1]>()
        tall = Unsqueeze(offsets, k) columns = Range(start, n, step) at = Add(tall, columns) y = Gather(f, at) }""",
        {"x": X[0]},
    )
    assert found.graph["y"].kind == View((Dim.of("#0") * "b" + "#1",))


def test_gather_elements_and_their_demands():
    text = "(float[a, b] x, int64[c, d] i) => (float[c, d] y) { y = GatherElements<axis = 1>(x, i) }"
    places = np.array([[0, -1, 3], [2, 2, -4]])
    found = agree(text, {"x": X[0, :3], "i": np.array([[0, -1, 3], [2, 2, -4], [1, 1, 1]])})
    assert [(str(d.left), str(d.right), d.relation) for d in found.demands[0]] == [("c", "a", "at most")]
    (got,) = results(found, {"x": X[0], "i": places})
    np.testing.assert_array_equal(got, np.take_along_axis(X[0, :2], places, 1))


@pytest.mark.parametrize(
    ("batch", "shape", "places"),
    [
        (0, "[k, 2]", [[0, 1], [-1, 3]]),
        (0, "[k, 1]", [[2], [-3]]),
        (0, "[k, 3]", [[2, 3, -1], [0, 0, 0]]),
        (1, "[a, 1]", [[1], [0], [-1]]),
        (1, "[a, k, 2]", [[[1, 0]], [[0, -1]], [[3, 4]]]),
    ],
)
def test_gather_nd(batch, shape, places):
    text = f"(float[a, b, c] x, int64{shape} i) => (float y) {{ y = GatherND<batch_dims = {batch}>(x, i) }}"
    agree(text, {"x": X, "i": np.array(places)})


def test_a_cut_table_has_the_extent_of_what_it_meets():
    """Learned positions: 512 rows cut to the sequence, then added to it."""
    text = """(float[batch, seq, 2] x, float[512, 2] table) => (float y) { z = Constant<value_ints = [0]>()
        s = Shape<start = 1, end = 2>(x) p = Slice(table, z, s) y = Add(x, p) }"""
    found = imported(text)
    assert [str(dim) for dim in found.graph["y"].shape] == ["batch", "seq", "2"]
    table = np.random.default_rng(0).standard_normal((512, 2)).astype(np.float32)
    for seq in (0, 1, 7, 512):
        x = np.ones((2, seq, 2), np.float32)
        np.testing.assert_array_equal(results(found, {"x": x, "table": table})[0], x + table[:seq])
    with pytest.raises(InputError, match="the inputs do not fit"):
        results(found, {"x": np.ones((2, 513, 2), np.float32), "table": table})
