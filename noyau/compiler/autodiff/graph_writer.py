"""A graph that is written node by node: equal values are one, what is known everywhere is calculated at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from noyau.dtypes import DType
from noyau.ir.dims import Dim, DimLike, Shape, indices
from noyau.ir.graph import Constant, Graph, Input, Iota, Kind, Map, Node, Reduce, Scan, Select, View, constant
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of

Key = tuple[Kind, tuple[str, ...], DType, Shape]


class Writer:
    """The nodes so far, by name. An `Algebra` whose values are nodes, so that formulas written over one become nodes.

    `stem` is what the next values are named after. Nothing is broadcast: operands of a function have one shape."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: dict[str, Node] = dict(graph.by_name)
        self.made: dict[Key, Node] = {}
        for node in graph.nodes:
            if not isinstance(node.kind, Input):
                self.made.setdefault((node.kind, node.inputs, node.dtype, node.shape), node)
        self.taken, self.counts = set(self.nodes), dict[str, int]()
        self.stem = "value"

    def emit(self, kind: Kind, operands: Sequence[Node], dtype: DType, shape: Shape) -> Node:
        """The value of that kind: a new one, or the one that was made before."""
        key = (kind, tuple(each.output for each in operands), dtype, shape)
        if key not in self.made:
            self.made[key] = self.add(Node(self.fresh(self.stem), kind, key[1], dtype, shape))
        return self.made[key]

    def add(self, node: Node) -> Node:
        self.nodes[node.output] = node
        return node

    def fresh(self, stem: str) -> str:
        """A name that no value has, and none will be given again."""
        while True:
            count = self.counts[stem] = self.counts.get(stem, 0) + 1
            name = stem if count == 1 else f"{stem}_{count}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    # The algebra of nodes.

    def call(self, name: str, *operands: Node) -> Node:
        """A scalar function of values of one shape."""
        dtype = dtype_of(name, tuple(each.dtype for each in operands))
        known = [self.known(each) for each in operands]
        if name == "where" and known[0] is not None:
            return operands[1] if known[0] else operands[2]
        if all(number is not None for number in known):
            return self.number(self._calculated(name, operands), dtype, operands[0].shape)
        return self.emit(Map(name), operands, dtype, operands[0].shape)

    def like(self, value: float, other: Node) -> Node:
        """A number of the dtype and the shape of another value."""
        return self.number(value, other.dtype, other.shape)

    def cast(self, value: Node, dtype: DType) -> Node:
        if value.dtype is dtype:
            return value
        known = self.known(value)
        if known is not None:
            return self.number(known, dtype, value.shape)
        return self.emit(Map("cast"), [value], dtype, value.shape)

    def _calculated(self, name: str, operands: Sequence[Node]) -> float:
        """A function of numbers, in their dtype."""
        with np.errstate(all="ignore"):
            numbers = [np.asarray(self.known(each)).astype(each.dtype.compute.numpy) for each in operands]
            return float(np.asarray(OPERATORS[name].evaluate(*numbers)))

    def number(self, value: float, dtype: DType, shape: Shape) -> Node:
        """A known number, as large as the shape."""
        node = constant("", np.array(value, dtype.numpy))
        key = (node.kind, (), dtype, ())
        if key not in self.made:  # the tilde keeps it in the text of a kernel
            self.made[key] = self.add(Node(self.fresh("number~"), node.kind, (), dtype, ()))
        return self.expand(self.made[key], shape, ()) if shape else self.made[key]

    def known(self, node: Node) -> float | None:
        """The number that a value is everywhere, if it is one."""
        while isinstance(node.kind, View):
            node = self.nodes[node.inputs[0]]
        if not isinstance(node.kind, Constant) or node.kind.value.size != 1:
            return None
        return float(node.kind.value.reshape(()))

    # Sizes, views, sums.

    def count(self, dim: Dim, dtype: DType, shape: Shape) -> Node:
        """A size as a float, as large as the shape."""
        if dim.constant is not None:
            return self.number(dim.constant, dtype, shape)
        return self.cast(self.emit(Iota(dim), [], DType.I64, shape), dtype)

    def iota(self, index: DimLike, shape: Shape) -> Node:
        """A formula of sizes and of the indices of a shape, as an integer."""
        return self.emit(Iota(Dim.of(index)), [], DType.I64, shape)

    def view(self, value: Node, shape: Shape, index: Iterable[Dim]) -> Node:
        index = tuple(index)
        if index == indices(len(shape)) and value.shape == shape:
            return value
        return self.emit(View(index), [value], value.dtype, shape)

    def expand(self, value: Node, shape: Shape, axes: Sequence[int]) -> Node:
        """A value whose axes are those `axes` of the shape, read again along the others."""
        return self.view(value, shape, (Dim.of(f"#{axis}") for axis in axes))

    def restore(self, value: Node, axes: Sequence[int], shape: Shape) -> Node:
        """What a reduction over `axes` of that shape gave, read again along them."""
        return self.expand(value, shape, [axis for axis in range(len(shape)) if axis not in axes])

    def reduce(self, monoid: str, value: Node, axes: Sequence[int]) -> Node:
        """A monoid over axes, which disappear; half types are merged in float32 and rounded once."""
        left = tuple(dim for axis, dim in enumerate(value.shape) if axis not in axes)
        dtype = MONOIDS[monoid].result(value.dtype)
        return self.emit(Reduce(monoid, tuple(sorted(axes))), [value], dtype, left) if axes else value

    def sum(self, value: Node, axes: Sequence[int]) -> Node:
        return self.reduce("sum", value, axes)

    def scan(self, kind: Scan, value: Node) -> Node:
        """The running result of a monoid."""
        return self.emit(kind, [value], MONOIDS[kind.monoid].result(value.dtype), value.shape)

    def join(self, pieces: Sequence[Node], axis: int) -> Node:
        """Pieces side by side; those of extent 0 are left out, unless all are."""
        kept = [piece for piece in pieces if piece.shape[axis] != Dim.of(0)] or list(pieces[:1])
        if len(kept) == 1:
            return kept[0]
        starts, end = [], Dim.of(0)
        for piece in kept:
            starts.append(end)
            end = end + piece.shape[axis]
        shape = (*kept[0].shape[:axis], end, *kept[0].shape[axis + 1 :])
        return self.emit(Select(axis, tuple(starts)), kept, kept[0].dtype, shape)

    def padded(self, value: Node, axis: int, before: Dim, extent: Dim, filling: float = 0.0) -> Node:
        """A value between cells of a number, `before` of them first, up to an extent of `extent` along an axis."""

        def cells(dim: Dim) -> Node:
            shape = (*value.shape[:axis], dim, *value.shape[axis + 1 :])
            return self.number(filling, value.dtype, shape)

        after = extent - before - value.shape[axis]
        return self.join([cells(before), value, cells(after)], axis)

    def flipped(self, value: Node, axis: int) -> Node:
        index = list(indices(len(value.shape)))
        index[axis] = value.shape[axis] - 1 - index[axis]
        return self.view(value, value.shape, index)
