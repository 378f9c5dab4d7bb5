"""Models of many nodes that do next to nothing: their time is what onnxruntime and its profiler add."""

from __future__ import annotations

import itertools

import onnx
from onnx import TensorProto, helper

LENGTH = 64  # nodes


def chain(inputs: int, rank: int, length: int = LENGTH) -> onnx.ModelProto:
    """A chain of nodes that each read so many values of one number, of so many dimensions: x: f32[1, ...] -> y."""
    operator, names = ("Identity" if inputs == 1 else "Sum"), ["x", *(f"v{k}" for k in range(length - 1)), "y"]
    nodes = [
        helper.make_node(operator, [source, *["x"] * (inputs - 1)], [made])
        for source, made in itertools.pairwise(names)
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1] * rank)] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", *ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
