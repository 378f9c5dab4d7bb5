from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.compiler.autodiff.reductions import WORDS
from noyau.dtypes import DType
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Map, Node, Reduce
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.monoids import MONOIDS
from tests.compiler.autodiff.nodes import alone, given
from tests.compiler.autodiff.numeric import agrees

MOVING = ("sum", "prod", "max", "min", "logsumexp", "variance")
AXES = [(0,), (1,), (0, 1), (0, 2), (0, 1, 2)]


def reduction(monoid, axes, dtype=DType.F64):
    shape = ("a", "b", "c")
    left = [name for axis, name in enumerate(shape) if axis not in axes]
    return alone(Reduce(monoid, axes), [given("x", shape, dtype)], left, dtype)


def gradient(monoid, x, above=1.0, axes=(0,)):
    graph = alone(Reduce(monoid, axes), [given("x", ("n",))], ())
    derived = derive(graph, ["x"]).gradient
    return evaluate(derived, {"x": np.array(x, float), "grad_y": np.array(above)})[derived.outputs[0]]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("monoid", MOVING)
def test_gradients_are_those_of_central_differences(monoid, axes):
    graph = reduction(monoid, axes)
    for shape in ((2, 3, 5), (1, 1, 7), (4, 1, 1)):
        agrees(graph, {"x": np.random.default_rng(1).normal(size=shape)})


@pytest.mark.parametrize("monoid", MOVING)
def test_reductions_of_nothing_have_gradients_of_nothing(monoid):
    derived = derive(reduction(monoid, (1,)), ["x"]).gradient
    found = evaluate(derived, {"x": np.zeros((2, 0, 3)), "grad_y": np.ones((2, 3))})
    assert found[derived.outputs[0]].shape == (2, 0, 3)


@pytest.mark.parametrize("monoid", ["max", "min"])
def test_ties_share_evenly(monoid):
    sign = 1 if monoid == "max" else -1
    np.testing.assert_array_equal(gradient(monoid, [sign * 2.0, 1.0 * sign, sign * 2.0], 3.0), [1.5, 0, 1.5])
    np.testing.assert_array_equal(gradient(monoid, [0.0, -0.0], 1.0), [0.5, 0.5])
    np.testing.assert_array_equal(gradient(monoid, [sign * np.inf, 0.0], 1.0), [1, 0])


def test_the_gradient_of_a_maximum_that_is_nan_is_nan():
    assert np.isnan(gradient("max", [1.0, np.nan, 3.0])).all()


@pytest.mark.parametrize(("monoid", "place"), [("max", 2), ("min", 1)])
def test_where_no_cell_equals_the_result_the_first_of_the_extremes_has_it_all(monoid, place):
    """As where it is computed again and rounded otherwise; here it is made to be another number."""
    y = Node("y", Map("exp"), ("x",), DType.F64, shape_of(["n"]))
    graph = Graph((given("x", ("n",)), y, Node("z", Reduce(monoid, (0,)), ("y",), DType.F64, ())), ("z",))
    back = derive(graph, ["x"]).backward
    other = [
        replace(node, kind=Reduce("sum", (0,))) if node.kind == Reduce(f"{monoid}_apart", (0,)) else node
        for node in back.nodes
    ]
    assert other != list(back.nodes)
    x = np.array([0.5, -1.0, 2.0, 2.0 if monoid == "max" else -1.0])
    for nodes, share in ((back.nodes, 0.5), (other, 1.0)):
        found = evaluate(replace(back, nodes=tuple(nodes)), {"x": x, "grad_z": np.array(3.0)})[back.outputs[0]]
        assert found[place] == pytest.approx(3 * share * np.exp(x[place]))
        assert found.sum() == pytest.approx(3 * np.exp(x[place]))


def test_an_infinite_gradient_stays_where_the_maximum_is():
    np.testing.assert_array_equal(gradient("max", [1.0, 2.0], np.inf), [0, np.inf])


@pytest.mark.parametrize(
    ("x", "want"),
    [
        ([2.0, 3.0, 4.0], [12, 8, 6]),
        ([2.0, 0.0, 4.0], [0, 8, 0]),
        ([0.0, 3.0, 0.0], [0, 0, 0]),
        ([0.0], [1]),
        ([1e-200, 1e-200, 3.0], [3e-200, 3e-200, 0]),
    ],
    ids=str,
)
def test_zeros_in_a_product_need_no_care(x, want):
    np.testing.assert_allclose(gradient("prod", x), want, rtol=1e-12)


def test_a_logsumexp_of_minus_infinity_gives_nothing_back():
    np.testing.assert_array_equal(gradient("logsumexp", [-np.inf, -np.inf]), [0, 0])
    np.testing.assert_array_equal(gradient("logsumexp", [-np.inf, 5.0]), [0, 1])


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_half_types_are_summed_in_float32(dtype):
    """4096 ones: in float16, 2048 + 1 is 2048."""
    shape = ("n",)
    graph = alone(Reduce("sum", (0,)), [given("x", shape, dtype)], (), dtype)
    derived = derive(derive(graph, ["x"]).gradient, ["grad_y"]).gradient
    inputs = {node.output: np.ones(4096 if node.shape else (), dtype.numpy) for node in derived.inputs}
    assert float(evaluate(derived, inputs)[derived.outputs[0]]) == 4096


@pytest.mark.parametrize("monoid", ["any", "argmax"])
def test_results_that_are_no_floats_end_the_gradient(monoid):
    kinds = {"any": (DType.BOOL, DType.BOOL), "argmax": (DType.F64, DType.I64)}[monoid]
    graph = alone(Reduce(monoid, (0,)), [given("x", ("n",), kinds[0])], (), kinds[1])
    z = given("z", ())
    graph = type(graph)((z, *graph.nodes), (*graph.outputs, "z"))
    derived = derive(graph, ["z"])
    assert [node.output for node in derived.backward.inputs] == ["grad_z"]


def test_a_product_of_second_order_is_right_at_a_zero():
    graph = alone(Reduce("prod", (0,)), [given("x", ("n",))], ())
    first = derive(graph, ["x"]).gradient
    agrees(first, {"x": np.array([2.0, 0.0, 5.0]), "grad_y": np.array(1.3)})
    agrees(first, {"x": np.array([0.0, 0.0, 5.0]), "grad_y": np.array(1.3)})


def test_a_result_that_steps_gives_zeros():
    graph = alone(Reduce("argmax", (0,)), [given("x", ("n",))], (), DType.I64)
    derived = derive(graph, ["x"])
    found = evaluate(derived.backward, {"x": np.ones(3)})
    np.testing.assert_array_equal(found["grad_x"], [0, 0, 0])


def test_every_monoid_of_floats_is_in_the_document():
    found = {name for name, monoid in MONOIDS.items() if "float" in monoid.accepts and not monoid.ordered}
    assert found - {"argmax", "argmin", "max_apart", "min_apart"} == set(WORDS)
