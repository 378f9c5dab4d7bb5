"""Rows that nothing connects: a few different ones, repeated in a drawn order, show a kernel all that many would.

The truth and the unfused runs are evaluated for the few. The kernel runs on all rows, and each must have the bits of
the first that has the same inputs: so every cell is judged, a cell that is taken from another row shows, and so does a
row at an end that is computed otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np

from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, Shape
from noyau.ir.ranges import simplify
from noyau.toolchain.guard_zones import Order
from noyau.verify.trial import GuardedKernel

Axis = int | None


def axes_of(graph: nodes.Graph, output: str, axis: int) -> dict[str, Axis] | None:
    """For each value the axis of rows, None for what all rows share, where an output has them along an axis; None where
    rows are mixed, or know where they lie."""
    rows = graph[output].shape[axis]
    axes = _spread(graph, output, axis, rows, {})
    for name in graph.outputs:
        if axes is None:
            return None
        places: list[Axis] = [at for at, dim in enumerate(graph[name].shape) if dim == rows]
        choices = [axes[name]] if name in axes else [*places, None]
        tried = (_spread(graph, name, choice, rows, axes) for choice in choices)
        axes = next((extended for extended in tried if extended is not None), None)
    return axes if axes is not None and len(axes) == len(graph.nodes) else None


def _spread(graph: nodes.Graph, name: str, axis: Axis, rows: Dim, known: Mapping[str, Axis]) -> dict[str, Axis] | None:
    """The `known` axes of rows, and those of a value and of all that it is made of; None where that cannot be."""
    axes, waiting = dict(known), [(name, axis)]
    while waiting:
        name, axis = waiting.pop()
        node = graph[name]
        if name in axes:
            if axes[name] != axis:
                return None
            continue
        if axis is not None and node.shape[axis] != rows:
            return None
        axes[name] = axis
        operands = _operands(node, axis)
        if operands is None:
            return None
        waiting += zip(node.inputs, operands, strict=True)
    return axes


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
            return _read_axes(node, [(0, index)], axis)
        case nodes.Gather(index):
            entries = tuple(Dim.of(0) if isinstance(entry, nodes.Lookup) else entry for entry in index)
            return _read_axes(node, [(0, entries), *_lookups(index)], axis)
        case nodes.Scatter(index, _):
            return _merge_axes(node, index, axis)
        case nodes.Constant() | nodes.Scan() | nodes.Contract() | nodes.Opaque() | nodes.Part():
            return None
        case _:
            assert_never(node.kind)


def _lookups(index: Sequence[Dim | nodes.Lookup]) -> list[tuple[int, Shape]]:
    return [(entry.input, entry.at) for entry in index if isinstance(entry, nodes.Lookup)]


def _merge_axes(node: nodes.Node, index: Sequence[Dim | nodes.Lookup], axis: int) -> list[Axis] | None:
    """As `_operands`, of a Scatter: the updates have an axis of rows that goes to that of the result as it is."""
    own = next((at for at in range(len(index)) if index[axis] == Dim.of(f"#{at}")), None)
    others = [entry for at, entry in enumerate(index) if at != axis and isinstance(entry, Dim)]
    if own is None or any(f"#{own}" in entry.names for entry in others):
        return None
    axis_of_input = _read_axes(node, _lookups(index), own)
    return None if axis_of_input is None else [axis, axis_of_input[1], own]


def _read_axes(node: nodes.Node, looks: Sequence[tuple[int, Shape]], axis: int) -> list[Axis] | None:
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


REPEATS = 4  # times that a row is there on the average, at least: fewer are not worth it
CELLS = 1 << 13  # of the largest value of the few rows, as far as there are so many rows
MOST_ROWS, FEWEST_ROWS = 8, 4


@dataclass(frozen=True, slots=True)
class FewRows:
    """A graph with `count` rows in the place of `rows`; the axes of rows of its inputs and outputs, None for none."""

    graph: nodes.Graph
    count: int
    rows: int
    inputs: tuple[Axis, ...]
    outputs: tuple[Axis, ...]


def few_rows(graph: nodes.Graph) -> FewRows | None:
    """The graph with few rows, where it has many and each of them depends on its own cells alone, wherever it lies."""
    largest = max((graph[name] for name in graph.outputs), key=_cells, default=None)
    if largest is None or graph.demands or any(dim.constant is None for node in graph.nodes for dim in node.shape):
        return None
    for axis, extent in enumerate(largest.shape):
        rows = extent.constant or 0
        count = min(MOST_ROWS, max(FEWEST_ROWS, CELLS * rows // max(1, _most(graph))))
        axes = axes_of(graph, largest.output, axis) if rows >= REPEATS * count else None
        if axes is not None:
            return _with(graph, axes, count, rows)
    return None


def _with(graph: nodes.Graph, axes: dict[str, Axis], count: int, rows: int) -> FewRows:
    few = Dim.of(count)
    shapes = (tuple(few if at == axes[n.output] else dim for at, dim in enumerate(n.shape)) for n in graph.nodes)
    fewer = tuple(replace(node, shape=shape) for node, shape in zip(graph.nodes, shapes, strict=True))
    inputs, outputs = tuple(axes[node.output] for node in graph.inputs), tuple(axes[name] for name in graph.outputs)
    return FewRows(replace(graph, nodes=fewer), count, rows, inputs, outputs)


def _cells(node: nodes.Node) -> int:
    return math.prod(dim.constant or 0 for dim in node.shape)


def _most(graph: nodes.Graph) -> int:
    """The cells of the largest value that is computed."""
    computed = (node for node in graph.nodes if not isinstance(node.kind, nodes.Input | nodes.Constant))
    return max(map(_cells, computed), default=0)


@dataclass(slots=True)
class RepeatedRows:
    """A kernel of many rows as one of few, each about equally often, in an order that `rng` draws for each call: rows
    have other neighbours in the next. `alike` until a row has other bits than the first of the same inputs."""

    kernel: GuardedKernel
    few: FewRows
    rng: np.random.Generator
    alike: bool = field(default=True, init=False)

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        """The few rows of the results, each the first of its kind."""
        places = self.rng.permutation(np.resize(np.arange(self.few.count), self.few.rows))
        pairs = zip(arrays, self.few.inputs, strict=True)
        inputs = [array if axis is None else np.take(array, places, axis) for array, axis in pairs]
        outputs = self.kernel.call_guarded(*inputs, pieces=pieces, order=order)
        return [self.first_of_each(array, axis, places) for array, axis in zip(outputs, self.few.outputs, strict=True)]

    def first_of_each(self, array: np.ndarray, axis: Axis, places: np.ndarray) -> np.ndarray:
        if axis is None:
            return array
        few = np.take(array, np.unique(places, return_index=True)[1], axis)
        self.alike &= np.take(few, places, axis).tobytes() == array.tobytes()
        return few
