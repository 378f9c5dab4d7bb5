"""One ONNX node as the family files see it: its inputs, its attributes, and an emitter.

Nodes that need no input of the model: onnxruntime computes them once, when it loads the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.emitter import Contents, Emitter, ModelValues
from noyau.frontends.onnx.opaque import CONTROL_FLOW, RANDOM
from noyau.ir.graph import Constant, Node

FOLDED = "onnxruntime computes it once, when it loads the model: it reads nothing but tensors of the model"
# onnxruntime leaves these be, for its quantised operators are found by them.
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear"})


def foldable_nodes(model: onnx.ModelProto) -> frozenset[int]:
    """The positions of the nodes that read tensors of the model alone, through others such or directly; Constants are
    not among them. A tensor that an input may override is none."""
    inputs = {value.name for value in model.graph.input} if model.ir_version >= 4 else set()
    constants = {tensor.name for tensor in model.graph.initializer} - inputs
    places = set[int]()
    for place, node in enumerate(model.graph.node):
        if node.domain not in ("", "ai.onnx") or node.op_type in _KEPT | RANDOM | CONTROL_FLOW:
            continue
        if all(name in constants for name in node.input if name):
            constants.update(node.output)
            if any(node.input):
                places.add(place)
    return frozenset(places)


Importer: TypeAlias = "Callable[[OnnxSite], Node | Sequence[Node]]"


class OnnxSite(Emitter):
    """An ONNX node being imported. Whatever it lacks is refused with an UnsupportedError, which makes a boundary."""

    def __init__(
        self,
        values: ModelValues,
        op: str,
        opset: int,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Any],
        emitter: Emitter,
    ) -> None:
        super().__init__(values, emitter.stem, emitter.place, emitter.sources)
        self.first, self.steps = emitter.first, emitter.steps
        self.op, self.opset, self.inputs, self.outputs, self.attributes = op, opset, inputs, outputs, attributes

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
