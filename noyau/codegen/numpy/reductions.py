"""Reductions, running results and products as NumPy writes them."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.codegen.index_maps import ONE
from noyau.codegen.numpy.terms import ATOM, NumpyTerm, numpy_name
from noyau.dtypes import HALVES, DType
from noyau.ir.graph import Node, Reduce, Scan


def reduce_term(kind: Reduce, operand: NumpyTerm, source: Node, node: Node, *, keep: bool) -> NumpyTerm:
    """A reduction of a whole value; `keep`: its axes stay, of length 1."""
    whole = tuple(ONE if axis in kind.axes else dim for axis, dim in enumerate(source.shape))
    shape = whole if keep else node.shape
    where, flag = _axes(kind.axes, len(source.shape)), ", keepdims=True" if keep else ""
    filled = all((source.shape[axis].constant or 0) > 0 for axis in kind.axes)
    method = _method(kind.monoid, source.dtype, filled, len(kind.axes) == 1)
    if method is None:
        return NumpyTerm(f'reduce("{kind.monoid}", {operand.text}, {where}{flag})', ATOM, shape)
    name, extra = method
    if source.dtype in HALVES and name in ("sum", "prod"):
        wide = f'cast({operand.text}, "f32").{name}({where}{flag})'
        return NumpyTerm(f'cast({wide}, "{node.dtype.value}")', ATOM, shape)
    return NumpyTerm(f"{operand.within(ATOM)}.{name}({where}{flag}{extra})", ATOM, shape)


def _axes(axes: Sequence[int], rank: int) -> str:
    if len(axes) > 1:
        return f"({', '.join(map(str, axes))})"
    return "-1" if axes[0] == rank - 1 else str(axes[0])


def _method(monoid: str, dtype: DType, filled: bool, single: bool) -> tuple[str, str] | None:
    """The method of an array that is this monoid, and what else it is called with; None where NumPy has none."""
    match monoid:
        case "sum" | "prod":
            narrow = not dtype.is_float and dtype not in (DType.I64, DType.U64)
            return monoid, f", dtype={numpy_name(dtype)}" if narrow else ""
        case "max" | "min" if dtype.is_float:
            return monoid, "" if filled else f", initial={'-' if monoid == 'max' else ''}np.inf"
        case "max" | "min" if dtype is not DType.BOOL and filled:
            return monoid, ""
        case "any" | "all":
            return monoid, ""
        case "argmax" | "argmin" if single and filled:
            return monoid, ""
        case _:
            return None


def scan_term(kind: Scan, operand: NumpyTerm, source: Node) -> NumpyTerm:
    """A running result along an axis."""
    plain = kind.monoid == "sum" and source.dtype in (DType.F32, DType.F64, DType.I64)
    where = "-1" if kind.axis == len(source.shape) - 1 else str(kind.axis)
    if plain and not kind.exclusive and not kind.reverse:
        return NumpyTerm(f"{operand.within(ATOM)}.cumsum({where})", ATOM, source.shape)
    flags = "".join(f", {name}=True" for name in ("exclusive", "reverse") if getattr(kind, name))
    return NumpyTerm(f'scan("{kind.monoid}", {operand.text}, {where}{flags})', ATOM, source.shape)


def contract_term(equation: str, operands: Sequence[NumpyTerm], node: Node) -> NumpyTerm:
    """An einsum; short floats are summed in float32."""
    if node.dtype not in HALVES:
        return NumpyTerm(f'np.einsum("{equation}", {", ".join(term.text for term in operands)})', ATOM, node.shape)
    wide = ", ".join(f'cast({term.text}, "f32")' for term in operands)
    return NumpyTerm(f'cast(np.einsum("{equation}", {wide}), "{node.dtype.value}")', ATOM, node.shape)
