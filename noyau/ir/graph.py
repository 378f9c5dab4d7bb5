"""The graph IR: a flat tuple of named values in order, one node a value; pure, and nothing is implicit.

No promotion, no broadcast, no guess: operands of a Map have one shape, and dtypes are made equal by casts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from noyau.dtypes import DType, of_array
from noyau.ir.dims import Dim, DimLike, Shape, indices, maximum, shape_of
from noyau.ir.sizes import Demand, bind, require


@dataclass(frozen=True, slots=True)
class Input:
    """A value given from outside."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value known now; compared by its bits."""

    value: np.ndarray

    def _key(self) -> tuple[str, tuple[int, ...], bytes]:
        return str(self.value.dtype), self.value.shape, self.value.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Iota:
    """An index, or a size, as a value: `index` over the names `#0`, `#1`... of the axes."""

    index: Dim


@dataclass(frozen=True, slots=True)
class Map:
    """A scalar function of the operator table, cell by cell. A cast goes to the node's dtype."""

    function: str


@dataclass(frozen=True, slots=True)
class Reduce:
    """A monoid over axes, which disappear."""

    monoid: str
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """The running result of a monoid along an axis."""

    monoid: str
    axis: int
    exclusive: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """out[i] = input[index(i)]: transpose, reshape, slice, expand, flip."""

    index: Shape


@dataclass(frozen=True, slots=True)
class Select:
    """Pieces side by side along an axis: input k lies from starts[k] to starts[k + 1], the last to the end."""

    axis: int
    starts: Shape


@dataclass(frozen=True, slots=True)
class Lookup:
    """An index that is itself a value: indices[at(i)], where `indices` is an input of the Gather."""

    input: int
    at: Shape


@dataclass(frozen=True, slots=True)
class Gather:
    """out[i] = input0[index(i)], where some of the indices are looked up. A negative or too large one is an error."""

    index: tuple[Dim | Lookup, ...]


@dataclass(frozen=True, slots=True)
class Scatter:
    """A copy of input0 in which input2 is merged at the places that input1 names, along an axis; the inverse of
    Gather. `monoid` None: the last one written wins."""

    index: tuple[Dim | Lookup, ...]
    monoid: str | None


@dataclass(frozen=True, slots=True)
class Contract:
    """An einsum of two operands; a library call."""

    equation: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """A boundary: an operation that noyau does not look into. `evaluate` maps input arrays to output arrays."""

    name: str
    evaluate: Callable[..., tuple[np.ndarray, ...]] | None = field(compare=False, default=None)
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One result of an Opaque with several, its only input."""

    position: int


Kind: TypeAlias = (
    Input | Constant | Iota | Map | Reduce | Scan | View | Select | Gather | Scatter | Contract | Opaque | Part
)


@dataclass(frozen=True, slots=True)
class Node:
    """One value: its operation, its operands, its dtype and shape, and the names of its sources."""

    output: str
    kind: Kind
    inputs: tuple[str, ...]
    dtype: DType
    shape: Shape
    sources: tuple[str, ...] = ()

    @property
    def extents(self) -> Mapping[str, Dim]:
        """The extent of each index of this value, by the index's name."""
        return {f"#{axis}": dim for axis, dim in enumerate(self.shape)}

    def rename(self, names: Mapping[str, str]) -> Node:
        """The node with its output and inputs renamed."""
        output, *inputs = (names.get(name, name) for name in (self.output, *self.inputs))
        return replace(self, output=output, inputs=tuple(inputs))


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which each comes after its inputs; outputs are names of values. `demands` are relations of
    sizes beyond those of the inputs' shapes. `byproducts`: shapes of values that are written, and no output needs."""

    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    demands: tuple[Demand, ...] = ()
    byproducts: tuple[Shape, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        return {node.output: node for node in self.nodes}

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if isinstance(node.kind, Input))

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of values and byproducts, each once."""
        return tuple(dict.fromkeys([*(node.shape for node in self.nodes), *self.byproducts]))

    def __getitem__(self, name: str) -> Node:
        return self.by_name[name]

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The sizes at which the inputs have these shapes. InputError where these do not fit, or break a demand."""
        sizes = bind([node.shape for node in self.inputs], shapes, [node.output for node in self.inputs])
        require(self.demands, sizes)
        return sizes


def constant(output: str, value: np.ndarray, sources: Iterable[str] = ()) -> Node:
    """The node of a known array; its dtype must be one of noyau's."""
    return Node(output, Constant(value), (), of_array(value), shape_of(value.shape), tuple(sources))


def is_never_0(node: Node, *, sizes: bool = False) -> bool:
    """Whether a value surely has no 0: a constant without one, or a named size if `sizes` says that sizes are not 0."""
    if isinstance(node.kind, Iota):
        return sizes and not node.shape and node.kind.index == Dim.of(str(node.kind.index))
    return isinstance(node.kind, Constant) and bool(node.kind.value.all())


def expand_index(shape: Shape, target: Shape) -> Shape:
    """The index map of NumPy's broadcasting: axes are aligned at the end; an extent of 1 is read at 0.

    An extent that is only known at run time multiplies the index by 0 or 1: min(extent - 1, 1)."""
    first = len(target) - len(shape)

    def place(dim: Dim, goal: Dim, at: Dim) -> Dim:
        return at if dim == goal else Dim.of(0) if dim == Dim.of(1) else at * step_of(dim)

    return tuple(map(place, shape, target[first:], indices(len(target))[first:]))


def step_of(dim: DimLike) -> Dim:
    """0 for an extent of at most 1, and 1 for a larger one; an extent at run time has cells, so it is not 0."""
    extent = Dim.of(dim)
    return 1 - maximum(2 - extent, 0) if extent.constant is None else Dim.of(int(extent.constant > 1))


def dims_of(node: Node) -> Iterator[Dim]:
    """Every Dim of a node: its extents, and those of its index map."""
    yield from node.shape
    match node.kind:
        case Iota(index):
            yield index
        case View(entries) | Select(_, entries):
            yield from entries
        case Gather(index) | Scatter(index, _):
            for entry in index:
                yield from entry.at if isinstance(entry, Lookup) else (entry,)
        case _:
            pass


def downstream(graph: Graph, start: Collection[str]) -> set[str]:
    """The values that depend on those in `start`, and these themselves."""
    reachable = set(start)
    for node in graph.nodes:
        if not reachable.isdisjoint(node.inputs):
            reachable.add(node.output)
    return reachable


def names_of(graph: Graph) -> frozenset[str]:
    """Every size that a shape in the graph names."""
    return frozenset(name for node in graph.nodes for dim in node.shape for name in dim.names)
