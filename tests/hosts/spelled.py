"""Graphs spelled as ONNX models, and what runs those. Support for tests, not a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from noyau.codegen.onnx.emitter import NodeWriter
from noyau.codegen.onnx.printer import spell
from noyau.dtypes import DType
from noyau.frontends.onnx import import_model
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.write_back import value_info, value_type
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Input, Kind, Node
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check

Arrays = Mapping[str, np.ndarray]
N = Dim.of("n")


def names_in(graph: Graph) -> dict[str, str]:
    """What the values of a graph are called in its model: some have names that ONNX does not allow."""
    return {node.output: f"n{number}" for number, node in enumerate(graph.nodes)}


def spelled(graph: Graph, opset: int = 18) -> onnx.ModelProto:
    """The model of a graph; it is one by onnx's own rules."""
    called = names_in(graph)
    writer = NodeWriter(taken=set(called.values()))
    spell(graph, writer, called)
    proto = onnx.GraphProto()
    inputs = [value_info(proto, called[node.output], value_type(node)) for node in graph.inputs]
    outputs = [value_info(proto, called[name], value_type(graph[name])) for name in graph.outputs]
    made = helper.make_graph(writer.nodes, "g", inputs, outputs, writer.initializers)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def by_onnxruntime(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    made = runs.run(sessions.open_session(model.SerializeToString(), threads=1), feeds)
    return [made[value.name] for value in model.graph.output]


def by_the_reference(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    """ONNX's own evaluator."""
    with np.errstate(all="ignore"):
        return [np.asarray(made) for made in ReferenceEvaluator(model).run(None, dict(feeds))]


def by_import(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    """The model read again, as a graph."""
    found = import_model(model)
    check(found.graph)
    loaded = {name: found.load_initializer(name) for name in found.initializers}
    made = evaluate(found.graph, {**loaded, **feeds})
    return [made[name] for name in found.graph.outputs]


def results(graph: Graph, arrays: Arrays, run: Callable[..., list[np.ndarray]]) -> dict[str, np.ndarray]:
    """The outputs of a graph's model, by their names in the graph."""
    called = names_in(graph)
    feeds = {called[name]: array for name, array in arrays.items()}
    return dict(zip(graph.outputs, run(spelled(graph), feeds), strict=True))


def function_graph(kind: Kind, operands: list[DType], dtype: DType) -> Graph:
    """One node over vectors of one length."""
    inputs = [Node(f"x{at}", Input(), (), given, (N,)) for at, given in enumerate(operands)]
    return Graph((*inputs, Node("y", kind, tuple(node.output for node in inputs), dtype, (N,))), ("y",))


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in spelled(graph).graph.node]
