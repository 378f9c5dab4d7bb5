"""The axis of rows of each value of a graph, where nothing connects rows and none knows where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, Shape
from noyau.ir.ranges import simplify

Axis = int | None


def axes_of(graph: nodes.Graph, output: str, axis: int) -> dict[str, Axis] | None:
    """For each value the axis of rows, None for what all rows share, where an output has them along an axis; None where
    rows are mixed, or know where they lie."""
    rows, axes = graph[output].shape[axis], dict[str, Axis]()
    if not _spread(graph, output, axis, rows, axes):
        return None
    for name in graph.outputs:
        places: list[Axis] = [at for at, dim in enumerate(graph[name].shape) if dim == rows]
        choices = [axes[name]] if name in axes else [*places, None]
        if not any(_tried(graph, name, choice, rows, axes) for choice in choices):
            return None
    return axes if len(axes) == len(graph.nodes) else None


def _tried(graph: nodes.Graph, name: str, axis: Axis, rows: Dim, axes: dict[str, Axis]) -> bool:
    """As `_spread`, which changes nothing where it fails."""
    extended = dict(axes)
    fits = _spread(graph, name, axis, rows, extended)
    if fits:
        axes.update(extended)
    return fits


def _spread(graph: nodes.Graph, name: str, axis: Axis, rows: Dim, axes: dict[str, Axis]) -> bool:
    """Note the axis of rows of a value, and of all that it is made of; False where that cannot be."""
    waiting: list[tuple[str, Axis]] = [(name, axis)]
    while waiting:
        name, axis = waiting.pop()
        node = graph[name]
        if name in axes:
            if axes[name] != axis:
                return False
            continue
        if axis is not None and node.shape[axis] != rows:
            return False
        axes[name] = axis
        operands = _operands(node, axis)
        if operands is None:
            return False
        waiting += zip(node.inputs, operands, strict=True)
    return True


def _operands(node: nodes.Node, axis: Axis) -> list[Axis] | None:
    """The axes of rows of a value's operands, where its own are along `axis`; None where none can have them so."""
    if axis is None:
        return [None] * len(node.inputs)
    match node.kind:
        case nodes.Input():
            return []
        case nodes.Map():
            return [axis] * len(node.inputs)
        case nodes.Reduce(_, axes):
            return [[at for at in range(len(node.shape) + len(axes)) if at not in axes][axis]]
        case nodes.Select(along, _):
            return None if along == axis else [axis] * len(node.inputs)
        case nodes.Iota(index):
            return None if f"#{axis}" in index.names else []
        case nodes.View(index):
            return _looked_at(node, [(0, index)], axis)
        case nodes.Gather(index):
            entries = tuple(Dim.of(0) if isinstance(entry, nodes.Lookup) else entry for entry in index)
            return _looked_at(node, [(0, entries), *_lookups(index)], axis)
        case nodes.Scatter(index, _):
            return _merged(node, index, axis)
        case nodes.Constant() | nodes.Scan() | nodes.Contract() | nodes.Opaque() | nodes.Part():
            return None
        case _:
            assert_never(node.kind)


def _lookups(index: Sequence[Dim | nodes.Lookup]) -> list[tuple[int, Shape]]:
    return [(entry.input, entry.at) for entry in index if isinstance(entry, nodes.Lookup)]


def _merged(node: nodes.Node, index: Sequence[Dim | nodes.Lookup], axis: int) -> list[Axis] | None:
    """As `_operands`, of a Scatter: the updates have an axis of rows that goes to that of the result as it is."""
    own = next((at for at in range(len(index)) if index[axis] == Dim.of(f"#{at}")), None)
    others = [entry for at, entry in enumerate(index) if at != axis and isinstance(entry, Dim)]
    if own is None or any(f"#{own}" in entry.names for entry in others):
        return None
    axis_of_input = _looked_at(node, _lookups(index), own)
    return None if axis_of_input is None else [axis, axis_of_input[1], own]


def _looked_at(node: nodes.Node, looks: Sequence[tuple[int, Shape]], axis: int) -> list[Axis] | None:
    """Along which axis each operand has what lies along `axis`, for index maps into some operands."""
    own, axes, inputs = Dim.of(f"#{axis}"), list[Axis]([None] * len(node.inputs)), set[int]()
    for operand, index in looks:
        plain = [simplify(dim, node.extents) for dim in index]
        using = [at for at, dim in enumerate(plain) if f"#{axis}" in dim.names]
        if len(using) > 1 or any(plain[at] != own for at in using):
            return None
        place = using[0] if using else None
        if operand in inputs and axes[operand] != place:
            return None
        axes[operand] = place
        inputs.add(operand)
    return axes
