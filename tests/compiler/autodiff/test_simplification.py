from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.compiler.autodiff.simplification import simplify_gradient
from noyau.dtypes import DType
from noyau.ir.graph import Graph, Map, Node, Reduce
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.autodiff.nodes import given
from tests.compiler.autodiff.numeric import agrees, arrays_for, traced
from tests.compiler.autodiff.test_adjoints_reverse_deriving import softmax

SHAPE = given("x", ("n",)).shape


def functions(graph):
    return sorted(node.kind.function for node in graph.nodes if isinstance(node.kind, Map))


def test_softmax_needs_its_result_alone():
    graph = traced(softmax, (3, 4))
    derived = agrees(graph, arrays_for(graph, {"x_0": 3, "x_1": 4}))
    assert derived.saved == ("out",)
    assert derived.forward.outputs == ("out",)
    assert functions(derived.backward) == ["multiply", "multiply", "subtract"]


def rounded(function):
    return lambda x: function(x.astype(np.float32)).astype(x.dtype)


def test_softmax_of_half_types_needs_its_rounded_result_alone():
    derived = derive(traced(rounded(softmax), (3, 4), dtype=DType.BF16), ["x"])
    assert derived.saved == ("out",)
    assert functions(derived.backward) == ["cast", "cast", "cast", "multiply", "multiply", "subtract"]


@pytest.mark.parametrize("function", [np.tanh, lambda x: x / 3.0, lambda x: 1.0 / (1.0 + np.exp(-x))])
def test_other_results_that_were_rounded_are_computed_again(function):
    """1 - y of a rounded y is far less exact."""
    assert derive(traced(rounded(function), (3, 4), dtype=DType.BF16), ["x"]).saved in (("x",), ())


@pytest.mark.parametrize(
    "function",
    [lambda x, s: x / s - s / s[::-1], lambda x, s: x / s[::-1] + s / s, lambda x, s: (x * s).sum() / s - x / s],
)
def test_quotients_by_other_values_stay_apart(function):
    graph = traced(function, (4,), (4,))
    inputs = {"x": np.arange(4.0), "s": np.array([1.0, 2.0, 4.0, 5.0])}
    agrees(graph, inputs)


def test_what_is_alike_along_the_axes_leaves_a_sum():
    graph = traced(lambda x, w, s: x * w / s[:, None], (3, 4), (4,), (3,))
    derived = derive(graph, ["s", "w"])
    sums = [derived.backward[node.inputs[0]] for node in derived.backward.nodes if isinstance(node.kind, Reduce)]
    agrees(graph, arrays_for(graph, {"x_0": 3, "x_1": 4, "w_0": 4, "s_0": 3}))
    assert len(sums) == 2


def variance_of_rows(x):
    centred = x - x.mean(1, keepdims=True)
    return (centred * centred).mean(1)


def variance_of_all(x):
    return ((x - x.mean()) ** 2).mean()


@pytest.mark.parametrize("function", [variance_of_rows, lambda x: variance_of_rows(x.T), variance_of_all])
def test_a_sum_of_distances_from_the_mean_is_not_computed(function):
    graph = traced(function, (3, 4))
    derived = agrees(graph, arrays_for(graph, {"x_0": 3, "x_1": 4}))
    assert not [node for node in derived.backward.nodes if isinstance(node.kind, Reduce)]


def test_rows_without_a_mean_have_no_gradient_that_is_a_number():
    derived, x = derive(traced(variance_of_rows, (2, 3)), ["x"]), np.array([[1.0, np.inf, 2.0], [1.0, 2.0, 4.0]])
    saved = evaluate(derived.forward, {"x": x})
    (gradient,) = evaluate(derived.backward, {**saved, "x": x, "grad_out": np.ones(2)}).values()
    assert np.isnan(gradient).tolist() == [[True] * 3, [False] * 3]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ((x - x.mean(0)) ** 2).sum(1),
        lambda x: ((x - x.sum(1, keepdims=True) / 3.0) ** 2).sum(1),
        lambda x: ((x - x.mean(1, keepdims=True)[::-1]) ** 2).sum(1),
    ],
)
def test_a_sum_of_distances_from_another_value_is_computed(function):
    graph = traced(function, (4, 4))
    agrees(graph, arrays_for(graph, {"x_0": 4, "x_1": 4}))


def rounding(between: DType, *outputs: str) -> Graph:
    x = given("x", ("n",), DType.F32)
    there = Node("there", Map("cast"), ("x",), between, SHAPE)
    back = Node("back", Map("cast"), ("there",), DType.F32, SHAPE)
    return check(Graph((x, there, back, Node("y", Map("negative"), ("back",), DType.F32, SHAPE)), outputs))


def test_casts_to_a_half_type_and_back_go_where_nothing_else_reads_the_half():
    assert functions(simplify_gradient(rounding(DType.BF16, "y"), ["x"])) == ["negative"]
    assert functions(simplify_gradient(rounding(DType.BF16, "y", "there"), ["x"])) == ["cast", "cast", "negative"]
    assert functions(simplify_gradient(rounding(DType.I32, "y"), ["x"])) == ["cast", "cast", "negative"]


def test_casts_of_what_is_no_gradient_round():
    assert functions(simplify_gradient(rounding(DType.BF16, "y"))) == ["cast", "cast", "negative"]


def test_outputs_keep_their_names_and_values():
    graph = traced(lambda x: (x / x.sum() - 1 / x.sum(), x), (5,))
    same = simplify_gradient(graph, ["x"])
    assert same.outputs == graph.outputs
    x = {"x": np.arange(1.0, 6.0)}
    want, got = evaluate(graph, x), evaluate(same, x)
    assert all(np.allclose(got[name], want[name]) for name in graph.outputs)
