from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Graph, Map, Node, Opaque, Part
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.autodiff.nodes import alone, given
from tests.compiler.autodiff.numeric import agrees, arrays_for, backwards, differences, traced


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def layer_norm(x, w, b):
    away = x - x.mean(-1, keepdims=True)
    return away / np.sqrt((away * away).mean(-1, keepdims=True) + 1e-5) * w + b


def dense(x, w, b):
    return np.tanh(x @ w + b)


def pieces(x, y):
    return (np.concatenate([x.T[::-1], np.abs(y)[:, ::2]], 1) * 2).reshape(-1)


def sums(x):
    return x.prod(-1) + x.max() + np.cumsum(x, -1).sum(-1) + np.var(x, -1)


CASES = [
    (softmax, [(3, 5)]),
    (rms_norm, [(3, 5), (5,)]),
    (layer_norm, [(3, 5), (5,), (5,)]),
    (dense, [(2, 3), (3, 4), (4,)]),
    (pieces, [(3, 4), (4, 7)]),
    (sums, [(3, 4)]),
]


@pytest.mark.parametrize(("function", "shapes"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_gradients_are_those_of_central_differences(function, shapes):
    graph = traced(function, *shapes)
    given = zip(graph.inputs, shapes, strict=True)
    sizes = {f"{node.output}_{axis}": n for node, shape in given for axis, n in enumerate(shape)}
    agrees(graph, arrays_for(graph, sizes))


MAPS = [
    lambda x: np.tanh(x) * x**3 + np.exp(-x * x),
    lambda x: np.where(x > 0, x * np.sin(x), np.log1p(x * x)),
    lambda x: np.maximum(x, 0.1) ** 2 / (1 + np.abs(x)),
]


@pytest.mark.parametrize("function", [*MAPS, softmax, rms_norm, layer_norm], ids=lambda each: each.__name__)
def test_gradients_of_gradients(function):
    shapes = [(2, 3), (3,), (3,)][: function.__code__.co_argcount]
    first = derive(traced(function, *shapes), ["x"]).gradient
    sizes = {f"{node.output}_{axis}": 3 for node in first.inputs for axis in range(2)} | {"x_0": 2}
    agrees(first, arrays_for(first, sizes), tolerance=1e-5)


def test_gradients_of_gradients_of_gradients():
    graph = traced(lambda x: np.exp(x) * x, (3,))
    second = derive(derive(graph, ["x"]).gradient, ["x"]).gradient
    agrees(second, arrays_for(second, {"x_0": 3}))


def test_a_graph_is_derived_once_for_all_sizes():
    graph = traced(softmax, (3, 5))
    derived = derive(graph, ["x"])
    for shape in ((1, 1), (2, 7), (5, 2), (0, 3)):
        inputs = {"x": np.random.default_rng(0).normal(size=shape)}
        above = {"out": np.random.default_rng(1).normal(size=shape)}
        want = differences(graph, inputs, above, ["x"])["x"]
        np.testing.assert_allclose(backwards(derived, inputs, above)["x"], want, atol=1e-8)


def test_what_several_readers_give_back_is_added_and_what_none_reads_is_zero():
    graph = traced(lambda x, y: (x * 2 + x * x, np.floor(y)), (3,), (2,))
    found = backwards(
        derive(graph, ["y", "x"]), {"x": np.arange(3.0), "y": np.ones(2)}, {"out0": np.ones(3), "out1": np.ones(2)}
    )
    np.testing.assert_array_equal(found["x"], [2, 4, 6])
    np.testing.assert_array_equal(found["y"], [0, 0])


def test_an_input_that_is_an_output_has_its_gradient():
    x = given("x", ("n",))
    derived = derive(Graph((x,), ("x",)), ["x"])
    found = evaluate(derived.backward, {"grad_x": np.arange(3.0)})
    np.testing.assert_array_equal(found[derived.backward.outputs[0]], np.arange(3.0))


def test_half_types_that_several_read_are_added_in_float32():
    """2048 + 0.75 + 0.75: in float16, 2048 + 0.75 is 2048."""
    x = given("x", ("n",), DType.F16)
    outs = [Node(name, Map("negative"), ("x",), DType.F16, x.shape) for name in "abc"]
    derived = derive(Graph((x, *outs), ("a", "b", "c")), ["x"]).gradient
    above = {f"grad_{n}": np.array([value], np.float16) for n, value in zip("abc", (2048, 0.75, 0.75), strict=True)}
    assert float(evaluate(derived, {"x": np.zeros(1, np.float16), **above})["grad_x"][0]) == -2050


OPAQUE = Opaque("Solver", lambda x: (x, x))
DOUBLE = Graph(
    (
        given("x", ("n",)),
        Node("both", OPAQUE, ("x",), DType.OTHER, ()),
        Node("y", Part(1), ("both",), DType.F64, given("x", ("n",)).shape),
    ),
    ("y",),
)


@pytest.mark.parametrize(
    ("graph", "wanted", "told"),
    [
        (alone(OPAQUE, [given("x", ("n",))], ("n",)), "x", "y is made by Solver, which has no derivative here"),
        (DOUBLE, "x", "y is a result of what has no derivative here"),
        (alone(Map("negative"), [given("x", ("n",))], ("n",)), "y", "y is no input of the graph"),
        (alone(Map("negative"), [given("x", ("n",))], ("n",)), "z", "z is no input of the graph"),
        (alone(Map("negative"), [given("x", ("n",), DType.I32)], ("n",), DType.I32), "x", "x is i32: only floats have"),
        (
            alone(Map("negative"), [given("grad_y", ("n",))], ("n",)),
            "grad_y",
            "grad_y is a value of the graph; the gradient",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_cannot_be_derived_is_named(graph, wanted, told):
    with pytest.raises(UnsupportedError, match=told):
        derive(graph, [wanted])


def test_what_has_no_derivative_is_no_matter_where_nothing_wanted_goes_through_it():
    x, y = given("x", ("n",)), given("y", ("n",))
    made = Node("z", OPAQUE, ("y",), DType.F64, x.shape)
    graph = Graph((x, y, made, Node("out", Map("multiply"), ("x", "z"), DType.F64, x.shape)), ("out",))
    assert "z" in derive(graph, ["x"]).saved
