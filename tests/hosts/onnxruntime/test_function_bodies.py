"""Bodies of functions: what is computed in them, and their names."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from noyau.hosts.onnxruntime.function_bodies import (
    FusedNode,
    ModelValues,
    body_of,
    clean,
    function_of,
    recompute,
    same_text,
)
from tests.hosts.kernels import F32, model_of
from tests.hosts.models import run

NODE = helper.make_node


def model(nodes: list[onnx.NodeProto], *constants: tuple[str, np.ndarray]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", F32, ["n", 8])]
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], F32, None)]
    return model_of(nodes, inputs, outputs, [numpy_helper.from_array(value, name) for name, value in constants])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=90), unique=True, max_size=20))
def test_cleaned_names_are_identifiers_and_different(names: list[str]) -> None:
    renamed = clean()
    given = [renamed(name) for name in names]
    assert all(name.isascii() and name.isidentifier() and len(name) < 80 for name in given)
    assert len(set(given)) == len(names)
    assert [renamed(name) for name in names] == given


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("/model/layers.0/Mul_output_0", "model_layers_0_Mul_output_0"),
        ("12x", "x"),
        ("*/", "value"),
        ("\u00e9", "value"),
    ],
)
def test_a_cleaned_name_can_be_recognised(name: str, wanted: str) -> None:
    assert clean()(name) == wanted


def shape_of_input() -> ModelValues:
    nodes = [
        NODE("Shape", ["x"], ["size"]),
        NODE("Gather", ["size", "zero"], ["rows"]),
        NODE("Exp", ["x"], ["e"]),
        NODE("Shape", ["e"], ["late"]),
        NODE("RandomNormal", [], ["noise"], shape=[2]),
        NODE("Shape", ["noise"], ["of_noise"]),
        NODE("Reshape", ["e", "rows"], ["y"]),
    ]
    return ModelValues.of(model(nodes, ("zero", np.array([0])), ("big", np.zeros(5000))))


@pytest.mark.parametrize(
    ("name", "known", "wanted"),
    [
        ("rows", ["x"], ({0, 1}, ["zero"])),
        ("rows", ["size"], ({1}, ["zero"])),
        ("rows", [], None),  # x itself is not there
        ("late", ["x"], None),  # Exp is no shape arithmetic
        ("late", ["e"], ({3}, [])),
        ("of_noise", [], None),
        ("zero", [], (set(), ["zero"])),
        ("big", [], None),
        ("nowhere", [], None),
    ],
)
def test_shape_arithmetic_is_computed_anew(name: str, known: list[str], wanted: object) -> None:
    assert recompute(name, shape_of_input(), known) == wanted


def test_a_chain_that_is_too_long_is_not_repeated() -> None:
    names = ["size", *(f"v{number}" for number in range(100))]
    nodes = [NODE("Shape", ["x"], ["size"])]
    nodes += [NODE("Identity", [a], [b]) for a, b in pairwise(names)]
    values = ModelValues.of(model(nodes))
    assert recompute("v10", values, ["x"]) is not None
    assert recompute("v99", values, ["x"]) is None


def test_bodies_are_compared_up_to_names() -> None:
    nodes = [NODE("Exp", ["x"], ["a"]), NODE("Neg", ["a"], ["b"]), NODE("Exp", ["b"], ["c"]), NODE("Neg", ["c"], ["d"])]
    nodes.append(NODE("LeakyRelu", ["d"], ["e"], alpha=0.5))
    nodes.append(NODE("LeakyRelu", ["d"], ["f"], alpha=0.25))
    whole = model(nodes)
    values = ModelValues.of(whole)
    parts = [((0, 1), "x", "b"), ((2, 3), "b", "d"), ((4,), "d", "e"), ((5,), "d", "f")]
    bodies = [body_of(FusedNode("a", part, (given,), (made,)), values) for part, given, made in parts]
    assert same_text(bodies[0], bodies[1])
    assert not same_text(bodies[2], bodies[3])


def test_the_order_of_what_is_added_does_not_part_bodies() -> None:
    """Residuals: the blocks of a model add what they made to what they were given, or the other way round."""
    nodes = [NODE("Relu", ["x"], ["target"]), NODE("Exp", ["x"], ["old"])]
    for block, operands in enumerate((["r0", "old"], ["old", "r1"])):
        nodes.append(NODE("Reshape", ["x", "target"], [f"r{block}"]))
        nodes.append(NODE("Add", operands, [f"y{block}"]))
        nodes.append(NODE("Sub", operands, [f"z{block}"]))
    values = ModelValues.of(model(nodes))
    parts = [((2, 3), "y0"), ((5, 6), "y1"), ((2, 4), "z0"), ((5, 7), "z1")]
    bodies = [body_of(FusedNode("a", part, ("x", "old"), (made,)), values) for part, made in parts]
    assert [body.extras for body in bodies] == [("target",)] * 4
    assert same_text(bodies[0], bodies[1])
    assert not same_text(bodies[2], bodies[3])  # a - b is not b - a


HALVES = [[0, 4, 1], [4, 2**63 - 1, 1, 1]]


def sliced(
    pieces: list[list[int]], extent: int | str = 8, opset: int = 18, word: int = 1
) -> tuple[onnx.ModelProto, onnx.FunctionProto]:
    """A model that slices a value of this extent, with so many numbers a word, and its body."""
    words = sorted({number for piece in pieces for number in piece})
    nodes = [NODE("Exp", ["x"], ["e"])]
    nodes += [NODE("Slice", ["e", *(f"c{n}" for n in piece)], [f"s{k}"]) for k, piece in enumerate(pieces)]
    nodes.append(NODE("Concat", [f"s{k}" for k in reversed(range(len(pieces)))], ["y"], axis=1))
    whole = model(nodes, *((f"c{number}", np.array([number] * word)) for number in words))
    whole.graph.value_info.append(helper.make_tensor_value_info("e", F32, ["n", extent]))
    whole.opset_import[0].version = opset
    body = body_of(FusedNode("a", tuple(range(len(nodes))), ("x",), ("y",)), ModelValues.of(whole))
    return whole, function_of(body, "a", whole, clean(), "own")


@pytest.mark.parametrize("pieces", [HALVES, HALVES[::-1], [[0, 2, 1], [5, 9, 1], [2, 5, 1]]])
def test_slices_that_share_out_a_value_are_one_split(pieces: list[list[int]]) -> None:
    whole, function = sliced(pieces)
    assert [node.op_type for node in function.node if node.op_type != "Constant"] == ["Exp", "Split", "Concat"]
    call = NODE("a", ["x"], ["y"], domain="own")
    calling = model_of([call], whole.graph.input, whole.graph.output, functions=[function])
    feeds = {"x": np.arange(16, dtype=np.float32).reshape(2, 8) / 16}
    assert np.array_equal(run(whole, feeds)["y"], run(calling, feeds)["y"])


@pytest.mark.parametrize(
    ("pieces", "wishes"),
    [
        ([[0, 4, 1], [4, 7, 1]], {}),  # they leave something out
        ([[0, 4, 1], [3, 8, 1]], {}),  # they meet
        ([[0, 4, 1], [4, 8, 0]], {}),  # along two axes
        ([[0, 8, 1, 2], [8, 9, 1]], {}),  # by steps
        ([[0, 8, 1]], {}),
        (HALVES, {"extent": "m"}),
        (HALVES, {"opset": 12}),  # Split has no second input there
        (HALVES, {"word": 2}),
    ],
)
def test_other_slices_stay_as_they_are(pieces: list[list[int]], wishes: dict[str, int]) -> None:
    assert not any(node.op_type == "Split" for node in sliced(pieces, **wishes)[1].node)


def test_slices_along_an_axis_that_no_initializer_says_stay_as_they_are() -> None:
    whole, _ = sliced([[0, 4, 1], [4, 8, 1]])
    axis = whole.graph.initializer.pop(next(k for k, each in enumerate(whole.graph.initializer) if each.name == "c1"))
    whole.graph.node.insert(0, NODE("Constant", [], ["c1"], value=axis))
    body = body_of(FusedNode("a", (1, 2, 3, 4), ("x",), ("y",)), ModelValues.of(whole))
    assert [node.op_type for node in body.nodes if node.op_type != "Constant"] == ["Exp", "Slice", "Slice", "Concat"]


def test_a_function_imports_what_its_nodes_use() -> None:
    whole = model([NODE("Exp", ["x"], ["y"])])
    whole.opset_import.add(domain="unused", version=3)
    function = function_of(body_of(FusedNode("a", (0,), ("x",), ("y",)), ModelValues.of(whole)), "a", whole, clean())
    assert [(entry.domain, entry.version) for entry in function.opset_import] == [("", 18)]
