"""Cheap values computed again on purpose, for the sums over columns that read them.

A sum over columns and what is done row by row are never one kernel. Where both read a value that follows from the
inputs in a few steps, the one kernel would write it and the other read it: that is more than reading inputs twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from noyau.compiler.partition.costs import cells
from noyau.compiler.partition.recomputation import AGAIN
from noyau.compiler.passes.cleanup import drop_unused
from noyau.ir.graph import Constant, Graph, Iota, Map, Node, Reduce, View
from noyau.ir.operators import OPERATORS


def repeat_cheap(graph: Graph) -> Graph:
    """The graph in which each sum over columns has what it reads to itself, where that is cheaper to compute again than
    to write and to read: at most 12 flops a cell, of inputs that are no larger."""
    nodes, names_taken, ends = list[Node](), set(graph.by_name), _visible_values(graph)
    for node in graph.nodes:
        if isinstance(node.kind, Reduce) and len(graph[node.inputs[0]].shape) - 1 not in node.kind.axes:
            steps = _steps(graph, node.inputs[0], ends)
            if _is_shared(graph, node, steps) and _is_worth(graph, graph[node.inputs[0]], steps):
                names = {step.output: _fresh(step.output, names_taken) for step in steps}
                nodes += [*(step.rename(names) for step in steps), node.rename(names)]
                continue
        nodes.append(node)
    return drop_unused(replace(graph, nodes=tuple(nodes)))  # what sums alone share has become copies


def _steps(graph: Graph, name: str, ends: Collection[str]) -> list[Node]:
    """The maps and views that a value is made by, in order, down to inputs, outputs, what is no map, and small ones."""
    steps: dict[str, Node] = {}
    waiting, size = [name], cells(graph[name])
    while waiting:
        node = graph[waiting.pop()]
        if isinstance(node.kind, Map | View | Iota) and node.output not in ends and cells(node) >= size:
            steps[node.output] = node
            waiting += [each for each in node.inputs if each not in steps]
    return [node for node in graph.nodes if node.output in steps]


def _visible_values(graph: Graph) -> set[str]:
    """The outputs, and what they show: it is written anyway."""
    ends = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.output in ends and (isinstance(node.kind, View) or node.kind == Map("identity")):
            ends.update(node.inputs)
    return ends


def _is_shared(graph: Graph, fold: Node, steps: Sequence[Node]) -> bool:
    """Whether others than a fold read one of its steps."""
    own = {step.output for step in steps}
    return any(own & set(node.inputs) for node in graph.nodes if node.output not in own | {fold.output})


def _is_worth(graph: Graph, value: Node, steps: Sequence[Node]) -> bool:
    """Whether a value is read from the inputs at least as fast as it is written and read."""
    leaves = {name for step in steps for name in step.inputs} - {step.output for step in steps}
    read = sum(cells(n) * n.dtype.bytes for n in map(graph.__getitem__, leaves) if not isinstance(n.kind, Constant))
    flops = sum(cells(step) * OPERATORS[step.kind.function].flops for step in steps if isinstance(step.kind, Map))
    return read <= 2.1 * cells(value) * value.dtype.bytes and flops <= AGAIN * cells(value)


def _fresh(stem: str, names: set[str]) -> str:
    name = f"{stem}_again"
    while name in names:
        name += "_"
    names.add(name)
    return name
