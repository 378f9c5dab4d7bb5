"""Rows that nothing connects: a few different ones, repeated in a drawn order, show a kernel all that many would.

The truth and the unfused runs are evaluated for the few. The kernel runs on all rows, and each must have the bits of
the first that has the same inputs: so every cell is judged, a cell that is taken from another row shows, and so does a
row at an end that is computed otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Constant, Graph, Input, Node
from noyau.toolchain.guard_zones import Order
from noyau.verify.row_axes import Axis, axes_of
from noyau.verify.values import GuardedKernel

REPEATS = 4  # times that a row is there on the average, at least: fewer are not worth it
CELLS = 1 << 13  # of the largest value of the few rows, as far as there are so many rows
MOST_ROWS, FEWEST_ROWS = 8, 4


@dataclass(frozen=True, slots=True)
class FewRows:
    """A graph with `count` rows in the place of `rows`; the axes of rows of its inputs and outputs, None for none."""

    graph: Graph
    count: int
    rows: int
    inputs: tuple[Axis, ...]
    outputs: tuple[Axis, ...]


def few_rows(graph: Graph) -> FewRows | None:
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


def _with(graph: Graph, axes: dict[str, Axis], count: int, rows: int) -> FewRows:
    nodes = tuple(replace(node, shape=_with_extent(node.shape, axes[node.output], count)) for node in graph.nodes)
    inputs, outputs = (node.output for node in graph.inputs), graph.outputs
    return FewRows(
        replace(graph, nodes=nodes),
        count,
        rows,
        tuple(axes[name] for name in inputs),
        tuple(axes[name] for name in outputs),
    )


def _with_extent(shape: Shape, axis: Axis, extent: int) -> Shape:
    return tuple(Dim.of(extent) if at == axis else dim for at, dim in enumerate(shape))


def _cells(node: Node) -> int:
    return math.prod(dim.constant or 0 for dim in node.shape)


def _most(graph: Graph) -> int:
    """The cells of the largest value that is computed."""
    return max((_cells(node) for node in graph.nodes if not isinstance(node.kind, Input | Constant)), default=0)


@dataclass(slots=True)
class Repeated:
    """A kernel of many rows as one of few, each of these about equally often, in an order that `rng` draws for each
    call: rows that are neighbours in one call are others in the next. `alike` until a row has other bits than the first
    of the same inputs."""

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
