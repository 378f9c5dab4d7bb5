"""One ATen operator being imported: its operands as values of the graph, and how new ones are emitted.

ATen operators that noyau does not look into: boundaries, evaluated by torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch
from torch import fx

from noyau.dtypes import CELLS, DType
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, Shape, maximum, product
from noyau.ir.graph import Node

Made: TypeAlias = "Node | Dim | tuple[Node | None, ...] | None"
Handler: TypeAlias = "Callable[[AtenSite], Made]"
ATEN: dict[str, Handler] = {}  # by the name of the operator, "add.Tensor"; each family file fills its part


@dataclass(frozen=True, slots=True)
class AtenSite:
    """An operator: `values` has what was imported before it, by the node of torch's graph."""

    builder: GraphBuilder
    node: fx.Node
    values: dict[fx.Node, Made]

    @property
    def meta(self) -> Any:
        """The result as torch knows it: a fake tensor, several, or a size."""
        return self.node.meta.get("val")

    @property
    def dtype(self) -> DType:
        """The dtype of the result."""
        return dtype_of(self.meta.dtype)

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return shape_from(self.meta)

    def argument(self, position: int, name: str = "", default: Any = None) -> Any:
        """An argument as torch's graph has it."""
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwargs.get(name, default)

    def value(self, position: int, name: str = "") -> Node:
        """A tensor among the arguments. UnsupportedError for what is none."""
        return self.tensor(self.argument(position, name))

    def tensor(self, argument: Any) -> Node:
        value = self.values.get(argument) if isinstance(argument, fx.Node) else None
        if not isinstance(value, Node):
            raise UnsupportedError(f"{self.node.target} is given {argument}, which is no tensor that is followed")
        if value.dtype is DType.OTHER:
            what = unsupported_cells(argument.meta["val"])
            raise UnsupportedError(f"{self.node.target} is given {argument}, {what}: noyau has no kernels for that")
        return value

    def operand(self, argument: Any, dtype: DType) -> Node:
        """A tensor, a number or a size, in a dtype."""
        value = self.values.get(argument) if isinstance(argument, fx.Node) else argument
        match value:
            case Node():
                return self.builder.cast(self.tensor(argument), dtype)
            case Dim():
                return self.builder.size(value, dtype)
            case bool() | int() | float():
                return self.builder.constant(value, dtype)
            case _:
                raise UnsupportedError(f"{self.node.target} is given {argument}, which is no tensor and no number")

    def dim(self, argument: Any) -> Dim:
        """A size: an integer or one that torch's graph computes."""
        value = self.values.get(argument) if isinstance(argument, fx.Node) else argument
        if isinstance(value, Dim):
            return value
        if isinstance(argument, fx.Node) and isinstance(argument.meta.get("val"), torch.SymInt):
            return dim_of(argument.meta["val"])
        if isinstance(value, int):
            return Dim.of(value)
        raise UnsupportedError(f"{self.node.target} is given {argument}, which is no size that is followed")

    def number(self, position: int, name: str, default: Any) -> Any:
        """A number that is known now. UnsupportedError for one that is not."""
        value = self.argument(position, name, default)
        if isinstance(value, fx.Node):
            raise UnsupportedError(f"{self.node.target} is given {value} as {name}, which has no number yet")
        return value

    def axis(self, argument: Any, rank: int) -> int:
        """An axis from 0 on; of a value without axes, 0."""
        return int(argument) % max(rank, 1)

    def axes(self, argument: Any, rank: int) -> tuple[int, ...]:
        """Axes, each once; none given stands for all."""
        if argument is None or (isinstance(argument, list | tuple) and not argument):
            return tuple(range(rank))
        listed = argument if isinstance(argument, list | tuple) else [argument]
        return tuple(sorted({self.axis(axis, rank) for axis in listed})) if rank else ()

    def view(self, value: Node, index: Sequence[Dim]) -> Node:
        """A view of the result's shape."""
        return self.builder.view(value, self.shape, index)


def promote(one: Any, other: Any) -> DType:
    """The dtype in which torch computes with two tensors or numbers: categories, and tensors of rank 0 below others."""
    fakes = [each.meta["val"] if isinstance(each, fx.Node) else each for each in (one, other)]
    return dtype_of(torch.result_type(*map(_plain, fakes)))


def _plain(fake: Any) -> Any:
    """The argument that promotion looks at, without sizes: a tensor on no device, or the number."""
    if isinstance(fake, torch.Tensor):
        return torch.empty([1] * (fake.dim() > 0), dtype=fake.dtype, device="meta")
    return 0 if isinstance(fake, torch.SymInt) else fake


Array = np.ndarray


def as_tensor(array: Array, dtype: DType) -> torch.Tensor:
    """An array as a tensor of this dtype, where torch has it; bfloat16 by its bits."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    tensor = torch.from_numpy(np.array(array))
    return tensor.to(TO_TORCH[dtype]) if dtype in TO_TORCH else tensor  # complex numbers are as they come


def as_array(tensor: torch.Tensor) -> Array:
    """A tensor as an array; bfloat16 by its bits."""
    plain = tensor.detach().contiguous()
    if plain.dtype is torch.bfloat16:
        bits: Array = plain.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = plain.numpy()
    return array


def evaluator(node: fx.Node, operands: Sequence[Node], values: dict[fx.Node, Made]) -> Callable[..., tuple[Array, ...]]:
    """The operator as a function of the arrays of its tensors. Floats that are given wider are narrowed: torch has one
    kernel a dtype."""
    function: Any = node.target
    places = {name.output: at for at, name in enumerate(operands)}

    def evaluate(*arrays: Array) -> tuple[Array, ...]:
        def tensor(argument: fx.Node) -> Any:
            value = values[argument]
            if isinstance(value, Node):
                return as_tensor(np.asarray(arrays[places[value.output]]), value.dtype)
            return _size(argument, value, operands, arrays)

        result = function(*fx.node.map_arg(node.args, tensor), **fx.node.map_arg(node.kwargs, tensor))
        return tuple(as_array(each) for each in (result if isinstance(result, tuple | list) else (result,)))

    return evaluate


def _size(argument: fx.Node, value: Any, operands: Sequence[Node], arrays: Sequence[Array]) -> int:
    """A size that the operator is given, from the shapes of its tensors."""
    assert isinstance(value, Dim), argument
    sizes: dict[str, int] = {}
    for operand, array in zip(operands, arrays, strict=True):
        for dim, extent in zip(operand.shape, np.shape(array), strict=True):
            if dim == Dim.of(str(dim)):
                sizes[str(dim)] = extent
    return int(value.evaluate(sizes))


TO_TORCH: dict[DType, torch.dtype] = {dtype: getattr(torch, dtype.numpy.name) for dtype in CELLS}
# What graphs of torch are taken from: where they cast to float8, torch itself does.
FROM_TORCH = {theirs: ours for ours, theirs in TO_TORCH.items() if not ours.is_float8}


def dtype_of(theirs: torch.dtype) -> DType:
    """The DType of a dtype of torch. UnsupportedError where noyau has none: complex, quantised, float8."""
    if theirs not in FROM_TORCH:
        raise UnsupportedError(f"there is no dtype for {theirs} here: f16, bf16, f32, f64, integers and bool are")
    return FROM_TORCH[theirs]


def unsupported_cells(tensor: torch.Tensor) -> str:
    """The reason why noyau has no cells for a tensor (complex, float8, sparse, quantised), or nothing."""
    if tensor.layout is not torch.strided:
        return f"laid out as {tensor.layout}"
    if tensor.is_quantized:
        return f"quantised ({tensor.dtype})"
    return "" if tensor.dtype in FROM_TORCH else f"of {tensor.dtype}"


def cells_of(tensor: torch.Tensor) -> DType:
    """The dtype of an input, or of what a boundary makes; OTHER where noyau has no cells for it."""
    return DType.OTHER if unsupported_cells(tensor) else FROM_TORCH[tensor.dtype]


def dim_of(size: Any) -> Dim:
    """An extent: an integer, or what a SymInt is of its symbols. UnsupportedError where a Dim cannot say it."""
    if isinstance(size, int):
        return Dim.of(int(size))
    return _of_expression(size.node.expr)


def size_hint(size: Any) -> int:
    """A size as the number that it was when torch traced. UnsupportedError for one that depends on values."""
    number = size if isinstance(size, int) else size.node.hint
    if number is None:
        raise UnsupportedError(f"the size {size} depends on values: torch has no number for it when it traces")
    return int(number)


def shape_from(value: torch.Tensor) -> Shape:
    """The shape of a tensor, a fake one too."""
    return tuple(dim_of(extent) for extent in value.shape)


def _of_expression(expression: Any) -> Dim:
    """A sympy expression of integers. It is read by the names of its classes: sympy itself is not imported."""
    kind = type(expression).__name__
    if expression.is_Integer:
        return Dim.of(int(expression))
    if expression.is_Symbol:
        return Dim.of(str(expression.name))
    parts = [_of_expression(part) for part in expression.args]
    match kind:
        case "Add":
            return sum(parts, Dim.of(0))
        case "Mul":
            return product(parts)
        case "FloorDiv" | "CleanDiv" | "IntTrueDiv":
            return parts[0] // parts[1]
        case "Mod" | "PythonMod":
            return parts[0] % parts[1]
        case "Max":
            return reduce(maximum, parts)
        case "Min":
            return reduce(lambda dim, part: dim - maximum(dim - part, 0), parts)
        case "Pow" if expression.args[1].is_Integer and int(expression.args[1]) > 0:
            return product([parts[0]] * int(expression.args[1]))
        case _:
            raise UnsupportedError(f"the size {expression} is no polynomial with divisions: {kind} is not in it")
