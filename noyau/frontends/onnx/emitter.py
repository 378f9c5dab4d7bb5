"""Emitting graph nodes: NumPy's broadcasting, keepdims and reshapes become explicit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.size_names import SizeNames
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, DimLike, DimOp, Shape, flat_index, index_name, maximum, product, shape_of
from noyau.ir.graph import Iota, Kind, Node, Select, View, constant
from noyau.ir.ranges import simplify
from noyau.ir.sizes import Demand


@dataclass(frozen=True, slots=True)
class Contents:
    """An integer or bool tensor whose cells are known as Dims; `dims` in C order."""

    dims: tuple[Dim, ...]
    shape: tuple[int, ...]
    dtype: DType

    @property
    def integers(self) -> tuple[int, ...] | None:
        """The cells, or None where one is not a plain integer."""
        numbers = tuple(dim.constant for dim in self.dims)
        return None if None in numbers else tuple(value for value in numbers if value is not None)

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
    """The length of a formula, in names and operations; counting stops where it is too long for use."""
    total, waiting = 0, [dim]
    while waiting and total <= _HEAVIEST:
        for monomial, _ in waiting.pop().terms:
            total += 1 + len(monomial)
            waiting.extend(part for atom in monomial if isinstance(atom, DimOp) for part in (atom.left, atom.right))
    return total


def light(dims: Iterable[Dim]) -> bool:
    """Whether formulas are short enough to be of use: hostile models can double them with each node, and to reason
    about a product takes time exponential in its factors."""
    return all(weight(dim) <= _HEAVIEST and all(len(m) <= _MOST_FACTORS for m, _ in dim.terms) for dim in dims)


class ModelValues:
    """The values made so far: graph nodes, and the contents of shape arithmetic, which become nodes when asked for."""

    def __init__(self, names: set[str]) -> None:
        self.nodes: list[Node] = []
        self.by_name: dict[str, Node] = {}
        self.contents: dict[str, Contents] = {}
        self.origins: dict[str, tuple[int, tuple[str, ...]]] = {}  # of contents: position and sources
        self.few: dict[str, np.ndarray] = {}  # what small tensors of floats hold, which are inputs all the same
        self.places: dict[str, int] = {}
        self.demands: dict[int, dict[Demand, None]] = {}  # by position
        self.sizes = SizeNames()
        self._taken, self._counts = names, dict[str, int]()

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
        nodes = [*pieces, row]
        if whole != name:
            index = flat_index(flat, contents.extents)
            nodes.append(Node(name, View(index), (whole,), dtype, contents.extents, sources))
        for node in nodes:
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


def _maxima(dim: Dim) -> list[DimOp]:
    return [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, DimOp) and atom.kind == "max"]


class Emitter(GraphBuilder):
    """Emits the nodes of one ONNX node, no two as one; each result is named `{stem}~{k}`."""

    def __init__(self, values: ModelValues, stem: str, place: int, sources: tuple[str, ...]) -> None:
        super().__init__()
        self.values, self.stem, self.place, self.sources = values, stem, place, sources
        self.nodes, self.by_name = values.nodes, values.by_name
        self.demands = values.demands.setdefault(place, {})
        self.first, self.steps = len(values.nodes), [0]

    def emit(self, kind: Kind, operands: Sequence[Node], dtype: DType, shape: Shape) -> Node:
        if not light(shape):
            raise UnsupportedError("the formula of its shape is too long")
        name = self.values.inner_name(self.stem)
        self.values.places[name] = self.place
        return self.add(Node(name, kind, tuple(node.output for node in operands), dtype, shape, self.sources))

    def broadcast_dims(self, dims: Sequence[Dim]) -> Dim:
        """The extent that ONNX gives several; where one may be 1 when the model runs, that they fit is demanded."""
        extent = dims[0]
        for dim in dims[1:]:
            left = extent
            extent, certain = broadcast_dim(left, dim)
            if not certain:
                capped = is_capped(left, dim) or is_capped(dim, left)
                self.demands[Demand(left, dim, "equal" if capped else "broadcast")] = None
        return extent

    def fits(self, dim: Dim, goal: Dim) -> bool:
        return is_capped(dim, goal)

    def view(self, value: Node, shape: Shape, index: Iterable[DimLike]) -> Node:
        """out[i] = value[index(i)]"""
        extents = {f"#{axis}": dim for axis, dim in enumerate(shape)}
        return super().view(value, shape, [simplify(Dim.of(dim), extents) for dim in index])

    def reshape(self, value: Node, shape: Shape) -> Node:
        """The same cells in C order, as a value of its own."""
        if not light([product(value.shape), product(shape)]):
            raise UnsupportedError("the formula of its number of cells is too long")
        self.demand_equal(product(value.shape), product(shape))
        return self.view(value, shape, flat_index(value.shape, shape))


def rename(node: Node, names: Mapping[str, str]) -> Node:
    """A node whose output and inputs are renamed."""
    inputs = tuple(names.get(name, name) for name in node.inputs)
    return replace(node, output=names.get(node.output, node.output), inputs=inputs)
