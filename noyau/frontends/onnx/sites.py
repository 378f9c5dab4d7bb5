"""One ONNX node as the family files see it: its inputs, its attributes, and the nodes of the graph that it emits.

The values that a model has so far, and the names of its sizes: a model may call a dimension anything, a size is an
identifier.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from operator import add, mul, sub
from typing import Any, TypeAlias

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, DimLike, DimOp, Shape, flat_index, index_name, maximum, product, shape_of
from noyau.ir.graph import Constant, Iota, Kind, Node, Select, View, constant
from noyau.ir.ranges import simplify
from noyau.ir.sizes import Demand

_LONGEST_NAME = 40
_SIGNS: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {ast.Add: add, ast.Sub: sub, ast.Mult: mul}


class SizeNames:
    """The sizes of one model: one name for each distinct dimension name, and fresh names for what is unknown."""

    def __init__(self) -> None:
        self._by_original: dict[str, Dim] = {}
        self._taken: set[str] = set()
        self._fresh = 0

    @property
    def originals(self) -> Mapping[str, str]:
        """The model's own name of each size."""
        return {str(size): original for original, size in self._by_original.items() if str(size) in self._taken}

    def dim_of(self, original: str) -> Dim:
        """The size that the model calls so. A sum, product or quotient of known names is that polynomial."""
        if original not in self._by_original:
            self._by_original[original] = self._expression(original) or Dim.of(self._claim(_clean(original)))
        return self._by_original[original]

    def fresh(self) -> Dim:
        """A size that nothing says anything about: d0, d1..."""
        while f"d{self._fresh}" in self._taken:
            self._fresh += 1
        return Dim.of(self._claim(f"d{self._fresh}"))

    def _claim(self, stem: str) -> str:
        name, k = stem, 1
        while name in self._taken:
            k += 1
            name = f"{stem}_{k}"
        self._taken.add(name)
        return name

    def _expression(self, original: str) -> Dim | None:
        """`past + 1` where `past` is known; None for a plain name or anything else."""
        if len(original) > 200 or not re.fullmatch(r"[A-Za-z0-9_ +*/()-]+", original):
            return None
        try:
            tree = ast.parse(original, mode="eval").body
            polynomial = None if isinstance(tree, ast.Name) else self._polynomial(tree)
        except (SyntaxError, UnsupportedError, RecursionError):
            return None
        return polynomial if polynomial is not None and polynomial.names else None

    def _polynomial(self, tree: ast.expr) -> Dim:
        match tree:
            case ast.Constant(int(value)):
                return Dim.of(value)
            case ast.Name(name) if name in self._by_original:
                return self._by_original[name]
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as sign, right):
                return _SIGNS[type(sign)](self._polynomial(left), self._polynomial(right))
            case ast.BinOp(left, ast.FloorDiv(), ast.Constant(int(value))) if value > 0:
                return self._polynomial(left) // value
            case _:
                raise UnsupportedError("this is no polynomial of known sizes")


def _clean(original: str) -> str:
    """Letters, digits and _ of a name; never empty, never starting with a digit."""
    cleaned = re.sub(r"[^A-Za-z0-9]+", "_", original)[:_LONGEST_NAME].strip("_")
    if not cleaned:
        return "size"
    return cleaned if cleaned[0].isalpha() else f"n{cleaned}"


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
    atoms = [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, DimOp) and atom.kind == "max"]
    caps = (op.left if op.right == whole else op.right for op in atoms)
    return any((cap.constant or 0) > 1 and dim == whole + cap - maximum(cap, whole) for cap in caps)


Importer: TypeAlias = "Callable[[OnnxSite], Node | Sequence[Node]]"


class OnnxSite(GraphBuilder):
    """An ONNX node being imported. Whatever it lacks is refused with an UnsupportedError, which makes a boundary. No
    two of the nodes that it emits are one; each is named `{stem}~{k}`."""

    op: str
    opset: int
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]

    def __init__(self, values: ModelValues, stem: str, place: int, sources: tuple[str, ...]) -> None:
        super().__init__()
        self.values, self.stem, self.place, self.sources = values, stem, place, sources
        self.nodes, self.by_name = values.nodes, values.by_name
        self.demands = values.demands.setdefault(place, {})
        self.first, self.steps = len(values.nodes), [0]

    def at(
        self, op: str, opset: int, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any]
    ) -> OnnxSite:
        """The node itself, or one of its function's body, with what is to be known of it."""
        site = copy(self)
        site.op, site.opset, site.inputs, site.outputs, site.attributes = op, opset, inputs, outputs, attributes
        return site

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

    def has(self, position: int) -> bool:
        """Whether an optional input is given."""
        return position < len(self.inputs) and bool(self.inputs[position])

    def input(self, position: int = 0) -> Node:
        """An input of a dtype and a rank that noyau knows."""
        name = self._name(position)
        if name not in self.values.by_name and name not in self.values.contents:
            raise UnsupportedError(f"{name} is not known")
        node = self.values.node(name)
        if node.dtype is DType.OTHER:
            raise UnsupportedError(f"the type or the rank of {name} is unknown")
        return node

    def all_inputs(self) -> list[Node]:
        return [self.input(k) for k in range(len(self.inputs))]

    def rank(self, position: int = 0) -> int:
        return len(self.input(position).shape)

    def contents(self, position: int) -> Contents | None:
        """The cells of an integer input, as far as they are known."""
        return self.values.contents.get(self.inputs[position]) if self.has(position) else None

    def vector(self, position: int, what: str) -> Contents:
        """The cells of an integer input, as Dims; refused where they are only known when the model runs."""
        contents = self.contents(position)
        if contents is None:
            raise UnsupportedError(f"{what} of {self.op} are only known when the model runs")
        if len(contents.shape) > 1:
            raise UnsupportedError(f"{what} of {self.op} are no vector")
        return contents

    def integers(self, position: int, what: str) -> tuple[int, ...]:
        """The cells of an integer input; refused where they are not constant."""
        numbers = self.vector(position, what).integers
        if numbers is None:
            raise UnsupportedError(f"{what} of {self.op} are not constant")
        return numbers

    def array(self, position: int, what: str) -> np.ndarray:
        """The cells of a small constant input."""
        if self._name(position) in self.values.few:
            return self.values.few[self._name(position)]
        kind = self.input(position).kind
        if not isinstance(kind, Constant):
            raise UnsupportedError(f"{what} of {self.op} is not constant")
        return kind.value

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute, of the type of its default (None: of any)."""
        value = self.attributes.get(name, default)
        if default is not None and value is not default:
            kinds = (int, float) if isinstance(default, float) else type(default)
            if not isinstance(value, kinds):
                raise UnsupportedError(f"the attribute {name} of {self.op} is no {type(default).__name__}")
        return value

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= value < rank:
            raise UnsupportedError(f"the axis {value} of {self.op} is outside a rank of {rank}")
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, in order."""
        ordered = sorted({self.axis(value, rank) for value in values})
        if len(ordered) != len(values):
            raise UnsupportedError(f"{self.op} names an axis twice")
        return tuple(ordered)

    def _name(self, position: int) -> str:
        if not self.has(position):
            raise UnsupportedError(f"{self.op} lacks its input {position}")
        return self.inputs[position]
