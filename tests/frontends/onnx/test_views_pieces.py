"""Pad in all its modes, over symbolic extents."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.models import agree, imported, model, results

MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [3, 4, 7])
@pytest.mark.parametrize("pads", [(0, 0), (2, 0), (0, 2), (1, 2)])
def test_cells_read_from_the_value(mode, size, pads):
    text = f"""(float[n, m] x) => (float y) {{ p = Constant<value_ints = [0, {pads[0]}, 0, {pads[1]}]>()
        y = Pad<mode = "{mode}">(x, p) }}"""
    found = imported(text, 19)
    assert not found.opaque
    x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    np.testing.assert_array_equal(results(found, {"x": x})[0], np.pad(x, ((0, 0), pads), MODES[mode]))


@pytest.mark.parametrize(("mode", "least"), [("reflect", 3), ("edge", 1)])
def test_ends_are_ranges_and_need_cells_to_continue(mode, least):
    """No index is chosen cell by cell; onnxruntime refuses the same sizes."""
    text = f"""(float[n, m] x) => (float y) {{ p = Constant<value_ints = [0, 2, 0, 1]>()
        y = Pad<mode = "{mode}">(x, p) }}"""
    found = imported(text, 19)
    assert [str(demand) for demands in found.demands.values() for demand in demands] == [f"{least} <= m"]
    assert not any("max" in str(dim) for node in found.graph.nodes for dim in getattr(node.kind, "index", ()))


@pytest.mark.parametrize("pads", [[1, 0, 2, 3], [0, 0, 0, 0]])
def test_constant_cells(pads):
    text = f"""(float[n, m] x) => (float y) {{ p = Constant<value_ints = {pads}>() v = Constant<value_float = 7.0>()
        y = Pad(x, p, v) }}"""
    agree(text, {"x": np.arange(20, dtype=np.float32).reshape(4, 5)})


def test_negative_pads_cut_off():
    found = imported("(float[n, m] x) => (float y) { p = Constant<value_ints = [-1, 2, 0, -1]>() y = Pad(x, p) }")
    assert not found.opaque
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(results(found, {"x": x})[0], np.pad(x[1:, :-1], ((0, 0), (2, 0))))


def test_some_axes_only():
    text = """(int64[n, m, k] x) => (int64 y) { p = Constant<value_ints = [1, 2, 0, 3]>()
        a = Constant<value_ints = [-1, 0]>() y = Pad(x, p, , a) }"""
    x = np.arange(24).reshape(2, 3, 4)
    found = imported(model(text, 18))
    assert not found.opaque
    np.testing.assert_array_equal(results(found, {"x": x})[0], np.pad(x, ((2, 3), (0, 0), (1, 0))))


def test_pads_that_follow_from_sizes():
    text = """(float[n, m] x) => (float y) { z = Constant<value_ints = [0]>() s = Shape<start = 1>(x)
        p = Concat<axis = 0>(z, s, z, z) y = Pad(x, p) }"""
    found = agree(text, {"x": np.ones((2, 3), np.float32)})
    assert str(found.graph["y"].shape[1]) == "2*m"


@pytest.mark.parametrize("size", [0, 1, 2])
def test_cutting_more_than_there_is_leaves_nothing(size):
    found = imported("(float[n] x) => (float y) { p = Constant<value_ints = [-1, -1]>() y = Pad(x, p) }")
    assert results(found, {"x": np.ones(size, np.float32)})[0].shape == (0,)


def test_what_is_no_pad_is_a_boundary():
    for text, reason in (
        (
            "(float[n] x, int64[2] p) => (float y) { y = Pad(x, p) }",
            "the pads of Pad are only known when the model runs",
        ),
        (
            "(float[n] x) => (float y) { p = Constant<value_ints = [1]>() y = Pad(x, p) }",
            "Pad is given 1 pads for 1 axes",
        ),
        (
            '(float[n] x) => (float y) { p = Constant<value_ints = [1, 1]>() y = Pad<mode = "up">(x, p) }',
            "Pad has no mode 'up'",
        ),
        (
            '(float[2] x) => (float y) { p = Constant<value_ints = [2, 0]>() y = Pad<mode = "reflect">(x, p) }',
            "it needs 3 to be at most 2",
        ),
    ):
        assert next(iter(imported(text).opaque.values())) == reason
