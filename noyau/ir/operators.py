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
MOVED = ANY | {"float8"}  # what is only cast or moved, too


@dataclass(frozen=True, slots=True)
class Operator:
    """A scalar function of x, of a and b, or of a, b and c. `flops` is its cost in float32 additions; `ulp` its
    promised error in float32 and float64 (0: correctly rounded or exact)."""

    name: str
    meaning: str
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


def _sigmoid(x: Array) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def _softplus(x: Array) -> Any:
    return (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype)


def _truncate_divide(a: Array, b: Array) -> Any:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    quotient = _floor_divide(a, b)
    return (quotient + ((np.not_equal(_floor_mod(a, b), 0)) & ((a < 0) != (b < 0)))).astype(a.dtype)


def _nonzero(b: Array) -> Any:
    """Integer division by zero is undefined; here it divides by one, so that no trap is met."""
    return np.where(b == 0, np.ones_like(b), b) if b.dtype.kind in "iu" else b


def _floor_divide(a: Array, b: Array) -> Any:
    return np.floor_divide(a, _nonzero(b))


def _floor_mod(a: Array, b: Array) -> Any:
    return np.mod(a, _nonzero(b))


def _fmod(a: Array, b: Array) -> Any:
    return np.fmod(a, _nonzero(b))


def _divide(a: Array, b: Array) -> Any:
    return _truncate_divide(a, b) if a.dtype.kind in "iu" else np.divide(a, b)


def _rsqrt(x: Array) -> Any:
    return np.divide(1, np.sqrt(x)).astype(x.dtype)


def _power(a: Array, b: Array) -> Any:
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    return np.power(a, np.maximum(b, 0)) if a.dtype.kind == "u" else _integer_power(a, b)


def _integer_power(a: Array, b: Array) -> Any:
    whole = np.power(a, np.maximum(b, 0))
    small = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b >= 0, whole, small).astype(a.dtype)


def _shift(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def shifted(a: Array, b: Array) -> Any:
        width = a.dtype.itemsize * 8
        return np.where((b >= 0) & (b < width), function(a, np.clip(b, 0, width - 1)), 0).astype(a.dtype)

    return shifted


def _sign(x: Array) -> Any:
    return np.sign(x)


_TABLE = (
    Operator("identity", "x", 1, MOVED, "same", lambda x: x, 0),
    Operator(
        "rounded", "x", 1, FLOAT, "same", lambda x: x, note="a product in x is rounded, not fused with what follows"
    ),
    Operator("negative", "-x", 1, NUMBER, "same", np.negative),
    Operator("abs", "|x|", 1, NUMBER, "same", np.abs),
    Operator("sign", "-1, 0 or 1", 1, NUMBER, "same", _sign, note="NaN stays NaN"),
    Operator("add", "a + b", 2, NUMBER, "same", np.add),
    Operator("subtract", "a - b", 2, NUMBER, "same", np.subtract),
    Operator("multiply", "a * b", 2, NUMBER, "same", np.multiply),
    Operator("divide", "a / b", 2, NUMBER, "same", _divide, 4, note="integers: truncates; by zero undefined"),
    Operator(
        "floor_divide", "floor(a / b)", 2, NUMBER, "same", _floor_divide, 5, 2.0, note="integers: by zero undefined"
    ),
    Operator("floor_mod", "a - b * floor(a / b)", 2, NUMBER, "same", _floor_mod, 6, note="sign of the divisor"),
    Operator("fmod", "a - b * truncate(a / b)", 2, NUMBER, "same", _fmod, 6, note="sign of the dividend"),
    Operator("power", "a ** b", 2, NUMBER, "same", _power, 40, 1.0, "float32 in double; integers below 0 truncate"),
    Operator("exp", "e ** x", 1, FLOAT, "same", np.exp, 10, 2.0),
    Operator("exp2", "2 ** x", 1, FLOAT, "same", np.exp2, 10, 2.0),
    Operator("expm1", "exp(x) - 1, exact near 0", 1, FLOAT, "same", np.expm1, 14, 2.0),
    Operator("log", "the natural logarithm of x", 1, FLOAT, "same", np.log, 12, 2.0),
    Operator("log2", "the logarithm of x to the base 2", 1, FLOAT, "same", np.log2, 12, 2.0),
    Operator("log10", "the logarithm of x to the base 10", 1, FLOAT, "same", np.log10, 12, 2.0),
    Operator("log1p", "log(1 + x), exact near 0", 1, FLOAT, "same", np.log1p, 14, 2.0),
    Operator("sqrt", "the square root of x", 1, FLOAT, "same", np.sqrt, 4),
    Operator("rsqrt", "1 / sqrt(x)", 1, FLOAT, "same", _rsqrt, 8, 2.0),
    Operator("reciprocal", "1 / x", 1, FLOAT, "same", lambda x: np.divide(1, x).astype(x.dtype), 4),
    Operator("sin", "the sine of x", 1, FLOAT, "same", np.sin, 14, 2.0),
    Operator("cos", "the cosine of x", 1, FLOAT, "same", np.cos, 14, 2.0),
    Operator("tan", "the tangent of x", 1, FLOAT, "same", np.tan, 20, 2.0),
    Operator("asin", "the arc sine of x", 1, FLOAT, "same", np.arcsin, 16, 2.0),
    Operator("acos", "the arc cosine of x", 1, FLOAT, "same", np.arccos, 16, 2.0),
    Operator("atan", "the arc tangent of x", 1, FLOAT, "same", np.arctan, 16, 2.0),
    Operator("sinh", "the hyperbolic sine of x", 1, FLOAT, "same", np.sinh, 20, 2.0),
    Operator("cosh", "the hyperbolic cosine of x", 1, FLOAT, "same", np.cosh, 20, 2.0),
    Operator("tanh", "the hyperbolic tangent of x", 1, FLOAT, "same", np.tanh, 14, 2.0),
    Operator("asinh", "the inverse of sinh", 1, FLOAT, "same", np.arcsinh, 20, 2.0),
    Operator("acosh", "the inverse of cosh", 1, FLOAT, "same", np.arccosh, 20, 2.0),
    Operator("atanh", "the inverse of tanh", 1, FLOAT, "same", np.arctanh, 20, 2.0),
    Operator("erf", "the error function of x", 1, FLOAT, "same", _pointwise(math.erf), 16, 2.0),
    Operator("sigmoid", "1 / (1 + exp(-x))", 1, FLOAT, "same", _sigmoid, 14, 3.0),
    Operator("softplus", "log(1 + exp(x))", 1, FLOAT, "same", _softplus, 24, 2.0, "without overflow"),
    Operator("floor", "the largest whole number <= x", 1, FLOAT, "same", np.floor),
    Operator("ceil", "the least whole number >= x", 1, FLOAT, "same", np.ceil),
    Operator("truncate", "x without its fraction", 1, FLOAT, "same", np.trunc),
    Operator("round_even", "the nearest whole number", 1, FLOAT, "same", np.rint, note="halves to even"),
    Operator("maximum", "the larger of a and b", 2, ANY, "same", np.maximum, note="NaN if either is NaN"),
    Operator("minimum", "the smaller of a and b", 2, ANY, "same", np.minimum, note="NaN if either is NaN"),
    Operator("fmax", "the larger of a and b", 2, NUMBER, "same", np.fmax, note="the other one if either is NaN"),
    Operator("fmin", "the smaller of a and b", 2, NUMBER, "same", np.fmin, note="the other one if either is NaN"),
    Operator("equal", "a = b", 2, ANY, "bool", np.equal, note="NaN equals nothing"),
    Operator("not_equal", "not (a = b)", 2, ANY, "bool", np.not_equal),
    Operator("less", "a < b", 2, NUMBER, "bool", np.less),
    Operator("less_equal", "a <= b", 2, NUMBER, "bool", np.less_equal),
    Operator("greater", "a > b", 2, NUMBER, "bool", np.greater),
    Operator("greater_equal", "a >= b", 2, NUMBER, "bool", np.greater_equal),
    Operator("logical_and", "a and b", 2, BOOL, "same", np.logical_and),
    Operator("logical_or", "a or b", 2, BOOL, "same", np.logical_or),
    Operator("logical_xor", "one of a and b, not both", 2, BOOL, "same", np.logical_xor),
    Operator("logical_not", "not x", 1, BOOL, "same", np.logical_not),
    Operator("bitwise_and", "a and b, bit by bit", 2, INTEGER, "same", np.bitwise_and),
    Operator("bitwise_or", "a or b, bit by bit", 2, INTEGER, "same", np.bitwise_or),
    Operator("bitwise_xor", "a xor b, bit by bit", 2, INTEGER, "same", np.bitwise_xor),
    Operator("bitwise_not", "not x, bit by bit", 1, INTEGER, "same", np.invert),
    Operator("shift_left", "a * 2 ** b", 2, INTEGER, "same", _shift(np.left_shift), note="beyond width: undefined"),
    Operator("shift_right", "a // 2 ** b", 2, INTEGER, "same", _shift(np.right_shift), note="beyond width: undefined"),
    Operator("is_nan", "whether x is NaN", 1, FLOAT, "bool", np.isnan),
    Operator("is_inf", "whether x is inf or -inf", 1, FLOAT, "bool", np.isinf),
    Operator(
        "where", "b where a is true, else c", 3, MOVED, "same", np.where, note="the branch not taken never matters"
    ),
    Operator("cast", "x in another dtype", 1, MOVED, "cast", lambda x: x, note="float to integer truncates"),
)

OPERATORS = {operator.name: operator for operator in _TABLE}
UNDEFINED = (
    "float to integer out of range or NaN",
    "shifts by a negative count or beyond the width",
    "integer division and modulo by zero",
)
