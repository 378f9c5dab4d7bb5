"""What a function does to traced arrays, noted as graph nodes: casts, broadcasts and reshapes are explicit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimLike, Shape, equal, flat_index, indices, never_negative, product, shape_of
from noyau.ir.graph import Constant, Input, Iota, Kind, Map, Node, Reduce, Scan, Select, View
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of
from noyau.ir.sizes import Demand

MOST_NODES = 5_000  # a loop over cells that is traced step by step would make more


class Settled(BaseException):
    """The trace begins again with some sizes as numbers, or with one name for two of them. It passes through whatever
    the function catches, so it is no Exception."""

    def __init__(self, known: Mapping[str, int | str]) -> None:
        super().__init__()
        self.known = known


class Tape:
    """The nodes so far, and what sizes must obey for them to mean what NumPy means.

    `sizes`: what they are in the call that is traced for, where that is known. `merging`: two names of one size become
    one name, instead of a demand. `most_nodes`: how many steps it takes."""

    most_nodes = MOST_NODES

    def __init__(self, sizes: Mapping[str, int] | None = None, *, merging: bool = False) -> None:
        self.nodes: list[Node] = []
        self.by_name: dict[str, Node] = {}
        self.made: dict[tuple[Any, ...], Node] = {}  # by what makes them, so that equal values are one
        self.demands: dict[Demand, None] = {}
        self.sizes: Mapping[str, int] = sizes or {}
        self.merging = merging
        self.refused: UnsupportedError | None = None  # the first, also where the function caught it

    def input(self, name: str, dtype: DType, shape: Shape) -> Node:
        return self.add(Node(name, Input(), (), dtype, shape))

    def add(self, node: Node) -> Node:
        if len(self.nodes) >= self.most_nodes:
            told = f"it takes more than {self.most_nodes} steps, as loops are unrolled"
            raise UnsupportedError(f"{told}; write it without a loop over cells")
        self.nodes.append(node)
        self.by_name[node.output] = node
        return node

    def emit(self, kind: Kind, operands: Sequence[Node], dtype: DType, shape: Shape) -> Node:
        names = tuple(each.output for each in operands)
        key = (kind, names, dtype, shape)
        if key not in self.made:
            self.made[key] = self.add(Node(self.fresh(), kind, names, dtype, shape))
        return self.made[key]

    def fresh(self) -> str:
        """A name that no value has."""
        count = len(self.nodes)
        while f"v{count}" in self.by_name:
            count += 1
        return f"v{count}"

    def constant(self, value: Any, dtype: DType) -> Node:
        """A known array or number."""
        try:
            array = np.array(value, dtype.numpy)
        except OverflowError as fault:
            raise UnsupportedError(f"{value!r} does not fit into {dtype.value}: {fault}") from None
        return self.emit(Constant(array), [], dtype, shape_of(array.shape))

    def size(self, dim: Dim, dtype: DType) -> Node:
        """A size as a value of rank 0."""
        known = dim.constant
        if known is not None:
            return self.constant(known, dtype)
        return self.cast(self.emit(Iota(dim), [], DType.I64, ()), dtype)

    def cast(self, value: Node, dtype: DType) -> Node:
        """A value in another dtype; to and from a float8 by way of float32, as ml_dtypes does."""
        if value.dtype is dtype:
            return value
        if dtype.is_float8 or value.dtype.is_float8:
            value = value if value.dtype is DType.F32 or dtype is DType.F32 else self.cast(value, DType.F32)
        return self.emit(Map("cast"), [value], dtype, value.shape)

    def map(self, function: str, *operands: Node) -> Node:
        """A scalar function of values of one shape, or that are broadcast to one; of float8 it is computed in float32
        and rounded."""
        own = operands[-1].dtype
        if own.is_float8 and "float8" not in OPERATORS[function].accepts:
            made = self.map(function, *(self.cast(operand, DType.F32) for operand in operands))
            return self.cast(made, own) if made.dtype is DType.F32 else made
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
            if equal(large[0], other) is not True:
                self._same_in_a_broadcast(large[0], other)
        return next((dim for dim in large if dim.constant is not None), large[0])

    def _same_in_a_broadcast(self, left: Dim, right: Dim) -> None:
        """Extents that must be equal; what only happens to be 1 in this call becomes a number."""
        pair = self.number_of(left), self.number_of(right)
        if None not in pair and pair[0] != pair[1] and 1 in pair:
            self.settle(left if pair[0] == 1 else right)
        self.demand_equal(left, right)

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

    def copied(self, value: Node) -> Node:
        """The same cells as a value of its own, which is no view."""
        return self.emit(Map("identity"), [value], value.dtype, value.shape)

    def transpose(self, value: Node, order: Sequence[int]) -> Node:
        index = [Dim.of(f"#{list(order).index(axis)}") for axis in range(len(order))]
        return self.view(value, tuple(value.shape[axis] for axis in order), index)

    def reshape(self, value: Node, shape: Shape) -> Node:
        """The same cells in C order."""
        self.demand_equal(product(value.shape), product(shape))
        if not same_but_ones(value.shape, shape):
            return self.view(value, shape, flat_index(value.shape, shape))
        places = (at for at, dim in zip(indices(len(shape)), shape, strict=True) if dim != Dim.of(1))
        index = [Dim.of(0) if dim == Dim.of(1) else next(places) for dim in value.shape]
        return value if value.shape == shape else self.view(value, shape, index)

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
        """A monoid over axes, which disappear, or stay as 1; of float8 only where nothing is rounded."""
        if value.dtype.is_float8 and not MONOIDS[monoid].exact:
            told = f"the {monoid} of {value.dtype.value} is rounded after each step, in an order that nobody promises"
            raise UnsupportedError(f"{told}; cast it to float32 first")
        if value.dtype.is_float8:
            wide = self.reduce(monoid, self.cast(value, DType.F32), axes, keep=keep)
            return self.cast(wide, value.dtype) if wide.dtype is DType.F32 else wide
        if value.dtype.kind not in MONOIDS[monoid].accepts:
            raise UnsupportedError(f"the {monoid} of {value.dtype.value} is not in the table of monoids")
        left = tuple(dim for axis, dim in enumerate(value.shape) if axis not in axes)
        dtype = MONOIDS[monoid].result(value.dtype)
        made = self.emit(Reduce(monoid, tuple(sorted(axes))), [value], dtype, left) if axes else value
        return self.restore(made, axes) if keep and axes else made

    def scan(self, monoid: str, value: Node, axis: int) -> Node:
        """The running result of a monoid along an axis."""
        if value.dtype.is_float8:
            raise UnsupportedError(f"the running {monoid} of {value.dtype.value} is not traced; cast it to float32")
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
        """UnsupportedError where two extents differ."""
        left, right = Dim.of(left), Dim.of(right)
        known = self.number_of(left), self.number_of(right)
        match equal(left, right):
            case False:
                raise UnsupportedError(f"shapes do not fit: an extent is {left} and {right} at once")
            case None if None not in known and known[0] != known[1]:
                self.at_most(left, right)  # what it fails by
                self.at_most(right, left)
                told = f"{left} and {right} at once, here {known[0]} and {known[1]}"
                raise UnsupportedError(f"shapes do not fit: an extent is {told}")
            case None:
                self._merge(left, right)
                self.demands[Demand(left, right, "equal")] = None
            case True:
                pass

    def _merge(self, left: Dim, right: Dim) -> None:
        """Where names may be merged: begin again with one name for both, or with the number that a size must be."""
        if not self.merging:
            return
        one, other = (min(dim.names, default="") for dim in (left, right))
        bare = [name for name, dim in ((one, left), (other, right)) if name and dim == Dim.of(name)]
        if len(bare) == 2:
            raise Settled({max(bare): min(bare)})
        constant = left.constant if left.constant is not None else right.constant
        if bare and constant is not None:
            raise Settled({bare[0]: constant})

    def demand_at_most(self, left: DimLike, right: DimLike) -> None:
        """UnsupportedError where `left` is surely above `right`, or is in the call that is traced for."""
        left, right = Dim.of(left), Dim.of(right)
        room = right - left
        number = room.constant if room.constant is not None else self.number_of(room)
        if number is not None and number < 0:
            self.demands[Demand(right + 1, left, "at most")] = None  # what it fails by
            raise UnsupportedError(f"it needs {left} to be at most {right}")
        if room.constant is None and not never_negative(room):
            self.demands[Demand(left, right, "at most")] = None

    def at_most(self, left: DimLike, right: DimLike, usual: bool | None = None) -> bool:
        """Whether `left` is at most `right`. Where that depends on the sizes, it is as in the call that is traced for,
        or `usual` without one, and becomes a demand. TypeError where nothing tells."""
        left, right = Dim.of(left), Dim.of(right)
        room = right - left
        if room.constant is not None or never_negative(room) or never_negative(-room - 1):
            return never_negative(room)
        number = self.number_of(room)
        answer = usual if number is None else number >= 0
        if answer is None:
            raise TypeError(f"{left} is compared with {right}, and it has no number yet")
        self.demands[Demand(left, right, "at most") if answer else Demand(right + 1, left, "at most")] = None
        return answer

    def number_of(self, dim: Dim) -> int | None:
        """What it is in the call that is traced for, where that is known."""
        return int(dim.evaluate(self.sizes)) if dim.names <= self.sizes.keys() else None

    def settle(self, dim: Dim) -> int:
        """The number that a size is; where it only has a name, the trace begins again with numbers for its names.
        TypeError where they are not known."""
        if dim.constant is not None:
            return dim.constant
        if not dim.names <= self.sizes.keys():
            raise TypeError(f"{dim} is asked for its number, and it has none yet")
        raise Settled({name: self.sizes[name] for name in sorted(dim.names)})


def same_but_ones(source: Shape, shape: Shape) -> bool:
    """Whether two shapes differ in axes of 1 alone."""
    return [dim for dim in source if dim != Dim.of(1)] == [dim for dim in shape if dim != Dim.of(1)]


def dtype_from(dtype: Any) -> DType:
    """The DType of what NumPy takes for one. UnsupportedError where noyau has none."""
    try:
        found = from_numpy(np.dtype(dtype))
    except TypeError:
        found = None
    if found is None or found is DType.OTHER:
        raise UnsupportedError(
            f"there is no dtype for {dtype!r} here: f16, bf16, f32, f64, four float8, integers and bool are"
        )
    return found
