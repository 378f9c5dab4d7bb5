"""Emitter of ONNX nodes, with fresh names, shared constants, and sizes as values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from noyau.dtypes import HALVES, DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Atom, Dim, DimOp, Monomial, Shape, index_name, never_negative
from noyau.ir.graph import Node
from noyau.ir.sizes import Binding, plan

ONE, ZERO = Dim.of(1), Dim.of(0)
_LONGEST_RANGE = 4096  # most cells of an index range that is stored as a constant instead of computed by Range

# Dtypes in which the CPU kernels of onnxruntime 1.17 and newer compute; others are cast to these and back. Narrow
# integers wrap in the cast back; 16-bit floats are computed in float32, as everywhere in noyau.
COMPUTED = {
    **dict.fromkeys((DType.I8, DType.I16, DType.U8, DType.U16), DType.I32),
    **dict.fromkeys((DType.U32, DType.U64), DType.I64),
    **{dtype: dtype.compute for dtype in HALVES},
}


@dataclass(frozen=True, slots=True)
class OnnxTerm:
    """A value of the model: its name, its dtype, and its shape, in which broadcast axes may be 1, or missing at the
    front."""

    name: str
    dtype: DType
    shape: Shape


@dataclass
class NodeWriter:
    """Writer of the nodes and constants of a model, in order. `stem`: of the names of unnamed values."""

    taken: set[str] = field(default_factory=set)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    constants: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)
    numbers: dict[str, np.ndarray] = field(default_factory=dict)  # constants of one cell
    values: dict[tuple[object, ...], str] = field(default_factory=dict)
    stem: str = "value"

    def emit(self, operator: str, *inputs: str, **attributes: int | str | Sequence[int]) -> str:
        """Add a node and return its value; equal nodes are added once."""
        key = (operator, *inputs, *((name, str(value)) for name, value in sorted(attributes.items())))
        if key not in self.values:
            self.values[key] = self.fresh(self.stem)
            self.nodes.append(helper.make_node(operator, inputs, [self.values[key]], **attributes))
        return self.values[key]

    def constant(self, value: Any) -> str:
        """Add a constant and return its name; equal constants are added once."""
        array = np.asarray(value)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.fresh("constant")
            self.initializers.append(numpy_helper.from_array(array, self.constants[key]))
            if array.size == 1:
                self.numbers[self.constants[key]] = array
        return self.constants[key]

    def integers(self, *numbers: int) -> str:
        """A constant int64[len(numbers)]."""
        return self.constant(np.array(numbers, np.int64))

    def number(self, value: Any, dtype: DType) -> OnnxTerm:
        with np.errstate(all="ignore"):
            return OnnxTerm(self.constant(np.array(value).astype(dtype.numpy)), dtype, ())

    def fresh(self, stem: str) -> str:
        """An unused name."""
        name, count = stem, 0
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name

    def rename(self, name: str, target: str) -> bool:
        """Rename a value to `target`; returns False if no node computes it."""
        if not any(name in node.output for node in self.nodes):
            return False
        for node in self.nodes:
            for names in (node.input, node.output):
                for at, each in enumerate(names):
                    names[at] = target if each == name else each
        self.values = {key: target if value == name else value for key, value in self.values.items()}
        self.taken.add(target)
        return True

    def number_of(self, name: str) -> int | float | None:
        """The number of a constant value of one cell, else None."""
        return self.numbers[name].item() if name in self.numbers else None

    def cast(self, term: OnnxTerm, dtype: DType) -> OnnxTerm:
        """The value in another dtype."""
        if term.dtype is dtype:
            return term
        if dtype.is_float8 or term.dtype.is_float8:
            what = f"a cast from {term.dtype.value} to {dtype.value}"
            raise UnsupportedError(f"{what} does not go into ONNX, where it saturates; cast outside of the op")
        if term.name in self.numbers:
            with np.errstate(all="ignore"):
                return replace(term, name=self.constant(self.numbers[term.name].astype(dtype.numpy)), dtype=dtype)
        return OnnxTerm(self.emit("Cast", term.name, to=dtype.onnx), dtype, term.shape)

    def widen(self, term: OnnxTerm) -> OnnxTerm:
        """The value in the dtype that it is computed in."""
        return self.cast(term, COMPUTED.get(term.dtype, term.dtype))


class SizeWriter:
    """Writer of sizes as int64 values, computed on demand from the shapes of `nodes`; `names`: theirs in the model."""

    def __init__(self, writer: NodeWriter, nodes: Sequence[Node], names: Mapping[str, str]) -> None:
        self.writer, self.nodes, self.called = writer, nodes, names
        self.bindings: dict[str, Binding] = {b.size: b for b in plan([node.shape for node in nodes])}
        self.known: dict[Dim, str] = {}
        self.ranges: dict[tuple[Dim, int, int], str] = {}

    def value(self, dim: Dim) -> str:
        """A Dim without indices, as int64[1]."""
        if dim not in self.known:
            self.known[dim] = self.calculate(dim, self._size)
        return self.known[dim]

    def scalar(self, dim: Dim) -> str:
        """A Dim without indices, as int64 of rank 0."""
        if dim.constant is not None:
            return self.writer.constant(np.int64(dim.constant))
        return self.writer.emit("Squeeze", self.value(dim))

    def shape(self, dims: Sequence[Dim]) -> str:
        """Several Dims as int64[len(dims)]; adjacent constants are joined."""
        pieces = [] if dims else [self.writer.integers()]
        for is_known, run in groupby(dims, lambda dim: dim.constant is not None):
            if is_known:
                pieces.append(self.writer.integers(*(dim.constant or 0 for dim in run)))
            else:
                pieces.extend(map(self.value, run))
        return pieces[0] if len(pieces) == 1 else self.writer.emit("Concat", *pieces, axis=0)

    def index_value(self, dim: Dim, shape: Shape) -> OnnxTerm:
        """A Dim over the indices of a shape: an array with extent 1 along unused axes; of rank 0 if it uses none."""
        axes = [axis for axis in range(len(shape)) if index_name(axis) in dim.names]
        if not axes:
            return OnnxTerm(self.scalar(dim), DType.I64, ())
        value = self.calculate(dim, lambda name: self._index(name, shape))
        return OnnxTerm(value, DType.I64, tuple(d if axis in axes else ONE for axis, d in enumerate(shape)))

    def calculate(self, dim: Dim, atom: Callable[[str], str]) -> str:
        """The value of a Dim, a sum of products; `atom` returns the value of a name."""
        if dim.constant is not None:
            return self.writer.integers(dim.constant)
        first, *others = sorted(dim.terms, key=lambda term: term[1] < 0)
        total = self._monomial(*first, atom)
        for monomial, factor in others:
            total = self.writer.emit("Add" if factor > 0 else "Sub", total, self._monomial(monomial, abs(factor), atom))
        return total

    def _monomial(self, monomial: Monomial, factor: int, atom: Callable[[str], str]) -> str:
        values = [atom(each) if isinstance(each, str) else self._operation(each, atom) for each in monomial]
        if factor != 1 or not values:
            values.append(self.writer.integers(factor))
        return reduce(partial(self.writer.emit, "Mul"), values)

    def _operation(self, op: Atom, atom: Callable[[str], str]) -> str:
        assert isinstance(op, DimOp)
        left, right = self.calculate(op.left, atom), self.calculate(op.right, atom)
        if op.kind == "max":
            return self.writer.emit("Max", left, right)
        if op.right.constant is None:  # a division by 0 ends the process in some runtimes
            right = self.writer.emit("Max", right, self.writer.integers(1))
        if op.kind == "mod":
            return self.writer.emit("Mod", left, right)
        if not never_negative(op.left):  # Div truncates; an index is never below 0
            left = self.writer.emit("Sub", left, self.writer.emit("Mod", left, right))
        return self.writer.emit("Div", left, right)

    def _size(self, name: str) -> str:
        """One size, from the extent that determines it. UnsupportedError where there is none."""
        binding = self.bindings.get(name)
        if binding is None:
            raise UnsupportedError(f"the size {name} does not follow from the shapes of the inputs: give it a number")
        source, at = self.called[self.nodes[binding.input].output], binding.axis
        value = self.writer.emit("Shape", source, start=at, end=at + 1)
        if binding.offset != ZERO:
            value = self.writer.emit("Sub", value, self.value(binding.offset))
        if binding.factor != 1:
            value = self.writer.emit("Div", value, self.writer.integers(binding.factor))
        return value

    def _index(self, name: str, shape: Shape) -> str:
        """The index along an axis of a shape as an array, or a size."""
        if not name.startswith("#"):
            return self.value(Dim.of(name))
        axis, rank = int(name[1:]), len(shape)
        key = (shape[axis], axis, rank)
        if key not in self.ranges:
            self.ranges[key] = self._range(shape[axis], axis, rank)
        return self.ranges[key]

    def _range(self, dim: Dim, axis: int, rank: int) -> str:
        count, writer = dim.constant, self.writer
        if count is not None and count <= _LONGEST_RANGE:
            spread = [count if each == axis else 1 for each in range(rank)]
            return writer.constant(np.arange(count, dtype=np.int64).reshape(spread))
        ends = writer.constant(np.int64(0)), self.scalar(dim), writer.constant(np.int64(1))
        return unsqueeze(writer, writer.emit("Range", *ends), [each for each in range(rank) if each != axis])


def unsqueeze(writer: NodeWriter, name: str, axes: Iterable[int]) -> str:
    """The value with axes of extent 1 at these positions of the result."""
    axes = list(axes)
    return writer.emit("Unsqueeze", name, writer.integers(*axes)) if axes else name
