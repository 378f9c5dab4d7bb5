"""Models that are not well formed: each refused with one line that says what and where."""

from __future__ import annotations

import onnx
import pytest

from noyau.errors import ModelError
from noyau.frontends.onnx.verifier import verify
from tests.frontends.onnx.models import model

CHAIN = "(float[n] x) => (float[n] y) { a = Abs(x) b = Neg(a) y = Exp(b) }"


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as caught:
        verify(proto)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def reordered(order: list[int]) -> onnx.ModelProto:
    proto = model(CHAIN)
    nodes = [proto.graph.node[k] for k in order]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)
    return proto


def test_a_sound_model_is_returned():
    proto = model(CHAIN)
    assert verify(proto) is proto


def test_an_unsorted_graph_names_the_node():
    message = refusal(reordered([0, 2, 1]))
    assert message == ("the nodes are not in order: Exp#1 uses 'b', which Neg#2 makes later; sort them topologically")


def test_a_cycle_is_spelt():
    proto = model(CHAIN)
    proto.graph.node[0].input[0] = "b"
    assert refusal(proto) == "the graph has a cycle through Abs#0 -> Neg#1 -> Abs#0"


def test_a_node_that_feeds_itself():
    proto = model(CHAIN)
    proto.graph.node[1].input[0] = "b"
    assert refusal(proto) == "the graph has a cycle through Neg#1 -> Neg#1"


def test_a_cycle_through_a_subgraph():
    proto = model(
        "(bool c, float[n] x) => (float[n] y) { a = Abs(y) y = If(c) <then_branch = t () => (float[n] p) "
        "{ p = Neg(a) }, else_branch = e () => (float[n] q) { q = Exp(x) }> }"
    )
    assert refusal(proto) == "the graph has a cycle through Abs#0 -> If#1 -> Abs#0"


def test_a_value_that_nothing_makes():
    proto = model(CHAIN)
    proto.graph.node[1].input[0] = "nothing"
    assert refusal(proto) == "Neg#1 uses 'nothing', which nothing makes"


def test_a_captured_value_that_nothing_makes():
    proto = model(
        "(bool c, float[n] x) => (float[n] y) { y = If(c) <then_branch = t () => (float[n] p) "
        "{ p = Neg(lost) }, else_branch = e () => (float[n] q) { q = Exp(x) }> }"
    )
    assert refusal(proto) == "If#0 uses 'lost', which nothing makes"


def test_an_output_that_is_never_made():
    proto = model(CHAIN)
    proto.graph.output[0].name = "z"
    assert refusal(proto) == "the output 'z' is never made"


def test_a_value_that_is_made_twice():
    proto = model(CHAIN)
    proto.graph.node[1].output[0] = "a"
    assert refusal(proto) == "'a' is made twice; the second time by Neg#1"


def test_a_node_that_makes_an_input():
    proto = model(CHAIN)
    proto.graph.node[0].output[0] = "x"
    assert refusal(proto) == "'x' is made twice; the second time by Abs#0"


@pytest.mark.parametrize(("field", "word"), [("input", "inputs"), ("output", "outputs")])
def test_values_of_one_name(field, word):
    proto = model(CHAIN)
    values = getattr(proto.graph, field)
    values.append(values[0])
    assert refusal(proto) == f"2 {word} are called {values[0].name!r}"


def test_initializers_of_one_name():
    proto = model(CHAIN)
    for _ in range(3):
        proto.graph.initializer.append(onnx.helper.make_tensor("w", 1, [1], [0.0]))
    assert refusal(proto) == "3 initializers are called 'w'"


def test_an_initializer_without_a_name():
    proto = model(CHAIN)
    proto.graph.initializer.append(onnx.helper.make_tensor("", 1, [1], [0.0]))
    assert refusal(proto) == "an input or an initializer has no name"


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ([-1], "has a negative extent: [-1]"),
        ([2**24, 2**25], "has more than 2^48 elements"),
        ([2**62, 2**62, 2**62], "has more than 2^48 elements"),
    ],
)
def test_absurd_dimensions(dims, message):
    proto = model(CHAIN)
    del proto.graph.input[0].type.tensor_type.shape.dim[:]
    for dim in dims:
        proto.graph.input[0].type.tensor_type.shape.dim.add(dim_value=dim)
    assert message in refusal(proto)
    proto = model(CHAIN)
    proto.graph.initializer.add(name="w", data_type=1, dims=dims)
    assert message in refusal(proto)


@pytest.mark.parametrize("opset", [1, 7, 12])
def test_an_opset_below_13(opset):
    message = refusal(model(CHAIN, opset=opset))
    assert message.startswith(f"the model has opset {opset}; the oldest that noyau reads is 13")


def test_a_version_that_no_number_of_c_holds():
    proto = model(CHAIN)
    proto.opset_import[0].version = 1 << 40
    assert refusal(proto) == "the model imports version 1099511627776 of a set of operators, which there is not"


@pytest.mark.parametrize("text", [CHAIN, "(bool c) => (y) { y = If (c) <then_branch = b () => (z) { z = Abs(b) }> }"])
def test_a_name_that_is_no_text(text):
    content = model(text).SerializeToString().replace(b"\n\x01b", b"\n\x01\xff")
    assert refusal(onnx.ModelProto.FromString(content)) == r"the name b'\xff' is not UTF-8"


def test_names_in_messages_are_escaped():
    proto = model(CHAIN)
    proto.graph.node[1].input[0] = "evil\n'\x1b[31m"
    assert refusal(proto) == 'Neg#1 uses "evil\\n\'\\x1b[31m", which nothing makes'


def test_functions_that_grow_beyond_all_bounds_are_refused_before_anything_opens_them():
    """onnxruntime inlined for ever, in the process of noyau itself where two models were compared."""
    levels = 30
    pattern = '<opset_import: ["o": 1, "": 17], domain: "o"> F{} (x) => (y) {{ {} }}'
    calls = (f"a = o.F{level + 1} (x) y = o.F{level + 1} (a)" for level in range(levels))
    bodies = " ".join(pattern.format(*pair) for pair in enumerate([*calls, "y = Exp (x)"]))
    header = '<ir_version: 8, opset_import: ["o": 1, "": 17]> g (float[n] x) => (float[n] y)'
    proto = onnx.parser.parse_model(f"{header} {{ y = o.F{levels} (x) }} {bodies}")
    assert verify(proto) is proto
    proto.graph.node[0].op_type = "F0"
    assert refusal(proto) == "the functions of the model, inlined, have more than 65536 nodes"
