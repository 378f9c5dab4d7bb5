from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.ir.graph import Map
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.autodiff.nodes import alone, given
from tests.compiler.autodiff.numeric import traced

INF = np.inf


def gradient(function, x, above=None):
    graph = traced(function, np.shape(x))
    derived = derive(graph, ["x"]).gradient
    out = evaluate(graph, {"x": np.asarray(x)})[graph.outputs[0]]
    given = {"x": np.asarray(x), f"grad_{graph.outputs[0]}": np.ones_like(out) if above is None else np.asarray(above)}
    return evaluate(derived, given)[derived.outputs[0]]


def guarded_log(x):
    return np.where(x > 0, x * np.log(x), 0)


def guarded_root(x):
    return np.where(x > 0, np.sqrt(np.maximum(x, 0)), x * 0)


def guarded_quotient(x):
    return np.where(x == 0, 1, np.sin(x) / x)


def guarded_norm(x):
    total = (x * x).sum(-1, keepdims=True)
    return np.where(total > 0, x / np.sqrt(total), 0)


def clipped(x):
    return np.maximum(1 / x, 0) + np.minimum(np.exp(x), 10)


def picked(x):
    return np.where(x > 0, np.log(x), 0)[::-1].reshape(2, -1).sum(0)


@pytest.mark.parametrize(
    ("function", "x", "want"),
    [
        (guarded_log, [0.0, -1.0, 1.0, np.e], [0, 0, 1, 2]),
        (guarded_root, [0.0, -1.0, 4.0], [0, 0, 0.25]),
        (guarded_quotient, [0.0, np.pi], [0, -1 / np.pi]),
        (guarded_norm, [[0.0, 0.0]], [[0, 0]]),
        (clipped, [-0.0, 1000.0, -1.0], [1, -1e-6, np.exp(-1)]),
        (picked, [0.0, 2.0, -3.0, 4.0], [0, 0.5, 0, 0.25]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_no_nan_of_the_branch_that_is_not_taken_gets_out(function, x, want):
    np.testing.assert_allclose(gradient(function, x), want, rtol=1e-12)


def test_an_infinity_of_a_branch_that_is_taken_stays():
    np.testing.assert_array_equal(gradient(lambda x: np.sqrt(x), [0.0, 4.0]), [INF, 0.25])
    np.testing.assert_array_equal(gradient(lambda x: np.where(x >= 0, np.sqrt(x), 0), [0.0, -1.0]), [INF, 0])


def test_a_value_that_another_reader_chose_has_that_one_s_gradient():
    np.testing.assert_allclose(
        gradient(lambda x: np.where(x > 3, np.exp(x), 0) + np.exp(x), [1.0, 4.0]), [np.e, 2 * np.exp(4)]
    )


def test_powers_of_numbers_are_no_powers_and_logarithms():
    graph = derive(traced(lambda x: x**3 + x**0.5 + x**-2.0, (5,)), ["x"]).backward
    assert not {"log", "where"} & {node.kind.function for node in graph.nodes if isinstance(node.kind, Map)}


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_formulas_of_half_types_are_computed_in_float32(dtype):
    """The derivative of 1 / sqrt(x) at 1e-4 is -5e5, which float16 does not have; times 1e-3 it is -500."""
    graph = alone(Map("rsqrt"), [given("x", ("n",), dtype)], ("n",), dtype)
    derived = derive(graph, ["x"]).gradient
    x, above = np.array([1e-4], dtype.numpy), np.array([1e-3], dtype.numpy)
    found = float(evaluate(derived, {"x": x, "grad_y": above})["grad_x"][0])
    assert found == pytest.approx(-0.5 * float(above[0]) * float(x[0]) ** -1.5, rel=0.02)


def test_casts_among_floats_hand_on_and_casts_to_integers_end():
    graph = traced(lambda x: x.astype(np.float32).astype(np.float64) * 2 + x.astype(np.int64), (3,))
    derived = derive(graph, ["x"]).gradient
    found = evaluate(derived, {"x": np.ones(3), "grad_out": np.ones(3)})
    np.testing.assert_array_equal(found["grad_x"], [2, 2, 2])
