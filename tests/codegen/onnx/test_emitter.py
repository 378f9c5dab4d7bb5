"""Nodes, names and constants being written; sizes as values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from noyau.codegen.onnx.emitter import NodeWriter, OnnxTerm, SizeWriter
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.hosts.onnxruntime import runs, sessions
from noyau.ir.dims import Dim, maximum
from noyau.ir.graph import Input, Node

N, M = Dim.of("n"), Dim.of("m")
TOLD = (Node("x", Input(), (), DType.F32, (N, M * 2 + 1)),)


def finished(writer: NodeWriter, output: str) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None])]
    outputs = [helper.make_tensor_value_info(output, TensorProto.INT64, None)]
    graph = helper.make_graph(writer.nodes, "g", inputs, outputs, writer.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def computed(writer: NodeWriter, output: str, shape: tuple[int, int]) -> list[int]:
    """A value of the model where its input has that shape, by two runtimes that agree."""
    model, feeds = finished(writer, output), {"x": np.zeros(shape, np.float32)}
    first = np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
    second = runs.run(sessions.open_session(model.SerializeToString(), threads=1), feeds)[output]
    assert first.tolist() == second.tolist()
    return list(np.atleast_1d(first))


DIMS = [Dim.of(3), N, M, N * 2 + M - 1, N * M, N // 2, N % 3, M // N, (N - 7) // 3, (N - 7) % 3, 5 - N, N // (M - 3)]


@pytest.mark.parametrize("dim", [*DIMS, maximum(N, M), -N], ids=str)
@pytest.mark.parametrize(("n", "m"), [(5, 3), (1, 8), (9, 0), (2, 7)])
def test_dims_are_calculated(dim, n, m):
    writer = NodeWriter(taken={"x"})
    value = SizeWriter(writer, TOLD, {"x": "x"}).value(dim)
    writer.nodes.append(helper.make_node("Identity", [value], ["out"]))
    try:
        want = dim.evaluate({"n": n, "m": m})
    except ZeroDivisionError:
        want = None
    got = computed(writer, "out", (n, 2 * m + 1))  # a division by 0 ends no process
    if want is not None and dim != N // (M - 3):
        assert got == [want]


def test_shapes_are_one_value_with_the_numbers_side_by_side():
    writer = NodeWriter(taken={"x"})
    shape = SizeWriter(writer, TOLD, {"x": "x"}).shape((N, Dim.of(2), Dim.of(3), M))
    assert computed(writer, shape, (4, 11)) == [4, 2, 3, 5]
    assert [list(t.dims) for t in writer.initializers if t.name in writer.nodes[-1].input] == [[2]]


def test_an_unknown_size_is_named():
    with pytest.raises(UnsupportedError, match="the size k does not follow from the shapes of the inputs"):
        SizeWriter(NodeWriter(), TOLD, {"x": "x"}).value(Dim.of("k"))


def test_equal_nodes_and_constants_are_one():
    writer = NodeWriter()
    one, same, other = writer.constant(1.0), writer.constant(1.0), writer.constant(np.float32(1))
    assert one == same != other
    assert writer.emit("Add", one, other) == writer.emit("Add", one, other)
    assert writer.emit("Concat", one, axis=0) != writer.emit("Concat", one, axis=1)
    assert len(writer.nodes) == 3


def test_constants_are_told_apart_by_their_bits():
    writer = NodeWriter()
    assert len({writer.constant(np.float32(value)) for value in (0.0, -0.0, np.nan, np.nan)}) == 3


def test_names_are_fresh():
    writer = NodeWriter(taken={"v"}, stem="v")
    assert [writer.fresh("v"), writer.fresh("v"), writer.fresh("w")] == ["v_1", "v_2", "w"]


def test_a_value_is_renamed_everywhere():
    writer = NodeWriter()
    first = writer.emit("Exp", "x")
    second = writer.emit("Log", first)
    assert writer.rename(first, "y")
    assert [(list(n.input), list(n.output)) for n in writer.nodes] == [(["x"], ["y"]), (["y"], [second])]
    assert writer.emit("Exp", "x") == "y"
    assert not writer.rename("x", "z")


def test_numbers_are_cast_as_they_are_written():
    writer = NodeWriter()
    number = writer.number(300, DType.I32)
    cast = writer.cast(number, DType.U8)
    assert writer.number_of(cast.name) == 44
    assert writer.cast(cast, DType.U8) is cast
    assert writer.nodes == []
    assert writer.cast(OnnxTerm("x", DType.F32, ()), DType.F64).dtype is DType.F64
