"""The site of one ONNX node for its importer: its inputs, its attributes, and the graph nodes that it emits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.model_values import Contents, ModelValues
from noyau.frontends.onnx.sizes import broadcast_dim, is_capped, light
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, DimLike, Shape, flat_index, product
from noyau.ir.graph import Constant, Kind, Node
from noyau.ir.ranges import simplify
from noyau.ir.sizes import Demand

Importer: TypeAlias = "Callable[[OnnxSite], Node | Sequence[Node]]"


class OnnxSite(GraphBuilder):
    """An ONNX node being imported. A missing input, attribute or constant raises UnsupportedError, which makes the node
    a boundary. Emitted nodes are never shared; each is named `{stem}~{k}`."""

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

    def at(self, op: str, opset: int, inputs: list[str], outputs: list[str], attributes: dict[str, Any]) -> OnnxSite:
        """The site of the node itself, or of a node of its function's body, with the same emitted nodes."""
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
        """The broadcast extent of several; where one may be 1 at run time, a demand says that they fit."""
        extent = dims[0]
        for dim in dims[1:]:
            left, (extent, certain) = extent, broadcast_dim(extent, dim)
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
        """The same cells in C order under another shape, as a new value."""
        if not light([product(value.shape), product(shape)]):
            raise UnsupportedError("the formula of its number of cells is too long")
        self.demand_equal(product(value.shape), product(shape))
        return self.view(value, shape, flat_index(value.shape, shape))

    def has(self, position: int) -> bool:
        """Whether an optional input is present."""
        return position < len(self.inputs) and bool(self.inputs[position])

    def input(self, position: int = 0) -> Node:
        """An input. UnsupportedError where its dtype or its rank is unknown."""
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
        """The cells of an integer input, as Dims. UnsupportedError where they are only known at run time."""
        if (contents := self.contents(position)) is None:
            raise UnsupportedError(f"{what} of {self.op} are only known when the model runs")
        if len(contents.shape) > 1:
            raise UnsupportedError(f"{what} of {self.op} are no vector")
        return contents

    def integers(self, position: int, what: str) -> tuple[int, ...]:
        """The cells of an integer input. UnsupportedError where they are not constant."""
        if (numbers := self.vector(position, what).integers) is None:
            raise UnsupportedError(f"{what} of {self.op} are not constant")
        return numbers

    def array(self, position: int, what: str) -> np.ndarray:
        """The cells of a small constant input."""
        if self._name(position) in self.values.few:
            return self.values.few[self._name(position)]
        if not isinstance(kind := self.input(position).kind, Constant):
            raise UnsupportedError(f"{what} of {self.op} is not constant")
        return kind.value

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute, of the type of its default (None: of any)."""
        value = self.attributes.get(name, default)
        kinds = (int, float) if isinstance(default, float) else type(default)
        if default is not None and value is not default and not isinstance(value, kinds):
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
