"""Builds graphs node by node: casts, broadcasts, reshapes and kept axes become explicit nodes."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import GraphError, UnsupportedError
from noyau.ir import graph as dag
from noyau.ir.dims import Dim, DimLike, Shape, equal, flat_index, index_name, indices, never_negative, product, shape_of
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of
from noyau.ir.sizes import Demand


class GraphBuilder:
    """An `Algebra` whose values are the nodes of a graph under construction; equal values are one node.

    A front end overrides names of values (`fresh_name`), the rules of broadcasting (`broadcast_dims`, `fits`), and the
    treatment of extents that may differ (`demand_equal`, `demand_at_most`)."""

    def __init__(self, nodes: Iterable[dag.Node] = ()) -> None:
        self.nodes: list[dag.Node] = list(nodes)
        self.by_name: dict[str, dag.Node] = {node.output: node for node in self.nodes}
        self.unique: dict[tuple[dag.Kind, tuple[str, ...], DType, Shape], dag.Node] = {}
        self.demands: dict[Demand, None] = {}
        for node in self.nodes:
            if not isinstance(node.kind, dag.Input):
                self.unique.setdefault((node.kind, node.inputs, node.dtype, node.shape), node)

    # Nodes.

    def add(self, node: dag.Node) -> dag.Node:
        self.nodes.append(node)
        self.by_name[node.output] = node
        return node

    def fresh_name(self, kind: dag.Kind) -> str:
        """A name that no value has."""
        count = len(self.nodes)
        while f"v{count}" in self.by_name:
            count += 1
        return f"v{count}"

    def emit(self, kind: dag.Kind, operands: Sequence[dag.Node], dtype: DType, shape: Shape) -> dag.Node:
        """Add a node, or return an equal node that exists."""
        key = (kind, tuple(operand.output for operand in operands), dtype, shape)
        if key not in self.unique:
            self.unique[key] = self.add(dag.Node(self.fresh_name(kind), kind, key[1], dtype, shape))
        return self.unique[key]

    def add_input(self, name: str, dtype: DType, shape: Shape) -> dag.Node:
        return self.add(dag.Node(name, dag.Input(), (), dtype, shape))

    # Constants and sizes.

    def constant(self, value: Any, dtype: DType) -> dag.Node:
        """A known array or number. UnsupportedError for a number that the dtype does not hold."""
        try:
            array = np.array(value, dtype.numpy)
        except (OverflowError, ValueError) as fault:
            raise UnsupportedError(f"{value!r} does not fit into {dtype.value}: {fault}") from None
        return self.emit(dag.Constant(array), [], dtype, shape_of(array.shape))

    def full(self, value: Any, dtype: DType, shape: Shape) -> dag.Node:
        """A number in every cell of a shape."""
        number = self.constant(value, dtype)
        return self.broadcast_in_dim(number, shape, ()) if shape else number

    def like(self, value: float, other: dag.Node) -> dag.Node:
        """A scalar constant in the dtype of another value; it broadcasts with that value."""
        return self.constant(value, other.dtype)

    def iota(self, index: DimLike, shape: Shape = (), dtype: DType = DType.I64) -> dag.Node:
        """The value of a formula over sizes and the indices of a shape."""
        return self.emit(dag.Iota(Dim.of(index)), [], dtype, shape)

    def size(self, dim: Dim, dtype: DType, shape: Shape = ()) -> dag.Node:
        """A size in every cell of a shape."""
        if dim.constant is not None:
            return self.full(dim.constant, dtype, shape)
        return self.cast(self.iota(dim, shape), dtype)

    # Scalar functions.

    def cast(self, value: dag.Node, dtype: DType) -> dag.Node:
        if value.dtype is dtype:
            return value
        if (dtype.is_float8 or value.dtype.is_float8) and DType.F32 not in (dtype, value.dtype):
            value = self.cast(value, DType.F32)  # ml_dtypes rounds twice too
        return self.emit(dag.Map("cast"), [value], dtype, value.shape)

    def call(self, function: str, *operands: dag.Node) -> dag.Node:
        """Apply a scalar function to values that broadcast together; on float8 it computes in float32 and rounds."""
        rounded = operands[-1].dtype
        if rounded.is_float8 and "float8" not in OPERATORS[function].accepts:
            wide = self.call(function, *(self.cast(operand, DType.F32) for operand in operands))
            return self.cast(wide, rounded) if wide.dtype is DType.F32 else wide
        shape = self.broadcast([operand.shape for operand in operands])
        try:
            dtype = dtype_of(function, tuple(operand.dtype for operand in operands))
        except GraphError as fault:
            raise UnsupportedError(str(fault)) from fault
        return self.emit(dag.Map(function), [self.expand(operand, shape) for operand in operands], dtype, shape)

    def broadcast(self, shapes: Sequence[Shape]) -> Shape:
        """The shape to which shapes broadcast: axes are aligned at the end."""
        if all(shape == shapes[0] for shape in shapes):
            return shapes[0]
        rank = max(map(len, shapes))
        padded = [(*shape_of([1] * (rank - len(shape))), *shape) for shape in shapes]
        return tuple(self.broadcast_dims(dims) for dims in zip(*padded, strict=True))

    def broadcast_dims(self, dims: Sequence[Dim]) -> Dim:
        """The extent to which the extents of one axis broadcast."""
        large = [dim for dim in dims if dim != Dim.of(1)] or [Dim.of(1)]
        for other in large[1:]:
            self.demand_equal(large[0], other)
        return next((dim for dim in large if dim.constant is not None), large[0])

    # Views.

    def view(self, value: dag.Node, shape: Shape, index: Iterable[DimLike]) -> dag.Node:
        """out[i] = value[index(i)]"""
        return self.emit(dag.View(shape_of(index)), [value], value.dtype, shape)

    def expand(self, value: dag.Node, shape: Shape) -> dag.Node:
        """The value broadcast to a shape that it fits."""
        if value.shape == shape:
            return value
        pairs = zip(value.shape, shape[len(shape) - len(value.shape) :], strict=True)
        source = tuple(goal if self.fits(dim, goal) else dim for dim, goal in pairs)
        return self.view(value, shape, dag.expand_index(source, shape))

    def fits(self, dim: Dim, goal: Dim) -> bool:
        """Whether an extent that is broadcast to another one equals it, so that nothing is repeated."""
        return dim != Dim.of(1)

    def broadcast_in_dim(self, value: dag.Node, shape: Shape, axes: Sequence[int]) -> dag.Node:
        """The value repeated over a shape; its axis k is axis `axes[k]` of the shape."""
        return self.view(value, shape, [index_name(axis) for axis in axes])

    def expand_along(self, value: dag.Node, axes: Sequence[int], shape: Shape) -> dag.Node:
        """The value repeated along `axes` of a shape, as the result of a reduction over them is."""
        return self.broadcast_in_dim(value, shape, [axis for axis in range(len(shape)) if axis not in axes])

    def assume_shape(self, value: dag.Node, shape: Shape) -> dag.Node:
        """The value under a shape that it has wherever the demands hold."""
        for left, right in zip(value.shape, shape, strict=True):
            self.demand_equal(left, right)
        return value if value.shape == shape else self.view(value, shape, indices(len(shape)))

    def transpose(self, value: dag.Node, order: Sequence[int]) -> dag.Node:
        index = [index_name(list(order).index(axis)) for axis in range(len(order))]
        return self.view(value, tuple(value.shape[axis] for axis in order), index)

    def reshape(self, value: dag.Node, shape: Shape) -> dag.Node:
        """The same cells in C order."""
        self.demand_equal(product(value.shape), product(shape))
        if not same_but_ones(value.shape, shape):
            return self.view(value, shape, flat_index(value.shape, shape))
        places = (at for at, dim in zip(indices(len(shape)), shape, strict=True) if dim != Dim.of(1))
        index = [Dim.of(0) if dim == Dim.of(1) else next(places) for dim in value.shape]
        return value if value.shape == shape else self.view(value, shape, index)

    def restore_axes(self, value: dag.Node, axes: Iterable[int]) -> dag.Node:
        """The value with axes of extent 1 at these positions of the result."""
        inserted = set(axes)
        every = range(len(value.shape) + len(inserted))
        rest = [axis for axis in every if axis not in inserted]
        extents = dict(zip(rest, value.shape, strict=True))
        return self.broadcast_in_dim(value, tuple(extents.get(axis, Dim.of(1)) for axis in every), rest)

    def drop_axes(self, value: dag.Node, axes: Iterable[int]) -> dag.Node:
        """The value without axes, the extents of which must be 1."""
        dropped = set(axes)
        for axis in dropped:
            self.demand_equal(value.shape[axis], Dim.of(1))
        rest = [axis for axis in range(len(value.shape)) if axis not in dropped]
        index = [0 if axis in dropped else index_name(rest.index(axis)) for axis in range(len(value.shape))]
        return self.view(value, tuple(value.shape[axis] for axis in rest), index)

    def slice(self, value: dag.Node, axis: int, start: DimLike, length: DimLike, step: int = 1) -> dag.Node:
        """`length` cells along an axis from `start`."""
        shape = (*value.shape[:axis], Dim.of(length), *value.shape[axis + 1 :])
        index = list(indices(len(shape)))
        index[axis] = index[axis] * step + start
        return self.view(value, shape, index)

    def split(self, value: dag.Node, axis: int, lengths: Iterable[Dim]) -> list[dag.Node]:
        """Pieces of a value, one after the other along an axis."""
        extents = list(lengths)
        starts = accumulate(extents, initial=Dim.of(0))
        return [self.slice(value, axis, start, length) for start, length in zip(starts, extents, strict=False)]

    def pick(self, value: dag.Node, axis: int, at: DimLike) -> dag.Node:
        """One cell along an axis, which disappears."""
        index = indices(len(value.shape) - 1)
        shape = (*value.shape[:axis], *value.shape[axis + 1 :])
        return self.view(value, shape, [*index[:axis], Dim.of(at), *index[axis:]])

    def flip(self, value: dag.Node, axis: int) -> dag.Node:
        return self.slice(value, axis, value.shape[axis] - 1, value.shape[axis], -1)

    def concat(self, pieces: Sequence[dag.Node], axis: int) -> dag.Node:
        """Pieces side by side along an axis, all other extents of which must be equal."""
        first, aligned = pieces[0], list[dag.Node]()
        *starts, end = accumulate((piece.shape[axis] for piece in pieces), initial=Dim.of(0))
        for piece in pieces:
            shape = (*first.shape[:axis], piece.shape[axis], *first.shape[axis + 1 :])
            for left, right in zip(shape, piece.shape, strict=True):
                self.demand_equal(left, right)
            aligned.append(piece if piece.shape == shape else self.view(piece, shape, indices(len(shape))))
        shape = (*first.shape[:axis], end, *first.shape[axis + 1 :])
        return self.emit(dag.Select(axis, tuple(starts)), aligned, first.dtype, shape)

    # Lookups.

    def gather(self, index: Iterable[Dim | dag.Lookup], operands: Sequence[dag.Node], shape: Shape) -> dag.Node:
        """out[i] = operands[0][index(i)], where the other operands are looked up."""
        return self.emit(dag.Gather(tuple(index)), operands, operands[0].dtype, shape)

    def scatter(self, index: Iterable[Dim | dag.Lookup], monoid: str | None, operands: Sequence[dag.Node]) -> dag.Node:
        """A copy of operands[0] with operands[2] merged at the places that operands[1] names."""
        return self.emit(dag.Scatter(tuple(index), monoid), operands, operands[0].dtype, operands[0].shape)

    # Monoids.

    def reduce(self, monoid: str, value: dag.Node, axes: Sequence[int], *, keep: bool = False) -> dag.Node:
        """Reduce by a monoid over axes, which disappear, or with `keep` become 1; float8 only by exact monoids."""
        if value.dtype.is_float8:
            if not MONOIDS[monoid].exact:
                inexact = f"the {monoid} of {value.dtype.value} is rounded after each step"
                raise UnsupportedError(f"{inexact}, in an order that nobody promises; cast it to float32 first")
            wide = self.reduce(monoid, self.cast(value, DType.F32), axes, keep=keep)
            return self.cast(wide, value.dtype) if wide.dtype is DType.F32 else wide
        if value.dtype.kind not in MONOIDS[monoid].accepts:
            raise UnsupportedError(f"the {monoid} of {value.dtype.value} is not defined")
        if not axes:
            return value
        rest = tuple(dim for axis, dim in enumerate(value.shape) if axis not in axes)
        result = self.emit(dag.Reduce(monoid, tuple(sorted(axes))), [value], MONOIDS[monoid].result(value.dtype), rest)
        return self.restore_axes(result, axes) if keep else result

    def scan(self, scan: dag.Scan, value: dag.Node) -> dag.Node:
        """The running result of a monoid along an axis."""
        if value.dtype.is_float8:
            running = f"the running {scan.monoid} of {value.dtype.value}"
            raise UnsupportedError(f"{running} is not traced; cast it to float32")
        return self.emit(scan, [value], MONOIDS[scan.monoid].result(value.dtype), value.shape)

    def contract(self, equation: str, operands: Sequence[dag.Node]) -> dag.Node:
        """An einsum; extents under one letter are equal, or 1 and broadcast."""
        inputs, output = equation.split("->")
        terms, extents = inputs.split(","), dict[str, Dim]()
        for term, operand in zip(terms, operands, strict=True):
            for letter, dim in zip(term, operand.shape, strict=True):
                extent = extents.get(letter, Dim.of(1))
                if extent != Dim.of(1) and dim != Dim.of(1):
                    self.demand_equal(extent, dim)
                extents[letter] = extent if extent != Dim.of(1) else dim
        *shapes, shape = (tuple(extents[letter] for letter in term) for term in (*terms, output))
        expanded = [self.expand(operand, own) for operand, own in zip(operands, shapes, strict=True)]
        return self.emit(dag.Contract(equation), expanded, operands[0].dtype, shape)

    # Demands on extents.

    def demand_equal(self, left: DimLike, right: DimLike) -> None:
        """Demand that two extents are equal. UnsupportedError where they never are."""
        left, right = Dim.of(left), Dim.of(right)
        is_equal = equal(left, right)
        if is_equal is False:
            raise UnsupportedError(f"shapes do not fit: an extent is {left} and {right} at once")
        if is_equal is None:
            self.demands[Demand(left, right, "equal")] = None

    def demand_at_most(self, left: DimLike, right: DimLike) -> None:
        """Demand that an extent is not above another. UnsupportedError where it always is."""
        left, right = Dim.of(left), Dim.of(right)
        if never_negative(left - right - 1):
            raise UnsupportedError(f"it needs {left} to be at most {right}")
        if not never_negative(right - left):
            self.demands[Demand(left, right, "at most")] = None


def same_but_ones(source: Shape, shape: Shape) -> bool:
    """Whether two shapes differ only in axes of extent 1."""
    return [dim for dim in source if dim != Dim.of(1)] == [dim for dim in shape if dim != Dim.of(1)]
