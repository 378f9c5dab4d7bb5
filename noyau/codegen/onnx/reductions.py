"""Reductions, running results and products of two arrays as ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noyau.codegen.onnx.emitter import ONE, NodeWriter, OnnxTerm, SizeWriter
from noyau.codegen.onnx.maps import CellWriter
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Shape, product
from noyau.ir.graph import Reduce, Scan
from noyau.ir.monoids import MONOIDS


def reduce_term(kind: Reduce, operand: OnnxTerm, dtype: DType, sizes: SizeWriter, *, keep: bool = False) -> OnnxTerm:
    """A reduction of a value, every axis of which is whole; with `keep` its axes stay, as 1, which places have no word
    for. UnsupportedError where it has no spelling."""
    writer = sizes.writer
    match kind.monoid:
        case "any" | "max" if operand.dtype is DType.BOOL:
            return _any_true(writer, operand, kind.axes, keep=keep)
        case "all" | "min" if operand.dtype is DType.BOOL:
            return _negate(writer, _any_true(writer, _negate(writer, operand), kind.axes, keep=keep))
        case "prod" if not operand.dtype.is_float:
            raise UnsupportedError("the product of integers has no ONNX operator that keeps its bits in onnxruntime")
        case "max" | "min" | "max_apart" | "min_apart" | "sum" | "prod":
            wide = writer.widen(operand)
            return writer.cast(_plain_reduce(writer, kind, wide, keep=keep), dtype)
        case "argmax" | "argmin":
            return _arg_reduce(kind, writer.widen(operand), sizes)
        case "logsumexp":
            return writer.cast(_logsumexp(writer, writer.widen(operand), kind.axes, keep=keep), dtype)
        case "variance":
            return writer.cast(_variance(writer.widen(operand), kind.axes, sizes, keep=keep), dtype)
        case _:
            raise UnsupportedError(f"the reduction {kind.monoid} of {operand.dtype.value} has no ONNX operator")


def _reduce(writer: NodeWriter, operator: str, term: OnnxTerm, axes: Sequence[int], *, keep: bool = False) -> OnnxTerm:
    name = writer.emit(operator, term.name, writer.constant(np.array(axes, np.int64)), keepdims=int(keep))
    shape = tuple(ONE if axis in axes else dim for axis, dim in enumerate(term.shape) if keep or axis not in axes)
    return replace(term, name=name, shape=shape)


def _plain_reduce(writer: NodeWriter, kind: Reduce, term: OnnxTerm, *, keep: bool) -> OnnxTerm:
    """A plain reduction; onnxruntime's largest and least lose NaN, so that is asked for apart."""
    reduced = _reduce(writer, MONOIDS[kind.monoid].onnx, term, kind.axes, keep=keep)
    if not term.dtype.is_float or kind.monoid in ("sum", "prod"):
        return reduced
    has_nan = _any_true(writer, CellWriter(writer)("IsNaN", term), kind.axes, keep=keep)
    return CellWriter(writer).where(has_nan, writer.number(np.nan, term.dtype), reduced)


def _any_true(writer: NodeWriter, truths: OnnxTerm, axes: Sequence[int], *, keep: bool = False) -> OnnxTerm:
    """Whether one is true: of none, none is."""
    return writer.cast(_reduce(writer, "ReduceSum", writer.cast(truths, DType.I32), axes, keep=keep), DType.BOOL)


def _negate(writer: NodeWriter, truths: OnnxTerm) -> OnnxTerm:
    return replace(truths, name=writer.emit("Not", truths.name))


def _arg_reduce(kind: Reduce, term: OnnxTerm, sizes: SizeWriter) -> OnnxTerm:
    """The place of the first of the largest, or of the first NaN; several axes become one."""
    writer, cells = sizes.writer, CellWriter(sizes.writer)
    flat, axis = _merge_axes(kind.axes, term, sizes)
    shape = flat.shape[:axis] + flat.shape[axis + 1 :]

    def place(operator: str, term: OnnxTerm) -> OnnxTerm:
        return OnnxTerm(writer.emit(operator, term.name, axis=axis, keepdims=0), DType.I64, shape)

    place_ = place(MONOIDS[kind.monoid].onnx, flat)
    if not term.dtype.is_float:
        return place_
    odd = cells("IsNaN", flat)
    return cells.where(_any_true(writer, odd, [axis]), place("ArgMax", writer.cast(odd, DType.I32)), place_)


def _merge_axes(axes: Sequence[int], term: OnnxTerm, sizes: SizeWriter) -> tuple[OnnxTerm, int]:
    """The value with these axes as one, and which it is."""
    if len(axes) == 1:
        return term, axes[0]
    writer = sizes.writer
    left = [axis for axis in range(len(term.shape)) if axis not in axes]
    turned = writer.emit("Transpose", term.name, perm=[*left, *axes])
    shape: Shape = (*(term.shape[axis] for axis in left), product(term.shape[axis] for axis in axes))
    return replace(term, name=writer.emit("Reshape", turned, sizes.shape(shape), allowzero=1), shape=shape), len(left)


def _logsumexp(writer: NodeWriter, term: OnnxTerm, axes: Sequence[int], *, keep: bool) -> OnnxTerm:
    """log(sum(exp(x - m))) + m, with m the largest, or 0 where that is infinite."""
    cells = CellWriter(writer)
    top = _reduce(writer, "ReduceMax", term, axes, keep=True)
    top = cells.where(cells("IsInf", top), writer.number(0, term.dtype), top)
    total = cells(
        "Add", cells("Log", _reduce(writer, "ReduceSum", cells("Exp", cells("Sub", term, top)), axes, keep=True)), top
    )
    left = tuple(dim for axis, dim in enumerate(total.shape) if axis not in axes)
    squeezed = writer.constant(np.array(axes, np.int64))
    return total if keep else replace(total, name=writer.emit("Squeeze", total.name, squeezed), shape=left)


def _variance(term: OnnxTerm, axes: Sequence[int], sizes: SizeWriter, *, keep: bool) -> OnnxTerm:
    """The mean of the squared distances from the mean, of values above the least: of equal ones it is 0."""
    writer, cells = sizes.writer, CellWriter(sizes.writer)
    count = product(term.shape[axis] for axis in axes)
    number = writer.cast(OnnxTerm(sizes.scalar(count), DType.I64, ()), term.dtype)

    def mean(of: OnnxTerm, *, keep: bool) -> OnnxTerm:  # ReduceMean of none is 0 in onnxruntime
        return cells("Div", _reduce(writer, "ReduceSum", of, axes, keep=keep), number)

    above = cells("Sub", term, _reduce(writer, "ReduceMin", term, axes, keep=True))
    apart = cells("Sub", above, mean(above, keep=True))
    return mean(cells("Mul", apart, apart), keep=keep)


def scan_term(kind: Scan, operand: OnnxTerm, dtype: DType, writer: NodeWriter) -> OnnxTerm:
    """A running result along an axis. UnsupportedError for all but a sum."""
    if kind.monoid != "sum":
        raise UnsupportedError(f"the running {kind.monoid} has no ONNX operator in onnxruntime")
    wide = writer.widen(operand)
    flags = {"exclusive": int(kind.exclusive), "reverse": int(kind.reverse)}
    name = writer.emit("CumSum", wide.name, writer.constant(np.int64(kind.axis)), **flags)
    return writer.cast(replace(wide, name=name), dtype)


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
