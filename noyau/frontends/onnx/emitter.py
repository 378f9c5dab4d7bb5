"""Emitting graph nodes: NumPy's broadcasting, keepdims and reshapes become explicit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noyau.dtypes import DType
from noyau.errors import GraphError, UnsupportedError
from noyau.frontends.onnx.size_names import Sizes
from noyau.ir.dims import (
    Dim,
    DimLike,
    Op,
    Shape,
    flat_index,
    index_name,
    indices,
    maximum,
    never_negative,
    product,
    shape_of,
)
from noyau.ir.graph import Iota, Kind, Map, Node, Reduce, Scan, Select, View, constant, expand_index
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import dtype_of
from noyau.ir.ranges import simplify


@dataclass(frozen=True, slots=True)
class Contents:
    """An integer or bool tensor whose cells are known as Dims; `dims` in C order."""

    dims: tuple[Dim, ...]
    shape: tuple[int, ...]
    dtype: DType

    @property
    def integers(self) -> tuple[int, ...] | None:
        """The cells, or None where one is not a plain integer."""
        found = tuple(dim.constant for dim in self.dims)
        return None if None in found else tuple(value for value in found if value is not None)

    @property
    def cells(self) -> np.ndarray:
        """The Dims as an array of objects."""
        array = np.empty(len(self.dims), object)
        for k, dim in enumerate(self.dims):
            array[k] = dim
        return array.reshape(self.shape)

    @property
    def extents(self) -> Shape:
        return shape_of(self.shape)

    @property
    def step(self) -> Dim | None:
        """The difference of neighbours in a vector of three or more cells, where it is always the same."""
        steps = {right - left for left, right in zip(self.dims, self.dims[1:], strict=False)}
        return steps.pop() if len(self.shape) == 1 and len(self.dims) > 2 and len(steps) == 1 else None


_HEAVIEST, _MOST_FACTORS = 400, 8


def weight(dim: Dim) -> int:
    """How long a formula is, in names and operations; counting stops where it is too long for use."""
    total, waiting = 0, [dim]
    while waiting and total <= _HEAVIEST:
        for monomial, _ in waiting.pop().terms:
            total += 1 + len(monomial)
            waiting.extend(part for atom in monomial if isinstance(atom, Op) for part in (atom.left, atom.right))
    return total


def light(dims: Iterable[Dim]) -> bool:
    """Whether formulas are short enough to be of use: hostile models can double them with each node, and to reason
    about a product takes time exponential in its factors."""
    return all(weight(dim) <= _HEAVIEST and all(len(m) <= _MOST_FACTORS for m, _ in dim.terms) for dim in dims)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a node needs of two extents when it runs, where it is not certain. `place` is its position in the model.

    `relation`: "equal"; "broadcast", equal or one of them 1 and the other not 0; "at most", the left one not above the
    right one."""

    place: int
    left: Dim
    right: Dim
    relation: str


class Values:
    """The values made so far: graph nodes, and the contents of shape arithmetic, which become nodes when asked for."""

    def __init__(self, taken: set[str]) -> None:
        self.nodes: list[Node] = []
        self.by_name: dict[str, Node] = {}
        self.contents: dict[str, Contents] = {}
        self.origins: dict[str, tuple[int, tuple[str, ...]]] = {}  # of contents: position and sources
        self.few: dict[str, np.ndarray] = {}  # what small tensors of floats hold, which are inputs all the same
        self.places: dict[str, int] = {}
        self.demands: list[Demand] = []
        self.sizes = Sizes()
        self._taken, self._counts = taken, dict[str, int]()

    def add(self, node: Node) -> Node:
        self.nodes.append(node)
        self.by_name[node.output] = node
        return node

    def forget(self, first: int) -> None:
        """Drop the nodes from a position on."""
        for node in self.nodes[first:]:
            del self.by_name[node.output]
            self.places.pop(node.output, None)
        del self.nodes[first:]

    def inner_name(self, stem: str) -> str:
        """A name that no value of the model has: `{stem}~{k}`."""
        while True:
            self._counts[stem] = self._counts.get(stem, -1) + 1
            name = f"{stem}~{self._counts[stem]}"
            if name not in self._taken:
                return name

    def node(self, name: str) -> Node:
        """The node of a value; known contents become one now."""
        if name not in self.by_name:
            place, sources = self.origins.get(name, (-1, ()))
            self._spell_contents(name, self.contents[name], sources)
            if place >= 0:
                self.places[name] = place
        return self.by_name[name]

    def _spell_contents(self, name: str, contents: Contents, sources: tuple[str, ...]) -> None:
        dims, shape, dtype, step = contents.dims, contents.extents, contents.dtype, contents.step
        if step is not None and step != Dim.of(0):
            self.add(Node(name, Iota(dims[0] + Dim.of(index_name(0)) * step), (), dtype, shape, sources))
        elif contents.integers is not None:
            self.add(constant(name, np.array(contents.integers, dtype.numpy).reshape(contents.shape), sources))
        elif len(dims) == 1:
            self.add(Node(name, Iota(dims[0]), (), dtype, shape, sources))
        else:
            self._spell_cells(name, contents, sources)

    def _spell_cells(self, name: str, contents: Contents, sources: tuple[str, ...]) -> None:
        """Each cell as a value of its own, side by side."""
        dims, dtype, flat = contents.dims, contents.dtype, shape_of([len(contents.dims)])
        pieces = [Node(self.inner_name(name), Iota(dim), (), dtype, shape_of([1]), sources) for dim in dims]
        whole = name if len(contents.shape) == 1 else self.inner_name(name)
        row = Node(whole, Select(0, shape_of(range(len(dims)))), tuple(p.output for p in pieces), dtype, flat, sources)
        made = [*pieces, row]
        if whole != name:
            index = flat_index(flat, contents.extents)
            made.append(Node(name, View(index), (whole,), dtype, contents.extents, sources))
        for node in made:
            self.add(node)
            self.places[node.output] = self.origins[name][0]


def broadcast_dim(left: Dim, right: Dim) -> tuple[Dim, bool]:
    """The extent of two broadcast extents, and whether that they fit is certain."""
    one = Dim.of(1)
    if left == right or right == one:
        return left, True
    if left == one:
        return right, True
    if left.constant is not None and right.constant is not None:
        raise UnsupportedError(f"the extents {left} and {right} cannot be broadcast")
    if left.constant is not None or right.constant is not None:
        return (left if left.constant is not None else right), False
    for lesser, greater in ((left, right), (right, left)):
        if is_capped(lesser, greater):
            return greater, False
    return maximum(left, right), False


def is_capped(dim: Dim, whole: Dim) -> bool:
    """Whether `dim` is min(whole, c) for a constant c above 1, so that it is 1 only where `whole` is.

    A table of 512 rows cut to the length of a sequence has such an extent."""
    caps = (op.left if op.right == whole else op.right for op in _maxima(dim))
    return any((cap.constant or 0) > 1 and dim == whole + cap - maximum(cap, whole) for cap in caps)


def _maxima(dim: Dim) -> list[Op]:
    return [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, Op) and atom.kind == "max"]


class Emitter:
    """Makes nodes for one ONNX node; each result is named `{stem}~{k}`."""

    def __init__(self, values: Values, stem: str, place: int, sources: tuple[str, ...]) -> None:
        self.values, self.stem, self.place, self.sources = values, stem, place, sources
        self.first, self.steps = len(values.nodes), [0]

    def emit(self, kind: Kind, inputs: Sequence[Node], dtype: DType, shape: Shape) -> Node:
        if not light(shape):
            raise UnsupportedError("the formula of its shape is too long")
        name = self.values.inner_name(self.stem)
        self.values.places[name] = self.place
        return self.values.add(Node(name, kind, tuple(node.output for node in inputs), dtype, shape, self.sources))

    def apply(self, function: str, *operands: Node) -> Node:
        """A scalar function of operands that are broadcast together."""
        shape = self.broadcast([operand.shape for operand in operands])
        try:
            dtype = dtype_of(function, tuple(operand.dtype for operand in operands))
        except GraphError as fault:
            raise UnsupportedError(str(fault)) from fault
        return self.emit(Map(function), [self.expand(operand, shape) for operand in operands], dtype, shape)

    def broadcast(self, shapes: Sequence[Shape]) -> Shape:
        """The shape of values that are broadcast together."""
        rank, result = max(map(len, shapes)), list[Dim]()
        for axis in range(rank):
            extent = Dim.of(1)
            for shape in shapes:
                if axis >= rank - len(shape):
                    extent = self._broadcast_dim(extent, shape[axis - rank + len(shape)])
            result.append(extent)
        return tuple(result)

    def _broadcast_dim(self, left: Dim, right: Dim) -> Dim:
        extent, certain = broadcast_dim(left, right)
        if not certain:
            capped = is_capped(left, right) or is_capped(right, left)
            self.values.demands.append(Demand(self.place, left, right, "equal" if capped else "broadcast"))
        return extent

    def demand_equal(self, left: Dim, right: Dim) -> None:
        """Note that two extents must be equal when the model runs; UnsupportedError where they never are."""
        if left == right:
            return
        if left.constant is not None and right.constant is not None:
            raise UnsupportedError(f"the extents {left} and {right} differ")
        self.values.demands.append(Demand(self.place, left, right, "equal"))

    def demand_at_most(self, left: Dim, right: Dim) -> None:
        """Note that an extent must not be above another; UnsupportedError where it is."""
        if never_negative(right - left):
            return
        if never_negative(left - right - 1):
            raise UnsupportedError(f"the extent {left} is above {right}")
        self.values.demands.append(Demand(self.place, left, right, "at most"))

    def cast(self, value: Node, dtype: DType) -> Node:
        if value.dtype is dtype:
            return value
        return self.emit(Map("cast"), [value], dtype, value.shape)

    def constant(self, value: np.ndarray) -> Node:
        name = self.values.inner_name(self.stem)
        self.values.places[name] = self.place
        return self.values.add(constant(name, value, self.sources))

    def scalar(self, value: float, dtype: DType) -> Node:
        """A constant of rank 0."""
        return self.constant(np.asarray(value).astype(dtype.numpy))

    def like(self, value: float, other: Node) -> Node:
        """A constant of rank 0 and of the dtype of another value."""
        return self.scalar(value, other.dtype)

    def iota(self, index: DimLike, shape: Shape = (), dtype: DType = DType.I64) -> Node:
        """An index or a size as a value."""
        return self.emit(Iota(Dim.of(index)), [], dtype, shape)

    def view(self, value: Node, shape: Shape, index: Sequence[DimLike]) -> Node:
        """out[i] = value[index(i)], or the value itself where that changes nothing."""
        extents = {f"#{axis}": dim for axis, dim in enumerate(shape)}
        simple = tuple(simplify(Dim.of(dim), extents) for dim in index)
        return self.emit(View(simple), [value], value.dtype, shape)

    def expand(self, value: Node, shape: Shape) -> Node:
        """The value broadcast to a shape that it is known to broadcast to."""
        if value.shape == shape:
            return value
        own = shape[len(shape) - len(value.shape) :]
        alike = tuple(goal if is_capped(dim, goal) else dim for dim, goal in zip(value.shape, own, strict=True))
        return self.view(value, shape, expand_index(alike, shape))

    def transpose(self, value: Node, order: Sequence[int]) -> Node:
        index = [Dim.of(f"#{order.index(axis)}") for axis in range(len(order))]
        return self.view(value, tuple(value.shape[axis] for axis in order), index)

    def reshape(self, value: Node, shape: Shape) -> Node:
        """The same cells in C order, in another shape of as many cells."""
        if not light([product(value.shape), product(shape)]):
            raise UnsupportedError("the formula of its number of cells is too long")
        self.demand_equal(product(value.shape), product(shape))
        return self.view(value, shape, flat_index(value.shape, shape))

    def reduce(self, monoid: str, value: Node, axes: Sequence[int], *, keep: bool = False) -> Node:
        """A monoid over axes, which disappear, or stay as 1."""
        axes = sorted(axes)
        if value.dtype.kind not in MONOIDS[monoid].accepts:
            raise UnsupportedError(f"the {monoid} of {value.dtype.value} is not defined")
        left = tuple(dim for axis, dim in enumerate(value.shape) if axis not in axes)
        dtype = MONOIDS[monoid].result(value.dtype)
        result = self.emit(Reduce(monoid, tuple(axes)), [value], dtype, left) if axes else value
        return self.restore_axes(result, axes) if keep and axes else result

    def restore_axes(self, value: Node, axes: Sequence[int]) -> Node:
        """The value with axes of extent 1 put in at positions of the result."""
        rank = len(value.shape) + len(axes)
        kept = [axis for axis in range(rank) if axis not in axes]
        shape = tuple(Dim.of(1) if axis in axes else value.shape[kept.index(axis)] for axis in range(rank))
        return self.view(value, shape, [f"#{axis}" for axis in kept])

    def drop_axes(self, value: Node, axes: Sequence[int]) -> Node:
        """The value without axes of extent 1."""
        kept = [axis for axis in range(len(value.shape)) if axis not in axes]
        index = [Dim.of(0) if axis in axes else Dim.of(f"#{kept.index(axis)}") for axis in range(len(value.shape))]
        return self.view(value, tuple(value.shape[axis] for axis in kept), index)

    def scan(self, value: Node, scan: Scan) -> Node:
        return self.emit(scan, [value], MONOIDS[scan.monoid].result(value.dtype), value.shape)

    def concat(self, pieces: Sequence[Node], axis: int) -> Node:
        """Pieces side by side along an axis."""
        starts, end = [], Dim.of(0)
        for piece in pieces:
            starts.append(end)
            end = end + piece.shape[axis]
        shape = (*pieces[0].shape[:axis], end, *pieces[0].shape[axis + 1 :])
        return self.emit(Select(axis, tuple(starts)), pieces, pieces[0].dtype, shape)

    def slice(self, value: Node, axis: int, start: DimLike, length: DimLike, step: int = 1) -> Node:
        """`length` cells along an axis from `start`."""
        shape = (*value.shape[:axis], Dim.of(length), *value.shape[axis + 1 :])
        index = list(indices(len(shape)))
        index[axis] = index[axis] * step + start
        return self.view(value, shape, index)

    def pick(self, value: Node, axis: int, at: DimLike) -> Node:
        """One cell along an axis, which disappears."""
        shape = (*value.shape[:axis], *value.shape[axis + 1 :])
        index = [*indices(len(shape))[:axis], Dim.of(at), *indices(len(shape))[axis:]]
        return self.view(value, shape, index)


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """A node whose output and inputs are renamed."""
    inputs = tuple(names.get(name, name) for name in node.inputs)
    return replace(node, output=names.get(node.output, node.output), inputs=inputs)
