from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Constant, Graph, Map, constant, expand_index, names_of, step_of
from tests.nodes import F32, at, given, graph, value


def test_constants_are_compared_by_their_bits():
    assert Constant(np.float32([1, np.nan])) == Constant(np.float32([1, np.nan]))
    assert hash(Constant(np.float32([1, np.nan]))) == hash(Constant(np.float32([1, np.nan])))
    assert Constant(np.float32([0.0])) != Constant(np.float32([-0.0]))
    assert Constant(np.float32([0.0])) != Constant(np.float64([0.0]))
    assert Constant(np.float32([0.0])) != Constant(np.float32([[0.0]]))
    assert Constant(np.float32([0.0])) != 0.0


def test_a_constant_has_the_shape_and_dtype_of_its_array():
    node = constant("c", np.zeros((2, 3), np.int8), ["a"])
    assert (node.dtype, node.shape, node.sources) == (DType.I8, shape_of([2, 3]), ("a",))


def test_a_graph_finds_its_values():
    made = graph("y", given("x", F32, "n", Dim.of("m") * 2), value("y", Map("exp"), "x", F32, "n", Dim.of("m") * 2))
    assert made["y"].inputs == ("x",)
    assert [node.output for node in made.inputs] == ["x"]
    assert names_of(made) == {"n", "m"}
    assert made["x"].extents == {"#0": Dim.of("n"), "#1": Dim.of("m") * 2}
    with pytest.raises(KeyError):
        made["z"]


def test_nodes_are_frozen():
    node = given("x", F32)
    with pytest.raises(FrozenInstanceError):
        node.output = "y"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Graph((node,), ("x",)).outputs = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("shape", "target", "index"),
    [
        ([], ["n", 4], []),
        ([4], ["n", 4], [at(1)]),
        ([1], ["n", 4], [0]),
        (["n", 1], ["n", 4], [at(0), 0]),
        ([1, "m", 1], ["b", "m", "k"], [0, at(1), 0]),
        (["p"], ["n"], [at(0) * step_of("p")]),
    ],
)
def test_expanding_aligns_axes_at_the_end(shape, target, index):
    assert expand_index(shape_of(shape), shape_of(target)) == shape_of(index)


def test_a_step_is_0_for_an_extent_of_1():
    assert [step_of("p").evaluate({"p": extent}) for extent in (1, 2, 3, 100)] == [0, 1, 1, 1]
    assert (step_of(0), step_of(1), step_of(2), step_of(5)) == (Dim.of(0), Dim.of(0), Dim.of(1), Dim.of(1))
