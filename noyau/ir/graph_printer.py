"""Printer of the graph IR, for readers: a line is `name: dtype[shape] = kind(inputs)`, and none is parsed again.

Names of a model are escaped where they hold control characters."""

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, Shape
from noyau.text import printable

_MOST_CELLS = 4  # the largest constant that is printed cell by cell


def graph_text(graph: nodes.Graph) -> str:
    """The lines of a graph: its nodes in order, its demands on sizes, its outputs."""
    lines = [f"{value_text(node.output, node.dtype.value, node.shape)} = {_node(node)}" for node in graph.nodes]
    demands = [f"demand {demand}" for demand in graph.demands]
    return "\n".join([*lines, *demands, f"return {', '.join(map(printable, graph.outputs))}"])


def value_text(name: str, dtype: str, shape: Shape) -> str:
    return f"{printable(name)}: {dtype}[{dims_text(shape)}]"


def dims_text(dims: Sequence[Dim | int]) -> str:
    return ", ".join(map(str, dims))


def _node(node: nodes.Node) -> str:
    operands = ", ".join(map(printable, node.inputs))
    return _kind(node.kind, node.inputs) + (f"({operands})" if operands else "")


def _kind(kind: nodes.Kind, inputs: Sequence[str]) -> str:
    match kind:
        case nodes.Input():
            return "input"
        case nodes.Constant(value):
            return _constant(value)
        case nodes.Iota(index):
            return f"iota[{index}]"
        case nodes.Map(function):
            return function
        case nodes.Reduce(monoid, axes):
            return f"reduce {monoid}[{dims_text(axes)}]"
        case nodes.Scan(monoid, axis, exclusive, reverse):
            return f"scan {monoid}[{axis}{', exclusive' * exclusive}{', reverse' * reverse}]"
        case nodes.View(index):
            return f"view[{dims_text(index)}]"
        case nodes.Select(axis, starts):
            return f"select[{axis}: {dims_text(starts)}]"
        case nodes.Gather(index):
            return f"gather[{_places(index, inputs)}]"
        case nodes.Scatter(index, monoid):
            return f"scatter {monoid or 'last'}[{_places(index, inputs)}]"
        case nodes.Contract(equation):
            return f"contract {equation}"
        case nodes.Opaque(name):
            return f"opaque {printable(name)}"
        case nodes.Part(position):
            return f"part[{position}]"
        case _:
            assert_never(kind)


def _constant(value: np.ndarray) -> str:
    if value.size > _MOST_CELLS:
        return f"constant of {value.size} cells"
    return f"constant {', '.join(str(cell) for cell in value.ravel().tolist())}"


def _places(index: Sequence[Dim | nodes.Lookup], inputs: Sequence[str]) -> str:
    return ", ".join(
        f"{printable(inputs[each.input])}[{dims_text(each.at)}]" if isinstance(each, nodes.Lookup) else str(each)
        for each in index
    )
