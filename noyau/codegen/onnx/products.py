"""Products of two arrays as ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.codegen.onnx.emitter import NodeWriter, OnnxTerm
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Shape


def contract_term(
    equation: str, operands: Sequence[OnnxTerm], dtype: DType, shape: Shape, writer: NodeWriter
) -> OnnxTerm:
    """An einsum of two values; MatMul where it is one, once their axes are in order."""
    if dtype is DType.BOOL:
        raise UnsupportedError(f"the product {equation} of bool has no ONNX operator")
    inputs, _, result = equation.replace(" ", "").partition("->")
    first, second = inputs.split(",")
    ordered, wide = _in_order(first, second, result), [writer.widen(term) for term in operands]
    names = [_transpose(writer, *each) for each in zip(wide, (first, second), ordered, strict=True)]
    equation = f"{','.join(ordered)}->{result}"
    is_product = _is_product(*ordered, result)
    name = writer.emit("MatMul", *names) if is_product else writer.emit("Einsum", *names, equation=equation)
    return writer.cast(OnnxTerm(name, wide[0].dtype, shape), dtype)


def _in_order(first: str, second: str, result: str) -> tuple[str, str]:
    """The axes of two operands as those of stacks of matrices: what both have and the result keeps, then rows and what
    is summed over, or that and columns. onnxruntime's Einsum ends the process (by a division by 0) where it has to turn
    a second operand that has no cells."""
    stack = "".join(axis for axis in first if axis in second and axis in result)
    summed = "".join(axis for axis in first if axis in second and axis not in result)
    rows, columns = ("".join(a for a in one if a not in other) for one, other in ((first, second), (second, first)))
    return f"{stack}{rows}{summed}", f"{stack}{summed}{columns}"


def _transpose(writer: NodeWriter, term: OnnxTerm, axes: str, target: str) -> str:
    return term.name if axes == target else writer.emit("Transpose", term.name, perm=[axes.index(a) for a in target])


def _is_product(first: str, second: str, result: str) -> bool:
    """Whether it is a product of matrices, or of stacks of them that are alike or of which the second is one matrix."""
    if min(len(first), len(second)) < 2 or len({*first, *second}) != len({*first[:-2]}) + 3:
        return False
    stack, row, column = first[:-2], first[-2], second[-1]
    return second[:-2] in (stack, "") and first[-1] == second[-2] and result == f"{stack}{row}{column}"
