"""Scalar functions as ONNX operators, with the semantics of the operator table, including NaN and wrapping integers.

A function is one operator if the CPU kernels of onnxruntime compute it to the table's accuracy, in the dtypes that they
support; else it is composed of several. A function that neither way gives is refused."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from noyau.codegen.numpy.maps import broadcast
from noyau.codegen.onnx.emitter import NodeWriter, OnnxTerm
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.operators import INTEGER, MOVED, OPERATORS, Fact, has

_BOOLEAN = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf", "And", "Or", "Xor", "Not")
_LARGEST_POWER = 64
Spelling: TypeAlias = Callable[..., OnnxTerm]


@dataclass(frozen=True, slots=True)
class CellWriter:
    """Emitter of elementwise operators on values that broadcast."""

    writer: NodeWriter

    def __call__(self, operator: str, *terms: OnnxTerm, **attributes: int | str) -> OnnxTerm:
        name = self.writer.emit(operator, *(term.name for term in terms), **attributes)
        dtype = DType.BOOL if operator in _BOOLEAN else terms[-1].dtype
        return OnnxTerm(name, dtype, broadcast([term.shape for term in terms]))

    def number(self, value: float, like: OnnxTerm) -> OnnxTerm:
        return self.writer.number(value, like.dtype)

    def where(self, condition: OnnxTerm, yes: OnnxTerm, no: OnnxTerm) -> OnnxTerm:
        return self("Where", condition, yes, no)

    def log1p(self, x: OnnxTerm) -> OnnxTerm:
        """log(1 + x) = log(u) x / (u - 1) with u = 1 + x rounded (Goldberg 1991, theorem 4)."""
        one = self.number(1, x)
        u = self("Add", x, one)
        exact = self("Or", self("Equal", u, one), self("IsInf", u, detect_negative=0))
        return self.where(exact, x, self("Mul", self("Log", u), self("Div", x, self("Sub", u, one))))

    def expm1(self, x: OnnxTerm) -> OnnxTerm:
        """exp(x) - 1 = tanh(x / 2) (exp(x) + 1)."""
        half = self("Tanh", self("Mul", x, self.number(0.5, x)))
        return self("Mul", half, self("Add", self("Exp", x), self.number(1, x)))

    def sign_of(self, x: OnnxTerm, magnitude: OnnxTerm) -> OnnxTerm:
        """A magnitude with the sign of x."""
        return self.where(self("Less", x, self.number(0, x)), self("Neg", magnitude), magnitude)

    def remainder(self, a: OnnxTerm, b: OnnxTerm) -> tuple[OnnxTerm, OnnxTerm]:
        """a - b truncate(a / b), exactly, and whether the floored remainder is that plus b: the signs differ."""
        rest = self("Mod", a, b, fmod=1)
        zero = self.number(0, a)
        turned = self("Xor", self("Less", rest, zero), self("Less", b, zero))
        return rest, self("And", self("Not", self("Equal", rest, zero)), turned)

    def divisor(self, b: OnnxTerm) -> OnnxTerm:
        """An integer divisor, with 0 replaced by 1: the result is undefined, but the process must not trap."""
        if self.writer.number_of(b.name):
            return b
        return self.where(self("Equal", b, self.number(0, b)), self.number(1, b), b)


def _plain(operator: str, **attributes: int | str) -> Spelling:
    return lambda cells, *terms: cells(operator, *terms, **attributes)


def _sigmoid(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    """1 / (1 + exp(-x)) by a form for each sign that does not overflow; onnxruntime's own Sigmoid is clamped at 18."""
    small, one = cells("Exp", cells("Neg", cells("Abs", x))), cells.number(1, x)
    return cells("Div", cells.where(cells("Less", x, cells.number(0, x)), small, one), cells("Add", one, small))


def _softplus(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    small = cells("Exp", cells("Neg", cells("Abs", x)))
    return cells("Add", cells("Max", x, cells.number(0, x)), cells.log1p(small))


def _sign(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    """The sign. ONNX's Sign does not keep NaN everywhere, and for i64 above 2^31 it is wrong in onnxruntime 1.31.1."""
    if x.dtype.is_float:
        return cells.where(cells("IsNaN", x), x, cells("Sign", x))
    zero, one, below = (cells.number(value, x) for value in (0, 1, -1))
    positive = cells.where(cells("Greater", x, zero), one, zero)
    return cells.where(cells("Less", x, zero), below, positive)


def _extreme(operator: str, cells: CellWriter, a: OnnxTerm, b: OnnxTerm) -> OnnxTerm:
    """The larger or the smaller operand. Max and Min of i64 above 2^31 are wrong in onnxruntime 1.31.1."""
    match a.dtype:
        case DType.BOOL:
            return cells("Or" if operator == "Max" else "And", a, b)
        case DType.I64:
            return cells.where(cells("Greater" if operator == "Max" else "Less", a, b), a, b)
        case _:
            return cells(operator, a, b)


def _fmax(operator: str, cells: CellWriter, a: OnnxTerm, b: OnnxTerm) -> OnnxTerm:
    if not a.dtype.is_float:
        return _extreme(operator, cells, a, b)
    either = cells.where(cells("IsNaN", b), a, cells(operator, a, b))
    return cells.where(cells("IsNaN", a), b, either)


def _logarithm(base: float) -> Spelling:
    return lambda cells, x: cells("Mul", cells("Log", x), cells.number(1 / math.log(base), x))


def _floor_divide(cells: CellWriter, a: OnnxTerm, b: OnnxTerm) -> OnnxTerm:
    if not a.dtype.is_float:
        b = cells.divisor(b)
        quotient, rest = cells("Div", a, b), cells("Mod", a, b)
        fits = cells("Equal", cells("Add", cells("Mul", quotient, b), rest), a)
        return cells.where(fits, quotient, cells("Sub", quotient, cells.number(1, a)))
    rest, turned = cells.remainder(a, b)
    whole = cells("Div", cells("Sub", a, rest), b)
    whole = cells("Round", cells.where(turned, cells("Sub", whole, cells.number(1, a)), whole))
    return cells.where(cells("Equal", b, cells.number(0, b)), cells("Div", a, b), whole)


def _floor_mod(cells: CellWriter, a: OnnxTerm, b: OnnxTerm) -> OnnxTerm:
    if not a.dtype.is_float:
        return cells("Mod", a, cells.divisor(b))
    rest, turned = cells.remainder(a, b)
    return cells.where(turned, cells("Add", rest, b), rest)


def _fmod(cells: CellWriter, a: OnnxTerm, b: OnnxTerm) -> OnnxTerm:
    if a.dtype.is_float:
        return cells("Mod", a, b, fmod=1)
    b = cells.divisor(b)  # Mod of integers with fmod=1 goes through floats
    return cells("Sub", a, cells("Mul", cells("Div", a, b), b))


def _power(cells: CellWriter, a: OnnxTerm, b: OnnxTerm) -> OnnxTerm:
    if a.dtype.is_float:
        return cells("Pow", a, b)
    exponent = cells.writer.number_of(b.name)
    if exponent is None or not 0 <= exponent <= _LARGEST_POWER:
        unknown = "a power of integers has no ONNX operator that keeps its bits (Pow goes through floats)"
        raise UnsupportedError(f"{unknown}: fix the exponent")
    power = cells.number(1, a)
    for bit in f"{int(exponent):b}":
        power = cells("Mul", power, power) if power.shape or bit == "0" else power
        power = cells("Mul", power, a) if bit == "1" else power
    return power


def _cbrt(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    """A power, corrected by a step of Newton's method for the rounding of 1/3."""
    size, three = cells("Abs", x), cells.number(3, x)
    root = cells("Pow", size, cells.number(1 / 3, x))
    beyond = cells("Sub", root, cells("Div", size, cells("Mul", root, root)))
    usual = cells("And", cells("Greater", size, cells.number(0, x)), cells("Not", cells("IsInf", size)))
    return cells.where(usual, cells.sign_of(x, cells("Sub", root, cells("Div", beyond, three))), x)  # -0 stays


def _sinh(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    t = cells.expm1(cells("Abs", x))
    grown = cells("Add", t, cells("Div", t, cells("Add", t, cells.number(1, x))))
    grown = cells.where(cells("IsInf", t), t, grown)
    return cells.sign_of(x, cells("Mul", grown, cells.number(0.5, x)))


def _cosh(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    e = cells("Exp", cells("Abs", x))
    return cells("Mul", cells("Add", e, cells("Reciprocal", e)), cells.number(0.5, x))


def _asinh(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    """sign(x) log1p(t + t^2 / (1 + sqrt(t^2 + 1))) with t = |x|; log(2 t) where t^2 would overflow."""
    t, one = cells("Abs", x), cells.number(1, x)
    square = cells("Mul", t, t)
    root = cells("Add", one, cells("Sqrt", cells("Add", square, one)))
    near = cells.log1p(cells("Add", t, cells("Div", square, root)))
    return cells.sign_of(x, cells.where(_is_large(cells, t), _log_of_twice(cells, t), near))


def _acosh(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    """log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1; log(2 x) where that would overflow."""
    t = cells("Sub", x, cells.number(1, x))
    root = cells("Mul", cells("Sqrt", t), cells("Sqrt", cells("Add", t, cells.number(2, x))))
    return cells.where(_is_large(cells, x), _log_of_twice(cells, x), cells.log1p(cells("Add", t, root)))


def _is_large(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    return cells("Greater", x, cells.number(1e10, x))


def _log_of_twice(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    return cells("Add", cells("Log", x), cells.number(math.log(2), x))


def _atanh(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    twice = cells("Div", cells("Mul", x, cells.number(2, x)), cells("Sub", cells.number(1, x), x))
    return cells("Mul", cells.log1p(twice), cells.number(0.5, x))


def _atan2(cells: CellWriter, y: OnnxTerm, x: OnnxTerm) -> OnnxTerm:
    """The angle in the first quadrant by Atan, then mirrored by the signs of x and y, including signed zeros."""
    height, width, zero = cells("Abs", y), cells("Abs", x), cells.number(0, y)
    corner = cells.where(cells("Equal", height, zero), height, cells.number(math.pi / 4, y))
    first = cells.where(cells("Equal", height, width), corner, cells("Atan", cells("Div", height, width)))
    turned = cells.where(_is_negative(cells, x), cells("Sub", cells.number(math.pi, y), first), first)
    return cells.where(_is_negative(cells, y), cells("Neg", turned), turned)


def _is_negative(cells: CellWriter, x: OnnxTerm) -> OnnxTerm:
    """Whether x is below 0, or -0.0, whose reciprocal is -inf."""
    zero = cells.number(0, x)
    below = cells("And", cells("Equal", x, zero), cells("Less", cells("Reciprocal", x), zero))
    return cells("Or", cells("Less", x, zero), below)


def _by_width(chosen: Spelling, otherwise: Spelling) -> Spelling:
    """A spelling for float64, in which onnxruntime lacks the operator, and another for float32."""
    return lambda cells, x: (chosen if x.dtype is DType.F64 else otherwise)(cells, x)


SPELLINGS: dict[str, Spelling] = {
    **{
        each.name: _plain(each.names.onnx)
        for each in OPERATORS.values()
        if each.names.onnx and each.accepts not in (INTEGER, MOVED)
    },
    "sign": _sign,
    "divide": lambda cells, a, b: cells("Div", a, b if a.dtype.is_float else cells.divisor(b)),
    "floor_divide": _floor_divide,
    "floor_mod": _floor_mod,
    "fmod": _fmod,
    "power": _power,
    "cbrt": _cbrt,
    "exp2": lambda cells, x: cells("Pow", cells.number(2, x), x),
    "expm1": CellWriter.expm1,
    "log2": _logarithm(2),
    "log10": _logarithm(10),
    "log1p": CellWriter.log1p,
    "rsqrt": lambda cells, x: cells("Reciprocal", cells("Sqrt", x)),
    "atan2": _atan2,
    "tan": _by_width(lambda cells, x: cells("Div", cells("Sin", x), cells("Cos", x)), _plain("Tan")),
    "sinh": _by_width(_sinh, _plain("Sinh")),
    "cosh": _by_width(_cosh, _plain("Cosh")),
    "asinh": _by_width(_asinh, _plain("Asinh")),
    "acosh": _by_width(_acosh, _plain("Acosh")),
    "atanh": _by_width(_atanh, _plain("Atanh")),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "truncate": lambda cells, x: cells.where(cells("Less", x, cells.number(0, x)), cells("Ceil", x), cells("Floor", x)),
    "maximum": partial(_extreme, "Max"),
    "minimum": partial(_extreme, "Min"),
    "fmax": partial(_fmax, "Max"),
    "fmin": partial(_fmax, "Min"),
    "not_equal": lambda cells, a, b: cells("Not", cells("Equal", a, b)),
}
_IN_FLOAT32_ALONE = frozenset({"asin", "acos", "atan", "atan2", "erf"})
_OF_NO_SIGN: dict[str, Spelling] = {
    "abs": lambda cells, x: x,
    "sign": lambda cells, x: cells.where(cells("Equal", x, cells.number(0, x)), x, cells.number(1, x)),
}


def map_term(cells: CellWriter, function: str, operands: Sequence[OnnxTerm], dtype: DType) -> OnnxTerm:
    """The term of a function of values, as `dtype`, that of the node. UnsupportedError where ONNX cannot express it."""
    writer, source = cells.writer, operands[-1].dtype
    if function in ("identity", "rounded"):
        return operands[0]
    if function == "cast":
        return cast(cells, operands[0], dtype)
    if function == "where":
        return _where(cells, *operands)
    if function.startswith("shift"):
        return _shift(cells, function, *operands)
    if OPERATORS[function].accepts == INTEGER:
        return cells(OPERATORS[function].names.onnx, *operands)
    if function not in SPELLINGS:
        raise UnsupportedError(f"the function {function} has no ONNX operator")
    if source is DType.F64 and function in _IN_FLOAT32_ALONE:
        raise UnsupportedError(f"{function} of f64 has no kernel in onnxruntime: calculate it in f32")
    if source is DType.U64 and has(function, Fact.ZERO_DIVISOR):
        raise UnsupportedError(f"{function} of u64 has no kernel in onnxruntime: calculate it in i64")
    arguments = list(map(writer.widen, operands))
    turned = source is DType.U64 and has(function, Fact.ORDERED)
    spelling = _OF_NO_SIGN.get(function, SPELLINGS[function]) if source.kind == "uint" else SPELLINGS[function]
    value = spelling(cells, *(_flip_sign_bit(cells, term) if turned else term for term in arguments))
    return writer.cast(_flip_sign_bit(cells, value) if turned and value.dtype is not DType.BOOL else value, dtype)


def _flip_sign_bit(cells: CellWriter, term: OnnxTerm) -> OnnxTerm:
    """A u64 in an i64 with the sign bit flipped, so that the order is that of the u64; and back."""
    return cells("Add", term, cells.number(np.iinfo(np.int64).min, term))


def cast(cells: CellWriter, term: OnnxTerm, dtype: DType) -> OnnxTerm:
    """A value in another dtype; bfloat16 is cast through float32, the only dtype that all kernels support."""
    if DType.BF16 in (term.dtype, dtype) and DType.F32 not in (term.dtype, dtype):
        term = cells.writer.cast(term, DType.F32)
    return cells.writer.cast(term, dtype)


def _where(cells: CellWriter, condition: OnnxTerm, yes: OnnxTerm, no: OnnxTerm) -> OnnxTerm:
    dtype = yes.dtype
    if dtype is DType.BOOL:
        return cells("Or", cells("And", condition, yes), cells("And", cells("Not", condition), no))
    return cells.writer.cast(cells.where(condition, *map(cells.writer.widen, (yes, no))), dtype)


def _shift(cells: CellWriter, function: str, value: OnnxTerm, count: OnnxTerm) -> OnnxTerm:
    """A shift by any count; BitShift itself takes only counts within the width."""
    last, known = 8 * value.dtype.bytes - 1, cells.writer.numbers.get(count.name)
    if known is not None and 0 <= known.item() <= last:
        return _bit_shift(cells, function, value, count)
    wide = cells.writer.cast(count, DType.I64)
    low, high = (cells("Less", *pair) for pair in ((wide, cells.number(0, wide)), (cells.number(last, wide), wide)))
    beyond = cells("Or", low, high)
    shifted = _bit_shift(cells, function, value, cells.where(beyond, cells.number(last, wide), wide))
    if function == "shift_right" and value.dtype.kind == "int":  # a shift by the width - 1 leaves the sign
        return shifted
    return _where(cells, beyond, cells.number(0, value), shifted)


def _bit_shift(cells: CellWriter, function: str, value: OnnxTerm, count: OnnxTerm) -> OnnxTerm:
    """A shift by BitShift, which supports unsigned 32 and 64 bits; a negative number shifts right by its complement."""
    dtype, long = value.dtype, value.dtype.bytes == 8
    bare = DType.U64 if long else DType.U32
    if function == "shift_left":
        shifted = cells("BitShift", *(cells.writer.cast(term, bare) for term in (value, count)), direction="LEFT")
        return cells.writer.cast(shifted, dtype)
    unsigned, turns = value, None
    if dtype.kind == "int":
        signed = cells.writer.cast(value, DType.I64 if long else DType.I32)
        zero = cells.number(0, signed)
        turns = cells.where(cells("Less", signed, zero), cells.number(-1, signed), zero)
        unsigned = cells("BitwiseXor", signed, turns)
    shifted = cells("BitShift", *(cells.writer.cast(term, bare) for term in (unsigned, count)), direction="RIGHT")
    if turns is not None:
        shifted = cells("BitwiseXor", cells.writer.cast(shifted, turns.dtype), turns)
    return cells.writer.cast(shifted, dtype)
