from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.ir.dims import Dim, maximum, shape_of
from noyau.ir.graph import Graph, Input, Node, Scatter, View, expand_index
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.autodiff.numeric import agrees

U, V, W = (Dim.of(f"#{axis}") for axis in range(3))
N, M, ZERO = Dim.of("n"), Dim.of("m"), Dim.of(0)
STRAIGHT = {
    "transpose": (("n", "m"), ("m", "n"), (V, U)),
    "expand": (("n",), ("n", "m"), (U,)),
    "expand_of_one": (("n", 1), ("n", 5), (U, ZERO)),
    "slice": (("n", 7), ("n", 3), (U, V + 2)),
    "flip": (("n",), ("n",), (N - 1 - U,)),
    "every_other": (("n", 7), ("n", 3), (U, V * 2 + 1)),
    "every_other_back": (("n", 7), ("n", 3), (U, 6 - V * 2)),
    "half": (("2*n",), ("n",), (U + N,)),
    "row": (("n", 4), ("n",), (U, Dim.of(2))),
    "first_of_a_size": (("n", "m"), ("n",), (U, ZERO)),
    "last_of_a_size": (("n", "m"), ("n",), (U, M - 1)),
    "squeeze": (("n", 1), ("n",), (U, ZERO)),
    "merge": (("n", "m"), ("n*m",), (U // M, U % M)),
    "split": (("n*m",), ("n", "m"), (U * M + V,)),
    "split_and_transposed": (("n*m",), ("m", "n"), (V * M + U,)),
    "heads": (("n", 2, 3), ("n", 6), (U, V // 3, V % 3)),
    "heads_of_a_part": (("n", 12), ("n", 2, 3), (U, V * 3 + W + 5)),
    "diagonal": (("n", "n"), ("n",), (U, U)),
}
SCATTERED = {
    "windows": (("n + 2",), ("n", 3), (U + V,)),
    "mirrored": (
        ("n",),
        ("n + 2",),
        (N - 1 - maximum(N - 1 - maximum(U - 1, 1 - U), -(N - 1 - maximum(U - 1, 1 - U))),),
    ),
    "around": (("n",), ("2*n",), (U % N,)),
    "merge_of_a_part": (("n", 4), ("4*n - 1",), ((U + 1) // 4, (U + 1) % 4)),
}
SIZES = [{"n": 3, "m": 2}, {"n": 5, "m": 7}, {"n": 2, "m": 1}, {"n": 1, "m": 3}]


def dims(shape):
    """A shape spelt in text: sums and products of names and numbers."""
    found = []
    for each in shape:
        total = ZERO
        for term in str(each).replace("- ", "+ -").split(" + "):
            product = Dim.of(-1 if term.startswith("-") else 1)
            for factor in term.lstrip("-").split("*"):
                product = product * (int(factor) if factor.isdigit() else factor)
            total = total + product
        found.append(total)
    return tuple(found)


def view_graph(source, shape, index):
    first = Node("x", Input(), (), DType.F64, dims(source))
    sizes = Node("sizes", Input(), (), DType.F64, shape_of(["n", "m"]))
    shown = Node("y", View(tuple(index)), ("x",), DType.F64, dims(shape))
    return Graph((first, sizes, shown), ("y",))


def arrays(graph, sizes):
    shapes = {node.output: [int(dim.evaluate(sizes)) for dim in node.shape] for node in graph.inputs}
    return {name: np.random.default_rng(0).normal(size=shape) for name, shape in shapes.items()}


def scatters(graph):
    return [node for node in graph.nodes if isinstance(node.kind, Scatter)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", STRAIGHT)
def test_a_view_is_turned_round_without_a_scatter(name, sizes):
    graph = view_graph(*STRAIGHT[name])
    derived = agrees(graph, arrays(graph, sizes), ["x"])
    assert not scatters(derived.backward)


@pytest.mark.parametrize("name", SCATTERED)
def test_other_views_are_a_scatter_that_sums(name):
    for sizes in SIZES[:2]:
        graph = view_graph(*SCATTERED[name])
        derived = agrees(graph, arrays(graph, sizes), ["x"])
        assert scatters(derived.backward)
        above = {"grad_y": np.random.default_rng(2).normal(size=evaluate(graph, arrays(graph, sizes))["y"].shape)}
        agrees(derived.gradient, {**arrays(graph, sizes), **above}, ["grad_y"])


@pytest.mark.parametrize("name", [name for name in STRAIGHT if "size" not in name])
def test_views_of_nothing_have_gradients_of_nothing(name):
    graph = view_graph(*STRAIGHT[name])
    agrees(graph, arrays(graph, {"n": 0, "m": 2}), ["x"])


@pytest.mark.parametrize("own", [1, 4, 0])
def test_an_axis_that_is_1_or_all_as_it_runs(own):
    shape = shape_of(["n", "m"])
    x = Node("x", Input(), (), DType.F64, shape_of(["k", "m"]))
    whole = Node("whole", Input(), (), DType.F64, shape)
    graph = Graph((x, whole, Node("y", View(expand_index(x.shape, shape)), ("x",), DType.F64, shape)), ("y",))
    derived = agrees(graph, arrays(graph, {"k": own, "n": 4 if own else 0, "m": 3}), ["x"])
    assert not scatters(derived.backward)
    agrees(graph, arrays(graph, {"k": 1, "n": 0, "m": 3}), ["x"])


def test_several_readings_of_a_cell_are_one_sum():
    graph = view_graph(("n",), ("m", "n", 3), (V,))
    backward = derive(graph, ["x"]).backward
    assert [node.kind.axes for node in backward.nodes if hasattr(node.kind, "axes")] == [(0, 2)]
