"""Scalar functions, casts, reductions, scans and products as NumPy source."""

import re
from collections.abc import Sequence
from itertools import zip_longest

from noyau.codegen.index_maps import ONE
from noyau.codegen.numpy.terms import ATOM, COMPARE, INFIX, POWER, TIMES, UNARY, NumpyTerm, numpy_name
from noyau.dtypes import HALVES, DType
from noyau.functions import OF_TABLE
from noyau.ir.dims import Shape
from noyau.ir.graph import Node, Reduce, Scan
from noyau.ir.operators import OPERATORS

CALLS = {
    **{name: f"np.{operator.names.numpy.split()[0]}" for name, operator in OPERATORS.items() if operator.names.numpy},
    **{function: name for name, function in OF_TABLE.items()},
}


def map_term(function: str, operands: Sequence[NumpyTerm], node: Node, source: DType) -> NumpyTerm:
    """The term of a scalar function of operands that broadcast; `source`: the dtype of the last one."""
    if function == "cast":
        return cast_term(operands[0], source, node.dtype)
    if function in ("identity", "rounded"):
        return operands[0]
    terms = _with_typed_operand(list(operands), function == "where")
    shape = broadcast([term.shape for term in operands])
    if source is DType.BOOL and INFIX.get(function, ("", ""))[1] == COMPARE:  # x == True reads as a mistake
        terms = [NumpyTerm(term.typed or term.text, ATOM if term.number else term.level, term.shape) for term in terms]
    if function in ("divide", "power") and not source.is_float:
        return _call_term(CALLS[function], terms, shape)
    match function, [term.within(ATOM) for term in terms]:
        case "negative", _:
            return NumpyTerm(f"-{terms[0].within(UNARY)}", UNARY, shape)
        case "power", [base, exponent]:
            sign = "**" if re.fullmatch(r"\w+", base) and re.fullmatch(r"\w+", exponent) else " ** "  # as ruff has it
            return NumpyTerm(f"{base}{sign}{exponent}", POWER, shape)
        case "reciprocal", [x]:
            return NumpyTerm(f"1 / {x}", TIMES, shape)
        case "rsqrt", _ if node.dtype in HALVES:
            return NumpyTerm(f'cast(1 / np.sqrt(cast({terms[0].text}, "f32")), "{node.dtype.value}")', ATOM, shape)
        case "rsqrt", _:
            return NumpyTerm(f"1 / np.sqrt({terms[0].text})", TIMES, shape)
        case _ if function in INFIX:
            sign, level = INFIX[function]
            left, right = terms[0].within(level + (level == COMPARE)), terms[1].within(level + 1)
            return NumpyTerm(f"{left} {sign} {right}", level, shape)
        case _:
            return _call_term(CALLS[function], terms, shape)


def cast_term(operand: NumpyTerm, source: DType, target: DType) -> NumpyTerm:
    """The term of a cast; `cast` keeps floats wide while the truth is computed, and casts to integers always narrow."""
    text = operand.typed or operand.text
    if source is target:
        return operand
    if target is DType.BOOL:
        array = NumpyTerm(text, ATOM, ()) if operand.number else operand
        return NumpyTerm(f"{array.within(COMPARE + 1)} != 0", COMPARE, operand.shape)
    if operand.number and target in (DType.F32, DType.F64) and not source.is_float:
        return NumpyTerm(operand.text, operand.level, (), f'cast({operand.text}, "{target.value}")')
    if target.is_float:
        return NumpyTerm(f'cast({text}, "{target.value}")', ATOM, operand.shape)
    inner = text if operand.number else operand.within(ATOM)
    return NumpyTerm(f"{inner}.astype({numpy_name(target)})", ATOM, operand.shape)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape of shapes whose axes may be 1 or missing at the front."""
    axes = zip_longest(*(shape[::-1] for shape in shapes), fillvalue=ONE)
    return tuple(next((dim for dim in axis if dim != ONE), ONE) for axis in axes)[::-1]


def _with_typed_operand(terms: list[NumpyTerm], chooses: bool) -> list[NumpyTerm]:
    """The operands, one of them with an explicit dtype for the plain numbers; `chooses`: the first is a condition."""
    first = int(chooses)
    if all(term.number for term in terms[first:]):
        terms[first] = NumpyTerm(terms[first].typed, ATOM, ())
    if chooses and terms[0].number:
        terms[0] = NumpyTerm(terms[0].typed, ATOM, ())
    return terms


def _call_term(name: str, terms: Sequence[NumpyTerm], shape: Shape) -> NumpyTerm:
    return NumpyTerm(f"{name}({', '.join(term.text for term in terms)})", ATOM, shape)


def reduce_term(kind: Reduce, operand: NumpyTerm, source: Node, node: Node, *, keep: bool) -> NumpyTerm:
    """The term of a reduction; `keep`: its axes stay, with extent 1."""
    shape = tuple(ONE if axis in kind.axes else dim for axis, dim in enumerate(source.shape)) if keep else node.shape
    where, flag = _axes(kind.axes, len(source.shape)), ", keepdims=True" if keep else ""
    filled = all((source.shape[axis].constant or 0) > 0 for axis in kind.axes)
    method = _method(kind.monoid, source.dtype, filled, len(kind.axes) == 1)
    if method is None:
        return NumpyTerm(f'reduce("{kind.monoid}", {operand.text}, {where}{flag})', ATOM, shape)
    name, extra = method
    if source.dtype in HALVES and name in ("sum", "prod"):
        return NumpyTerm(f'cast(cast({operand.text}, "f32").{name}({where}{flag}), "{node.dtype.value}")', ATOM, shape)
    return NumpyTerm(f"{operand.within(ATOM)}.{name}({where}{flag}{extra})", ATOM, shape)


def _axes(axes: Sequence[int], rank: int) -> str:
    if len(axes) > 1:
        return f"({', '.join(map(str, axes))})"
    return "-1" if axes[0] == rank - 1 else str(axes[0])


def _method(monoid: str, dtype: DType, filled: bool, single: bool) -> tuple[str, str] | None:
    """The array method for a monoid, with further arguments as text; None if NumPy has none."""
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
    """The term of a scan along an axis."""
    plain = kind.monoid == "sum" and source.dtype in (DType.F32, DType.F64, DType.I64)
    where = "-1" if kind.axis == len(source.shape) - 1 else str(kind.axis)
    if plain and not kind.exclusive and not kind.reverse:
        return NumpyTerm(f"{operand.within(ATOM)}.cumsum({where})", ATOM, source.shape)
    flags = "".join(f", {name}=True" for name in ("exclusive", "reverse") if getattr(kind, name))
    return NumpyTerm(f'scan("{kind.monoid}", {operand.text}, {where}{flags})', ATOM, source.shape)


def contract_term(equation: str, operands: Sequence[NumpyTerm], node: Node) -> NumpyTerm:
    """The term of an einsum; 16-bit floats are summed in float32."""
    if node.dtype not in HALVES:
        return NumpyTerm(f'np.einsum("{equation}", {", ".join(term.text for term in operands)})', ATOM, node.shape)
    wide = ", ".join(f'cast({term.text}, "f32")' for term in operands)
    return NumpyTerm(f'cast(np.einsum("{equation}", {wide}), "{node.dtype.value}")', ATOM, node.shape)
