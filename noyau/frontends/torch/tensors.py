"""Conversions of torch's tensors, dtypes and sizes to noyau's."""

from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import torch

from noyau.dtypes import CELLS, DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Shape, maximum, product

Array = np.ndarray


def as_tensor(array: Array, dtype: DType) -> torch.Tensor:
    """An array as a tensor of this dtype, where torch has it; bfloat16 by its bits."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    tensor = torch.from_numpy(np.array(array))
    return tensor.to(TO_TORCH[dtype]) if dtype in TO_TORCH else tensor  # complex arrays keep their dtype


def as_array(tensor: torch.Tensor) -> Array:
    """A tensor as an array; bfloat16 by its bits."""
    plain = tensor.detach().contiguous()
    if plain.dtype is torch.bfloat16:
        bits: Array = plain.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = plain.numpy()
    return array


TO_TORCH: dict[DType, torch.dtype] = {dtype: getattr(torch, dtype.numpy.name) for dtype in CELLS}
# The dtypes of imported graphs: a cast to float8 is left to torch.
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
    """The dtype of an input or of a boundary's result; OTHER where noyau has no cells for it."""
    return DType.OTHER if unsupported_cells(tensor) else FROM_TORCH[tensor.dtype]


def dim_of(size: Any) -> Dim:
    """An extent as a Dim: an integer, or the formula of a SymInt. UnsupportedError where no Dim expresses it."""
    return Dim.of(int(size)) if isinstance(size, int) else _of_expression(size.node.expr)


def size_hint(size: Any) -> int:
    """The number of a size when torch traced. UnsupportedError for a size that depends on values."""
    number = size if isinstance(size, int) else size.node.hint
    if number is None:
        raise UnsupportedError(f"the size {size} depends on values: torch has no number for it when it traces")
    return int(number)


def shape_from(value: torch.Tensor) -> Shape:
    """The shape of a tensor, a fake one too."""
    return tuple(dim_of(extent) for extent in value.shape)


def _of_expression(expression: Any) -> Dim:
    """The Dim of a sympy expression of integers, read by the names of its classes: sympy itself is not imported."""
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
