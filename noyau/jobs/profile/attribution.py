"""The nodes of the file that each node of the optimized model stands for, found by noyau's node names and by values.

Before onnxruntime gets the model, each node is named after its position. A node that the optimizer keeps has that name.
A node that it makes of several still computes a value of the model: it stands for all nodes between that value and the
values that the optimized model still has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noyau.frontends.onnx_messages import every_node, reads, subgraphs
from noyau.hosts.onnxruntime.bodies import Body, graphs_of

if TYPE_CHECKING:
    import onnx

Positions = frozenset[int]
_NAME = re.compile(r"n(\d{1,9})(?!\d)")


def with_numbers(model: onnx.ModelProto, bodies: Sequence[Body] = ()) -> onnx.ModelProto:
    """The model with its nodes named n0, n1..., those of `bodies` by their positions in the flat model; nodes of other
    graphs in node 3 are named n3_0, n3_1... Such names contain no text of a hostile file."""
    copied = type(model)()
    copied.CopyFrom(model)
    _number(copied.graph, "n")
    for number, function in enumerate(copied.functions):
        _number(function, f"f{number}_")
    for body, graph in graphs_of(copied, bodies):
        for position, node in zip(body.operators, graph.node, strict=True):
            node.name = f"n{position}"
    return copied


def _number(graph: onnx.GraphProto | onnx.FunctionProto, prefix: str) -> None:
    for position, node in enumerate(graph.node):
        node.name = f"{prefix}{position}"
        for inner in subgraphs(node):
            _number(inner, f"{node.name}_")


@dataclass(frozen=True, slots=True)
class Attribution:
    """A node of the optimized model: the positions of the file's nodes that it stands for (empty if unknown), the
    values that it computes, and whether onnxruntime's optimizer created it."""

    positions: Positions
    outputs: tuple[str, ...]
    is_new: bool


def attributions_of(
    original: onnx.ModelProto, optimized: onnx.ModelProto, bodies: Sequence[Body] = ()
) -> dict[str, Attribution]:
    """Attributions by node name of the optimized model, without subgraphs outside `bodies`; `original` is numbered."""
    twins = {node.name: node for node in every_node(optimized.graph.node)}
    graphs = [(original.graph, optimized.graph, 0, "")]  # with the number of the first node, and the prefix of values
    for body, graph in graphs_of(original, bodies):
        twin = twins[f"n{body.place}"].attribute if f"n{body.place}" in twins else ()
        graphs += [(graph, each.g, body.operators.start, body.prefix) for each in twin if each.name == body.attribute]
    attributions: dict[str, Attribution] = {}
    for graph, other, first, prefix in graphs:
        walk, by_value = _DefUseWalk(graph, other, first), dict[str, set[int]]()  # positions of each value's readers
        for node in reversed(other.node):  # readers come first
            if not (positions := frozenset(first + position for position in walk.stands_for(node))):
                positions = frozenset[int]().union(*(by_value.get(name, ()) for name in node.output))
            outputs = tuple(f"{prefix}{name}" if name else "" for name in node.output)
            attributions[node.name] = Attribution(positions, outputs, node.name not in walk.names)
            for name in reads(node):
                by_value.setdefault(name, set()).update(positions)
    return dict(reversed(attributions.items()))


def with_subgraphs(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of the nodes with subgraphs, at any depth."""
    return (node.name for node in every_node(graph.node) if any(subgraphs(node)))


class _DefUseWalk:
    """Def-use walk of one graph. `makers`: the position of each value's node; `there`: the values that the optimized
    model still has; `fixed`: the positions of constant nodes, which depend only on stored tensors."""

    def __init__(self, original: onnx.GraphProto, optimized: onnx.GraphProto, first: int) -> None:
        self.original, self.first = original, first  # the number in the name of its first node
        self.names, self.makers, self.fixed = dict[str, int](), dict[str, int](), set[int]()
        inputs = {value.name for value in original.input}
        tensors = _stored_names(original) - inputs
        for position, node in enumerate(original.node):
            self.names[node.name] = position
            self.makers.update((name, position) for name in node.output if name)
            if node.op_type == "Constant" or (node.input and reads(node) <= tensors):
                self.fixed.add(position)
                tensors.update(node.output)
        self.there = inputs | _stored_names(original) | _stored_names(optimized)
        self.there.update(name for node in optimized.node for name in node.output)

    def stands_for(self, node: onnx.NodeProto) -> Positions:
        """The positions that a node stands for, by its values and its name; a fused node's name begins with such."""
        positions = self.behind(name for name in node.output if name in self.makers)
        if node.name in self.names:
            return positions | {self.names[node.name]}
        match = _NAME.match(node.name)
        hint = int(match[1]) - self.first if match else -1
        return positions or frozenset({hint} & set(range(len(self.original.node))))

    def behind(self, values: Iterable[str]) -> Positions:
        """The nodes that compute some values, back to values that the optimized model still has."""
        waiting, positions = [self.makers[name] for name in values], set[int]()
        while waiting:
            position = waiting.pop()
            if position not in positions and position not in self.fixed:
                positions.add(position)
                absent = reads(self.original.node[position]) - self.there
                waiting += [self.makers[name] for name in absent if name in self.makers]
        return frozenset(positions)


def _stored_names(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
