"""Operators that onnxruntime's optimizer folds into the library call before them: so they never run alone."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from noyau.compiler.partition.cut import Group
from noyau.hosts.onnxruntime.function_bodies import CORE_DOMAINS, reads

if TYPE_CHECKING:
    import onnx

_ACTIVATIONS = frozenset({"Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Tanh"})
_ADDED = frozenset({"Add", "BatchNormalization"})
# The reader of a result of each, which onnxruntime makes a part of the call.
FOLDED = {
    "Conv": _ACTIVATIONS | _ADDED | {"Mul", "Div", "Sub"},
    "ConvTranspose": _ADDED,
    "Gemm": _ACTIVATIONS | _ADDED,
    "MatMul": _ADDED,  # with its bias a Gemm
}


def folding_calls(model: onnx.ModelProto, group: Group) -> tuple[int, ...]:
    """The positions of the calls into which onnxruntime may fold an operator of a group: the group alone reads what
    they make. A MatMul is one where it makes a matrix."""
    nodes, inside = model.graph.node, frozenset(group.positions)
    matrices = {node.output for node in group.graph.inputs if len(node.shape) == 2}
    read = set(group.inputs) - {value.name for value in model.graph.output}
    producers = {
        node.output[0]: position
        for position, node in enumerate(nodes)
        if node.op_type in FOLDED and node.domain in CORE_DOMAINS and position not in inside
        if node.output[0] in (read & matrices if node.op_type == "MatMul" else read)
    }
    readers: dict[str, set[int]] = defaultdict(set)
    for position, node in enumerate(nodes) if producers else ():
        for name in producers.keys() & set(reads(node)):
            readers[name].add(position)
    return tuple(
        position
        for name, position in producers.items()
        if inside >= readers[name]
        and any(nodes[reader].op_type in FOLDED[nodes[position].op_type] for reader in readers[name])
    )
