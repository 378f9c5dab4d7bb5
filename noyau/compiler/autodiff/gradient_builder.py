"""The builder of a gradient's graph: values that are one number everywhere are folded at once.

The derivatives of scalar functions are the rules of `ir/operators.py`, emitted as nodes."""

from collections.abc import Iterable, Sequence

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, DimLike, Shape, indices, shape_of
from noyau.ir.graph import Constant, Graph, Kind, Node, View
from noyau.ir.operators import OPERATORS, Fact, Formula, dtype_of, has


class GradientBuilder(GraphBuilder):
    """A builder that continues the nodes of a graph. `stem` is the name under which the next values are numbered.

    Nothing is broadcast: the operands of a function have one shape, as formulas over an `Algebra` produce them."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.nodes)
        self.taken, self.counts = set(self.by_name), dict[str, int]()
        self.stem = "value"

    def fresh_name(self, kind: Kind) -> str:
        return self.unused_name("number~" if isinstance(kind, Constant) else self.stem)  # ~ keeps it in a kernel's text

    def unused_name(self, stem: str) -> str:
        """Reserve a name that no value has."""
        while True:
            count = self.counts[stem] = self.counts.get(stem, 0) + 1
            name = stem if count == 1 else f"{stem}_{count}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    def like(self, value: float, other: Node) -> Node:
        """A number of the dtype and the shape of another value."""
        return self.full(value, other.dtype, other.shape)

    def cast(self, value: Node, dtype: DType) -> Node:
        number = None if value.dtype is dtype else self.number_of(value)
        return super().cast(value, dtype) if number is None else self.full(number, dtype, value.shape)

    def call(self, function: str, *operands: Node) -> Node:
        """A scalar function of values of one shape."""
        numbers = [self.number_of(operand) for operand in operands]
        if function == "where" and numbers[0] is not None:
            return operands[1] if numbers[0] else operands[2]
        if None in numbers:
            return super().call(function, *operands)
        dtype = dtype_of(function, tuple(operand.dtype for operand in operands))
        with np.errstate(all="ignore"):
            pairs = zip(numbers, operands, strict=True)
            cells = [np.asarray(number).astype(operand.dtype.compute.numpy) for number, operand in pairs]
            result = float(np.asarray(OPERATORS[function].evaluate(*cells)))
        return self.full(result, dtype, operands[0].shape)

    def number_of(self, node: Node) -> float | None:
        """The number that fills a value, or None."""
        while isinstance(node.kind, View):
            node = self.by_name[node.inputs[0]]
        if not isinstance(node.kind, Constant) or node.kind.value.size != 1:
            return None
        return float(node.kind.value.reshape(()))

    def view(self, value: Node, shape: Shape, index: Iterable[DimLike]) -> Node:
        index = shape_of(index)
        return value if (index == indices(len(shape)) and value.shape == shape) else super().view(value, shape, index)

    def concat(self, pieces: Sequence[Node], axis: int) -> Node:
        """Pieces side by side, without those of extent 0 unless all are of extent 0."""
        filled = [piece for piece in pieces if piece.shape[axis] != Dim.of(0)] or list(pieces[:1])
        return filled[0] if len(filled) == 1 else super().concat(filled, axis)

    def pad(self, value: Node, axis: int, before: Dim, extent: Dim) -> Node:
        """Pad a value with zeros along an axis to the extent `extent`, `before` of them in front."""

        def zeros(length: Dim) -> Node:
            return self.full(0.0, value.dtype, (*value.shape[:axis], length, *value.shape[axis + 1 :]))

        return self.concat([zeros(before), value, zeros(extent - before - value.shape[axis])], axis)


def map_back(
    builder: GradientBuilder, node: Node, function: str, operands: Sequence[Node], gradient: Node, position: int
) -> Node | None:
    """The gradient of the operand at a position, in the dtype that the function computes in; None where it is 0
    everywhere. UnsupportedError where the table has no derivative."""
    if has(function, Fact.STEPS):
        return None
    rules = OPERATORS[function].derivative
    rule = rules[position] if position < len(rules) else None
    if rule is None:
        raise UnsupportedError(f"{node.output}: {function} has no derivative in the table")
    if function == "cast":
        return gradient
    exact = node.dtype.compute
    terms = [builder.cast(each, exact) if each.dtype.is_float else each for each in (*operands, node, gradient)]
    result: Node = rule(*(Formula(builder, each) for each in terms)).value
    return result


def zero_where_zero(builder: GradientBuilder, value: Node, gradient: Node) -> Node:
    """A value where the gradient is not 0, else 0."""
    none = builder.like(0.0, gradient)
    return builder.call("where", builder.call("equal", gradient, none), builder.like(0.0, value), value)
