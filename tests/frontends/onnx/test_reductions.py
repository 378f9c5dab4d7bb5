"""Reductions: axes as attribute, input or none; keepdims; empty ones; what half types and integers do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.models import agree, imported, model, results

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
OPS = ["L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


@pytest.mark.parametrize("op", [*OPS, "LogSum"])
@pytest.mark.parametrize("keep", [0, 1])
def test_axes_as_an_input(op, keep):
    for axes in [[0], [-1], [0, 2], [2, 1], [0, 1, 2], []]:
        text = f"""(float[a, b, c] x) => (float y) {{ k = Constant<value_ints: ints = {axes}>()
            y = Reduce{op}<keepdims = {keep}>(x, k) }}"""
        agree(text, {"x": np.abs(X) if op == "LogSum" else X}, tolerance=1e-5)


@pytest.mark.parametrize("op", [op for op in OPS if op != "Sum"])  # its axes are an input since opset 13
def test_axes_as_an_attribute(op):
    agree(
        f"(float[a, b, c] x) => (float[a, 1, c] y) {{ y = Reduce{op}<axes = [-2]>(x) }}", {"x": X}, 13, tolerance=1e-5
    )


@pytest.mark.parametrize("op", ["Max", "Mean", "Sum"])
def test_no_axes_are_all_or_none(op):
    agree(f"(float[a, b, c] x) => (float y) {{ y = Reduce{op}<keepdims = 0>(x) }}", {"x": X}, tolerance=1e-5)
    text = f"""(float[a, b, c] x) => (float[a, b, c] y) {{ k = Constant<value_ints: ints = []>()
        y = Reduce{op}<noop_with_empty_axes = 1>(x, k) }}"""
    found = imported(text)
    assert not found.opaque
    np.testing.assert_array_equal(results(found, {"x": X})[0], X)


@pytest.mark.parametrize(
    ("op", "value"),
    [("Max", -np.inf), ("Min", np.inf), ("Sum", 0), ("Prod", 1), ("Mean", np.nan), ("LogSumExp", -np.inf)],
)
def test_reductions_of_nothing(op, value):
    found = imported(
        f"(float[n, m] x) => (float[n] y) {{ k = Constant<value_ints = [1]>() y = Reduce{op}<keepdims = 0>(x, k) }}"
    )
    np.testing.assert_array_equal(results(found, {"x": np.empty((3, 0), np.float32)})[0], np.full(3, value, np.float32))


def test_max_keeps_nan():
    found = imported("(float[n] x) => (float y) { y = ReduceMax<keepdims = 0>(x) }")
    assert np.isnan(results(found, {"x": np.array([1, np.nan, 3], np.float32)})[0])


def test_the_mean_of_half_precision_does_not_overflow():
    found = imported("(float16[n] x) => (float16 y) { y = ReduceMean<keepdims = 0>(x) }")
    (got,) = results(found, {"x": np.full(100, 60000, np.float16)})
    assert (got, got.dtype) == (np.float16(60000), np.float16)


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Prod", "L1", "SumSquare", "Mean"])
def test_integers(op):
    x = np.arange(-5, 7).reshape(3, 4)
    got = agree(
        f"(int64[n, 4] x) => (int64[n, 1] y) {{ k = Constant<value_ints = [1]>() y = Reduce{op}(x, k) }}", {"x": x}
    )
    assert got.graph["y"].dtype.value == "i64"


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_first_or_the_last_of_ties(op, last, axis):
    x = np.array([[3, 1, 3, 1], [1, 1, 3, 3], [0, 0, 0, 0]], np.float32)
    agree(f"(float[n, m] x) => (int64 y) {{ y = {op}<axis = {axis}, select_last_index = {last}>(x) }}", {"x": x})


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums(exclusive, reverse, axis):
    text = f"""(float[n, 4] x) => (float[n, 4] y) {{ k = Constant<value_int = {axis}>()
        y = CumSum<exclusive = {exclusive}, reverse = {reverse}>(x, k) }}"""
    agree(text, {"x": X[0]}, tolerance=1e-5)


def test_axes_that_are_wrong_are_a_boundary():
    for axes, reason in (
        ([3], "the axis 3 of ReduceSum is outside a rank of 3"),
        ([0, 0], "ReduceSum names an axis twice"),
    ):
        proto = model(
            f"(float[a, b, c] x) => (float y) {{ k = Constant<value_ints: ints = {axes}>() y = ReduceSum(x, k) }}"
        )
        assert imported(proto).opaque == {1: reason}
