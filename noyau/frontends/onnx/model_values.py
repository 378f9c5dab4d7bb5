"""The values of a model during its import: graph nodes, and contents of shape arithmetic as Dims."""

from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType
from noyau.frontends.onnx.sizes import SizeNames
from noyau.ir.dims import Dim, Shape, flat_index, index_name, shape_of
from noyau.ir.graph import Iota, Node, Select, View, constant
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
        array[:] = self.dims
        return array.reshape(self.shape)

    @property
    def extents(self) -> Shape:
        return shape_of(self.shape)

    @property
    def step(self) -> Dim | None:
        """The difference of neighbours in a vector of three or more cells, if it is constant; else None."""
        steps = {right - left for left, right in zip(self.dims, self.dims[1:], strict=False)}
        return steps.pop() if len(self.shape) == 1 and len(self.dims) > 2 and len(steps) == 1 else None


class ModelValues:
    """The values imported so far: graph nodes, and contents of shape arithmetic, which become nodes on demand."""

    def __init__(self, names: set[str]) -> None:
        self.nodes: list[Node] = []
        self.by_name: dict[str, Node] = {}
        self.contents: dict[str, Contents] = {}
        self.origins: dict[str, tuple[int, tuple[str, ...]]] = {}  # of contents: position and sources
        self.few: dict[str, np.ndarray] = {}  # the cells of small tensors of floats, which are inputs nevertheless
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
        """The node of a value; known contents become a node now."""
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
        """Emit each cell as a value of its own, and their concatenation."""
        dims, dtype, flat = contents.dims, contents.dtype, shape_of([len(contents.dims)])
        pieces = [Node(self.inner_name(name), Iota(dim), (), dtype, shape_of([1]), sources) for dim in dims]
        whole = name if len(contents.shape) == 1 else self.inner_name(name)
        row = Node(whole, Select(0, shape_of(range(len(dims)))), tuple(p.output for p in pieces), dtype, flat, sources)
        index = flat_index(flat, contents.extents)
        view = [Node(name, View(index), (whole,), dtype, contents.extents, sources)] if whole != name else []
        for node in (*pieces, row, *view):
            self.add(node)
            self.places[node.output] = self.origins[name][0]
