"""Nodes that need no input of the model: onnxruntime computes them once, when it loads the model."""

from __future__ import annotations

import onnx

from noyau.frontends.onnx.opaque import CONTROL_FLOW, RANDOM

FOLDED = "onnxruntime computes it once, when it loads the model: it reads nothing but tensors of the model"
# onnxruntime leaves these be, for its quantised operators are found by them.
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear"})


def folded(model: onnx.ModelProto) -> frozenset[int]:
    """The positions of the nodes that read tensors of the model alone, through others such or directly; Constants are
    not among them. A tensor that an input may override is none."""
    given = {value.name for value in model.graph.input} if model.ir_version >= 4 else set()
    known = {tensor.name for tensor in model.graph.initializer} - given
    found = set[int]()
    for place, node in enumerate(model.graph.node):
        if node.domain not in ("", "ai.onnx") or node.op_type in _KEPT | RANDOM | CONTROL_FLOW:
            continue
        if all(name in known for name in node.input if name):
            known.update(node.output)
            if any(node.input):
                found.add(place)
    return frozenset(found)
