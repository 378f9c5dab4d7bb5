"""The way of the rows through a graph: which values have a row for each of the input's, and which folds end that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from noyau.errors import UnsupportedError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, index_name
from noyau.ir.graph import Graph, Lookup, Node, dims_of
from noyau.ir.monoids import MONOIDS


@dataclass
class RowPlan:
    """The values of a graph by what they hang on. `axes`: of those with rows, the axis that these lie along; `late`:
    those that hang on all rows, or on their number; `folds`: the monoid of each value that ends the rows."""

    graph: Graph
    size: str
    axes: dict[str, int] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    folds: dict[str, str] = field(default_factory=dict)

    @property
    def is_map(self) -> bool:
        """Whether each output has a row for each of the input's."""
        return all(self.axes.get(name) == 0 for name in self.graph.outputs)

    def add(self, node: Node) -> None:
        """Look at one value, after all that it reads. UnsupportedError where its rows cannot come in chunks."""
        rows = {name: self.axes[name] for name in node.inputs if name in self.axes}
        spread = [axis for axis, dim in enumerate(node.shape) if self.size in dim.names]
        is_late = not self.late.isdisjoint(node.inputs)
        if is_late and (rows or spread):
            raise self.refusal(node, "reads the rows and also a result of all of them, which takes two passes")
        if is_late or (not rows and not spread and any(self.size in dim.names for dim in dims_of(node))):
            self.late.add(node.output)
        elif rows:
            if (axis := self.move(node, rows)) is not None:
                self.axes[node.output] = axis
        elif spread:
            self.axes[node.output] = self.begin(node, spread)

    def begin(self, node: Node, spread: Sequence[int]) -> int:
        """The axis of the rows of an input, or of a value that is the same in each row."""
        axis, *others = spread
        index = (node.kind.index,) if isinstance(node.kind, nodes.Iota) else getattr(node.kind, "index", ())
        numbered = any(index_name(axis) in dim.names for dim in index if isinstance(dim, Dim))
        if others or node.shape[axis] != Dim.of(self.size) or numbered or (isinstance(node.kind, nodes.Input) and axis):
            raise self.refusal(node, "reads the number of a row, or has rows along another axis than the first")
        return axis

    def move(self, node: Node, rows: Mapping[str, int]) -> int | None:
        """The axis of the rows in a value that reads some; None where it folds them."""
        axes = {self._axis(node, name, axis) for name, axis in rows.items()}
        if self._folds(node, axes):
            self.late.add(node.output)
            return None
        if len(axes) != 1 or None in axes:
            raise self.refusal(node, "moves rows, or combines a row with others")
        return axes.pop()

    def _axis(self, node: Node, name: str, axis: int) -> int | None:
        if isinstance(node.kind, nodes.Map):
            return axis
        match node.kind:
            case nodes.Reduce(_, axes):
                return None if axis in axes else axis - sum(each < axis for each in axes)
            case nodes.Scan(_, along) | nodes.Select(along, _):
                return None if axis == along else axis
            case nodes.View(index):
                return self._place(index, axis, node)
            case nodes.Gather(index):
                return self._look_up(index, node, name, axis)
            case nodes.Contract(equation):
                terms, out = equation.split("->")[0].split(","), equation.split("->")[1]
                letters = {term[axis] for term, each in zip(terms, node.inputs, strict=True) if each == name}
                return out.find(letters.pop()) if len(letters) == 1 and letters <= set(out) else None
            case _:
                return None

    def _look_up(self, index: Sequence[Dim | Lookup], node: Node, name: str, axis: int) -> int | None:
        if name == node.inputs[0]:
            return self._place([each if isinstance(each, Dim) else Dim.of(0) for each in index], axis, node)
        ways = {self._place(each.at, axis, node) for each in index if isinstance(each, Lookup)}
        return ways.pop() if len(ways) == 1 else None

    def _place(self, index: Sequence[Dim], axis: int, node: Node) -> int | None:
        """The axis of a value of which the rows are those of the operand, one by one."""
        for at, dim in enumerate(node.shape):
            alone = index[axis] == Dim.of(index_name(at)) and dim == Dim.of(self.size)
            if alone and sum(index_name(at) in each.names for each in index) == 1:
                return at
        return None

    def _folds(self, node: Node, axes: set[int | None]) -> bool:
        """Whether a value merges all rows, and by which monoid."""
        match node.kind:
            case nodes.Reduce(monoid, along) if axes == {None} and self.axes[node.inputs[0]] in along:
                several = monoid.startswith("arg") and len(along) > 1
                if not several and not MONOIDS[monoid].ordered:
                    self.folds[node.output] = monoid
            case nodes.Contract(equation) if axes == {None}:
                terms = list(zip(equation.split("->")[0].split(","), node.inputs, strict=True))
                letters = {term[self.axes[name]] for term, name in terms if name in self.axes}
                if len(letters) == 1 and all(name in self.axes or letters.isdisjoint(term) for term, name in terms):
                    self.folds[node.output] = "sum"
            case nodes.Scatter(index, monoid) if monoid is not None and self._is_neutral(node.inputs[0], monoid):
                at, updates = (self.axes.get(name) for name in node.inputs[1:])
                rows = self.graph[node.inputs[2]]  # whose axes the lookups count
                lookups = [each.at for each in index if isinstance(each, Lookup)]
                if at is not None and updates is not None and {self._place(x, at, rows) for x in lookups} == {updates}:
                    self.folds[node.output] = monoid
            case _:
                pass
        return node.output in self.folds

    def _is_neutral(self, name: str, monoid: str) -> bool:
        """Whether a value is that of no rows in each cell, so that it may stand in every chunk."""
        node = self.graph[name]
        if isinstance(node.kind, nodes.View):
            return self._is_neutral(node.inputs[0], monoid)
        neutral = MONOIDS[monoid].init(node.dtype)[0]
        return isinstance(node.kind, nodes.Constant) and bool(np.all(node.kind.value == neutral))

    def refusal(self, node: Node, fault: str) -> UnsupportedError:
        kind = type(node.kind).__name__
        return UnsupportedError(f"the value {node.output} ({kind}) {fault}; write it as a @noyau.reduction")


def plan_rows(graph: Graph, size: str) -> RowPlan:
    """The way of the rows, of which there are `size`. UnsupportedError where chunks of rows cannot do."""
    plan = RowPlan(graph, size)
    for node in graph.nodes:
        plan.add(node)
    if not plan.is_map and any(name in plan.axes for name in graph.outputs):
        raise UnsupportedError("some results have rows and others do not; make two ops of them")
    return plan
