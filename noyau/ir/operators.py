"""The table of scalar functions: what each means, for every front end, language and interpreter.

`evaluate` is the meaning: on float64 arrays it is the truth. docs/semantics.md is generated from this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import GraphError

Array = np.ndarray
FLOAT, INTEGER, BOOL = frozenset({"float"}), frozenset({"int", "uint"}), frozenset({"bool"})
NUMBER = FLOAT | INTEGER
ANY = NUMBER | BOOL


@dataclass(frozen=True, slots=True)
class Operator:
    """A scalar function. `flops` is its cost in float32 additions; `ulp` its promised error in float32 and
    float64 (0: correctly rounded or exact)."""

    name: str
    arity: int
    accepts: frozenset[str]
    result: str  # "same" as the operands, or "bool"
    evaluate: Callable[..., Any]
    flops: int = 1
    ulp: float = 0.0
    note: str = ""


def dtype_of(name: str, operands: tuple[DType, ...]) -> DType:
    """The result dtype of a scalar function; GraphError where it does not take these operands."""
    operator = OPERATORS[name]
    values = operands[1:] if name == "where" else operands
    if len(operands) != operator.arity:
        raise GraphError(f"{name} takes {operator.arity} operands, not {len(operands)}")
    if len(set(values)) != 1 or values[0].kind not in operator.accepts:
        raise GraphError(f"{name} cannot take {', '.join(d.value for d in operands)}: cast them first")
    if name == "where" and operands[0] is not DType.BOOL:
        raise GraphError(f"where needs a bool condition, not {operands[0].value}")
    return DType.BOOL if operator.result == "bool" else values[0]


def _pointwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of the math module over arrays; computed in double, rounded once."""
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(ufunc(x)).astype(np.asarray(x).dtype)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def _softplus(x: Array) -> Array:
    return (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype)


def _truncate_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    quotient = _floor_divide(a, b)
    return (quotient + ((np.not_equal(_floor_mod(a, b), 0)) & ((a < 0) != (b < 0)))).astype(a.dtype)


def _nonzero(b: Array) -> Array:
    """Integer division by zero is undefined; here it divides by one, so that no trap is met."""
    return np.where(b == 0, np.ones_like(b), b) if b.dtype.kind in "iu" else b


def _floor_divide(a: Array, b: Array) -> Array:
    return np.floor_divide(a, _nonzero(b))


def _floor_mod(a: Array, b: Array) -> Array:
    return np.mod(a, _nonzero(b))


def _fmod(a: Array, b: Array) -> Array:
    return np.fmod(a, _nonzero(b))


def _divide(a: Array, b: Array) -> Array:
    return _truncate_divide(a, b) if a.dtype.kind in "iu" else np.divide(a, b)


def _rsqrt(x: Array) -> Array:
    return np.divide(1, np.sqrt(x)).astype(x.dtype)


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    return np.power(a, np.maximum(b, 0)) if a.dtype.kind == "u" else _integer_power(a, b)


def _integer_power(a: Array, b: Array) -> Array:
    whole = np.power(a, np.maximum(b, 0))
    small = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b >= 0, whole, small).astype(a.dtype)


def _shift(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def shifted(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        return np.where((b >= 0) & (b < width), function(a, np.clip(b, 0, width - 1)), 0).astype(a.dtype)

    return shifted


def _sign(x: Array) -> Array:
    return np.sign(x)


_TABLE = (
    Operator("identity", 1, ANY, "same", lambda x: x, 0),
    Operator("negative", 1, NUMBER, "same", np.negative),
    Operator("abs", 1, NUMBER, "same", np.abs),
    Operator("sign", 1, NUMBER, "same", _sign, note="NaN stays NaN"),
    Operator("add", 2, NUMBER, "same", np.add),
    Operator("subtract", 2, NUMBER, "same", np.subtract),
    Operator("multiply", 2, NUMBER, "same", np.multiply),
    Operator("divide", 2, NUMBER, "same", _divide, 4, note="integers: truncates; by zero undefined"),
    Operator("floor_divide", 2, NUMBER, "same", _floor_divide, 5, note="integers: by zero undefined"),
    Operator("floor_mod", 2, NUMBER, "same", _floor_mod, 6, note="sign of the divisor, as Python"),
    Operator("fmod", 2, NUMBER, "same", _fmod, 6, note="sign of the dividend, as C"),
    Operator("power", 2, NUMBER, "same", _power, 40, 1.0, "float32 through double; negative integer powers truncate"),
    Operator("exp", 1, FLOAT, "same", np.exp, 10, 2.0),
    Operator("exp2", 1, FLOAT, "same", np.exp2, 10, 2.0),
    Operator("expm1", 1, FLOAT, "same", np.expm1, 14, 2.0),
    Operator("log", 1, FLOAT, "same", np.log, 12, 2.0),
    Operator("log2", 1, FLOAT, "same", np.log2, 12, 2.0),
    Operator("log10", 1, FLOAT, "same", np.log10, 12, 2.0),
    Operator("log1p", 1, FLOAT, "same", np.log1p, 14, 2.0),
    Operator("sqrt", 1, FLOAT, "same", np.sqrt, 4),
    Operator("rsqrt", 1, FLOAT, "same", _rsqrt, 8, 2.0),
    Operator("reciprocal", 1, FLOAT, "same", lambda x: np.divide(1, x).astype(x.dtype), 4),
    Operator("sin", 1, FLOAT, "same", np.sin, 14, 2.0),
    Operator("cos", 1, FLOAT, "same", np.cos, 14, 2.0),
    Operator("tan", 1, FLOAT, "same", np.tan, 20, 2.0),
    Operator("asin", 1, FLOAT, "same", np.arcsin, 16, 2.0),
    Operator("acos", 1, FLOAT, "same", np.arccos, 16, 2.0),
    Operator("atan", 1, FLOAT, "same", np.arctan, 16, 2.0),
    Operator("sinh", 1, FLOAT, "same", np.sinh, 20, 2.0),
    Operator("cosh", 1, FLOAT, "same", np.cosh, 20, 2.0),
    Operator("tanh", 1, FLOAT, "same", np.tanh, 14, 2.0),
    Operator("asinh", 1, FLOAT, "same", np.arcsinh, 20, 2.0),
    Operator("acosh", 1, FLOAT, "same", np.arccosh, 20, 2.0),
    Operator("atanh", 1, FLOAT, "same", np.arctanh, 20, 2.0),
    Operator("erf", 1, FLOAT, "same", _pointwise(math.erf), 16, 2.0),
    Operator("sigmoid", 1, FLOAT, "same", _sigmoid, 14, 2.0),
    Operator("softplus", 1, FLOAT, "same", _softplus, 24, 2.0, "log(1 + exp(x)), without overflow"),
    Operator("floor", 1, FLOAT, "same", np.floor),
    Operator("ceil", 1, FLOAT, "same", np.ceil),
    Operator("truncate", 1, FLOAT, "same", np.trunc),
    Operator("round_even", 1, FLOAT, "same", np.rint, note="halves to even"),
    Operator("maximum", 2, ANY, "same", np.maximum, note="NaN if either is NaN"),
    Operator("minimum", 2, ANY, "same", np.minimum, note="NaN if either is NaN"),
    Operator("fmax", 2, NUMBER, "same", np.fmax, note="the other one if either is NaN"),
    Operator("fmin", 2, NUMBER, "same", np.fmin, note="the other one if either is NaN"),
    Operator("equal", 2, ANY, "bool", np.equal, note="NaN equals nothing"),
    Operator("not_equal", 2, ANY, "bool", np.not_equal),
    Operator("less", 2, NUMBER, "bool", np.less),
    Operator("less_equal", 2, NUMBER, "bool", np.less_equal),
    Operator("greater", 2, NUMBER, "bool", np.greater),
    Operator("greater_equal", 2, NUMBER, "bool", np.greater_equal),
    Operator("logical_and", 2, BOOL, "same", np.logical_and),
    Operator("logical_or", 2, BOOL, "same", np.logical_or),
    Operator("logical_xor", 2, BOOL, "same", np.logical_xor),
    Operator("logical_not", 1, BOOL, "same", np.logical_not),
    Operator("bitwise_and", 2, INTEGER, "same", np.bitwise_and),
    Operator("bitwise_or", 2, INTEGER, "same", np.bitwise_or),
    Operator("bitwise_xor", 2, INTEGER, "same", np.bitwise_xor),
    Operator("bitwise_not", 1, INTEGER, "same", np.invert),
    Operator("shift_left", 2, INTEGER, "same", _shift(np.left_shift), note="beyond the width: undefined"),
    Operator("shift_right", 2, INTEGER, "same", _shift(np.right_shift), note="beyond the width: undefined"),
    Operator("is_nan", 1, FLOAT, "bool", np.isnan),
    Operator("is_inf", 1, FLOAT, "bool", np.isinf),
    Operator("where", 3, ANY, "same", np.where, note="a select: the branch not taken never matters"),
    Operator("cast", 1, ANY, "cast", lambda x: x, note="float to integer truncates; out of range undefined"),
)

OPERATORS = {operator.name: operator for operator in _TABLE}
UNDEFINED = (
    "float to integer out of range or NaN",
    "shifts by a negative count or beyond the width",
    "integer division and modulo by zero",
    "signed integer overflow wraps",
)
