"""ONNX's shape inference in its own process: it may end, and the import goes on."""

from __future__ import annotations

import onnx
import pytest

from noyau.dtypes import DType
from noyau.frontends.onnx.boundary_types import Inference
from tests.frontends.onnx.models import imported, model


def crashing() -> onnx.ModelProto:
    """A node without its input, on which onnx's inference ends its process with a segmentation fault."""
    attributes = {"keys_strings": ["a"], "values_int64s": [0]}
    node = onnx.helper.make_node("LabelEncoder", [""], ["y"], domain="ai.onnx.ml", **attributes)
    graph = onnx.helper.make_graph([node], "g", [], [onnx.helper.make_tensor_value_info("y", 7, ["n"])])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 4)]
    return onnx.helper.make_model(graph, opset_imports=opsets)


def relu() -> onnx.ModelProto:
    return model("(float[n, 4] x) => (float y) { a = Relu(x) y = ReduceSum<keepdims = 0>(a) }")


def test_types_come_back():
    with Inference() as inference:
        found = inference.types(relu())
    assert [dim.dim_param or dim.dim_value for dim in found["a"].tensor_type.shape.dim] == ["n", 4]


def test_a_node_that_ends_the_worker_says_nothing_and_the_next_is_answered():
    with Inference() as inference:
        worker = crashing()
        del worker.graph.output[:]
        assert inference.types(worker) == {}
        assert "a" in inference.types(relu())


def test_the_worker_ends():
    with Inference() as inference:
        inference.types(relu())
        process, channel = inference._process
        assert process.poll() is None
    assert process.returncode is not None
    assert channel.fileno() == -1


def test_no_worker_starts_where_none_is_asked():
    with Inference() as inference:
        assert inference._process is None


def test_a_model_with_such_a_node_is_imported():
    assert imported(crashing()).opaque == {0: "no meaning for operator LabelEncoder of domain ai.onnx.ml"}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("(float[n, 4, 4] x) => (float y) { d = Det(x) y = Abs(d) }", ["n"]),
        ("(float[n, c, l] x) => (float y) { d = GlobalLpPool(x) y = Abs(d) }", ["n", "c", "1"]),
        ("(int64[n, m] x, int64 d, float[2] v) => (float y) { h = OneHot(x, d, v) y = Abs(h) }", ["n", "m", "d0"]),
    ],
)
def test_a_boundary_without_a_rule_gets_its_type(text, shape):
    found = imported(text)
    assert list(found.opaque) == [0]
    assert [str(dim) for dim in found.graph["y"].shape] == shape


def test_what_is_inferred_stands_before_what_the_file_declares():
    values = "(float[n, 4, 4] x) => (float[n] y) { d = Det(x) y = Abs(d) }"
    wrong = model(values)
    wrong.graph.value_info.add(name="d").type.tensor_type.elem_type = onnx.TensorProto.DOUBLE  # of no rank
    assert imported(wrong).graph["d"].dtype is DType.F32
