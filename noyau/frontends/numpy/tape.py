"""What a function does to traced arrays, noted as graph nodes: casts, broadcasts and reshapes are explicit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError
from noyau.ir.binding import Demand
from noyau.ir.dims import Dim, DimLike, Shape, equal, flat_index, indices, product, shape_of
from noyau.ir.graph import Input, Iota, Kind, Map, Node, Reduce, Scan, Select, View, constant
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import dtype_of


class Tape:
    """The nodes so far, and what sizes must obey for them to mean what NumPy means."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.demands: dict[Demand, None] = {}

    def input(self, name: str, dtype: DType, shape: Shape) -> Node:
        return self.add(Node(name, Input(), (), dtype, shape))

    def add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def emit(self, kind: Kind, operands: Sequence[Node], dtype: DType, shape: Shape) -> Node:
        return self.add(Node(f"v{len(self.nodes)}", kind, tuple(each.output for each in operands), dtype, shape))

    def constant(self, value: Any, dtype: DType) -> Node:
        """A known array or number."""
        array = np.array(value, dtype.numpy)
        return self.add(constant(f"v{len(self.nodes)}", array))

    def size(self, dim: Dim, dtype: DType) -> Node:
        """A size as a value of rank 0."""
        known = dim.constant
        if known is not None:
            return self.constant(known, dtype)
        return self.cast(self.emit(Iota(dim), [], DType.I64, ()), dtype)

    def cast(self, value: Node, dtype: DType) -> Node:
        return value if value.dtype is dtype else self.emit(Map("cast"), [value], dtype, value.shape)

    def map(self, function: str, *operands: Node) -> Node:
        """A scalar function of values of one shape, or that are broadcast to one."""
        shape = self.broadcast([operand.shape for operand in operands])
        given = [self.expand(operand, shape) for operand in operands]
        return self.emit(Map(function), given, dtype_of(function, tuple(each.dtype for each in given)), shape)

    def broadcast(self, shapes: Sequence[Shape]) -> Shape:
        """The shape that NumPy gives several; extents with different names must be equal."""
        rank = max(map(len, shapes))
        padded = [(*shape_of([1] * (rank - len(shape))), *shape) for shape in shapes]
        return tuple(self._broadcast_dim(dims) for dims in zip(*padded, strict=True))

    def _broadcast_dim(self, dims: Sequence[Dim]) -> Dim:
        large = [dim for dim in dims if dim != Dim.of(1)] or [Dim.of(1)]
        for other in large[1:]:
            self.demand_equal(large[0], other)
        return next((dim for dim in large if dim.constant is not None), large[0])

    def expand(self, value: Node, shape: Shape) -> Node:
        """A value read again wherever the shape is larger."""
        if value.shape == shape:
            return value
        index = []
        for axis, dim in enumerate(value.shape):
            at = axis + len(shape) - len(value.shape)
            index.append(Dim.of(0) if dim == Dim.of(1) and shape[at] != dim else Dim.of(f"#{at}"))
        return self.view(value, shape, tuple(index))

    def view(self, value: Node, shape: Shape, index: Sequence[Dim]) -> Node:
        return self.emit(View(tuple(index)), [value], value.dtype, shape)

    def transpose(self, value: Node, order: Sequence[int]) -> Node:
        index = [Dim.of(f"#{list(order).index(axis)}") for axis in range(len(order))]
        return self.view(value, tuple(value.shape[axis] for axis in order), index)

    def reshape(self, value: Node, shape: Shape) -> Node:
        """The same cells in C order."""
        self.demand_equal(product(value.shape), product(shape))
        return value if value.shape == shape else self.view(value, shape, flat_index(value.shape, shape))

    def restore(self, value: Node, axes: Iterable[int]) -> Node:
        """The value with axes of 1 at these places of the result."""
        wanted = sorted(axes)
        left = iter(range(len(value.shape)))
        places = [None if axis in wanted else next(left) for axis in range(len(value.shape) + len(wanted))]
        shape = tuple(Dim.of(1) if place is None else value.shape[place] for place in places)
        index = [Dim.of(f"#{axis}") for axis, place in enumerate(places) if place is not None]
        return self.view(value, shape, index)

    def drop(self, value: Node, axes: Iterable[int]) -> Node:
        """The value without axes, of which the extents are 1."""
        gone = set(axes)
        for axis in gone:
            self.demand_equal(value.shape[axis], Dim.of(1))
        kept = [axis for axis in range(len(value.shape)) if axis not in gone]
        index = [Dim.of(0) if axis in gone else Dim.of(f"#{kept.index(axis)}") for axis in range(len(value.shape))]
        return self.view(value, tuple(value.shape[axis] for axis in kept), index)

    def reduce(self, monoid: str, value: Node, axes: Sequence[int], *, keep: bool = False) -> Node:
        """A monoid over axes, which disappear, or stay as 1."""
        if value.dtype.kind not in MONOIDS[monoid].accepts:
            raise UnsupportedError(f"the {monoid} of {value.dtype.value} is not in the table of monoids")
        left = tuple(dim for axis, dim in enumerate(value.shape) if axis not in axes)
        dtype = MONOIDS[monoid].result(value.dtype)
        made = self.emit(Reduce(monoid, tuple(sorted(axes))), [value], dtype, left) if axes else value
        return self.restore(made, axes) if keep and axes else made

    def scan(self, monoid: str, value: Node, axis: int) -> Node:
        return self.emit(Scan(monoid, axis), [value], value.dtype, value.shape)

    def concatenate(self, pieces: Sequence[Node], axis: int) -> Node:
        """Pieces side by side, of which all other extents are equal."""
        starts, end = [], Dim.of(0)
        for piece in pieces:
            for other, dim in enumerate(piece.shape):
                if other != axis:
                    self.demand_equal(pieces[0].shape[other], dim)
            starts.append(end)
            end = end + piece.shape[axis]
        shape = (*pieces[0].shape[:axis], end, *pieces[0].shape[axis + 1 :])
        alike = [self.shaped(p, (*shape[:axis], p.shape[axis], *shape[axis + 1 :])) for p in pieces]
        return self.emit(Select(axis, tuple(starts)), alike, pieces[0].dtype, shape)

    def shaped(self, value: Node, shape: Shape) -> Node:
        """The value under a shape that it has wherever the demands hold."""
        for left, right in zip(value.shape, shape, strict=True):
            self.demand_equal(left, right)
        return value if value.shape == shape else self.view(value, shape, indices(len(shape)))

    def demand_equal(self, left: DimLike, right: DimLike) -> None:
        """UnsupportedError where two extents surely differ."""
        left, right = Dim.of(left), Dim.of(right)
        match equal(left, right):
            case False:
                raise UnsupportedError(f"shapes do not fit: an extent is {left} and {right} at once")
            case None:
                self.demands[Demand(left, right, "equal")] = None
            case True:
                pass

    def demand_at_most(self, left: DimLike, right: DimLike) -> None:
        left, right = Dim.of(left), Dim.of(right)
        room = (right - left).constant
        if room is not None and room < 0:
            raise UnsupportedError(f"it needs {left} to be at most {right}")
        if room is None:
            self.demands[Demand(left, right, "at most")] = None


def dtype_from(dtype: Any) -> DType:
    """The DType of what NumPy takes for one. UnsupportedError where noyau has none."""
    try:
        found = from_numpy(np.dtype(dtype))
    except TypeError:
        found = None
    if found is None or found is DType.OTHER:
        raise UnsupportedError(f"there is no dtype for {dtype!r} here: f16, bf16, f32, f64, integers and bool are")
    return found
