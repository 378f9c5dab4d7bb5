"""The table of scalar functions: the meaning of each, its algebra, its derivative, and its names in the front ends.

`evaluate` is the meaning: on float64 arrays it is the truth. docs/semantics.md is generated from this table.

Derivatives are formulas over an algebra (arrays, expressions, nodes of a graph or texts), written with the functions of
the table, so that they can be emitted as nodes, fused, and derived again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, NamedTuple, Protocol

import numpy as np

from noyau.dtypes import DType
from noyau.errors import GraphError

Array = np.ndarray
FLOAT, INTEGER, BOOL = frozenset({"float"}), frozenset({"int", "uint"}), frozenset({"bool"})
NUMBER = FLOAT | INTEGER
ANY = NUMBER | BOOL
MOVED = ANY | {"float8"}  # also types that are only cast or moved
LOG_2, LOG_10, TWO_BY_ROOT_PI = math.log(2), math.log(10), 2 / math.sqrt(math.pi)


class Algebra(Protocol):
    """Application of scalar functions to values of one sort: arrays, expressions, nodes or texts."""

    def call(self, name: str, *operands: Any) -> Any: ...

    def like(self, value: float, other: Any) -> Any:
        """A constant of the dtype of another value."""

    def cast(self, value: Any, dtype: DType) -> Any:
        """A value in another dtype."""


def _operator(function: str) -> Callable[[Any, Formula | float], Formula]:
    return lambda left, right: left.call(function, right)


@dataclass(frozen=True, slots=True)
class Formula:
    """A value of an algebra, with Python's operators; numbers take the dtype of the other operand."""

    algebra: Algebra
    value: Any

    def call(self, name: str, *others: Formula | float) -> Formula:
        return Formula(self.algebra, self.algebra.call(name, self.value, *(self.like(each) for each in others)))

    def like(self, other: Formula | float) -> Any:
        return other.value if isinstance(other, Formula) else self.algebra.like(other, self.value)

    __add__, __sub__ = _operator("add"), _operator("subtract")
    __mul__, __truediv__ = _operator("multiply"), _operator("divide")

    def __rsub__(self, other: float) -> Formula:
        return Formula(self.algebra, self.like(other)) - self

    def __neg__(self) -> Formula:
        return self.call("negative")


Rule = Callable[..., Formula]  # of the operands, the result y and the gradient g of the result


def where(condition: Formula, this: Formula | float, other: Formula | float) -> Formula:
    """Choose between two, at least one of which is a Formula."""
    like = this if isinstance(this, Formula) else other
    assert isinstance(like, Formula)
    return condition.call("where", Formula(like.algebra, like.like(this)), Formula(like.algebra, like.like(other)))


def power_by_first(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
    """Derive a ** b by a: 0 where the exponent is 0, whatever the base is."""
    return where(b.call("equal", 0.0), 0.0, g * (b * a.call("power", b - 1.0)))


def power_by_second(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
    """Derive a ** b by b: 0, the limit, where the base is 0 and the exponent is not below 0."""
    flat = a.call("equal", 0.0).call("logical_and", b.call("greater_equal", 0.0))
    return g * where(flat, 0.0, y * a.call("log"))


def inverse_square_length(a: Formula, b: Formula) -> Formula:
    """1 / (a * a + b * b), but 0 at the origin, as in torch."""
    square = a * a + b * b
    return where(square.call("equal", 0.0), 0.0, square.call("reciprocal"))


def share_among_ties(beaten: str) -> tuple[Rule, Rule]:
    """Derive maximum or minimum: nothing goes to the operand that is beaten, half to each of a tie, as in torch."""
    return (
        lambda a, b, y, g: where(a.call(beaten, b), 0.0, where(a.call("equal", b), g * 0.5, g)),
        lambda a, b, y, g: where(b.call(beaten, a), 0.0, where(a.call("equal", b), g * 0.5, g)),
    )


def first_of_ties(holds: str) -> tuple[Rule, Rule]:
    """Derive fmax or fmin: all goes to the first operand where it wins, in a tie, or where the other is NaN."""

    def wins(a: Formula, b: Formula) -> Formula:
        return a.call(holds, b).call("logical_or", b.call("is_nan"))

    return lambda a, b, y, g: where(wins(a, b), g, 0.0), lambda a, b, y, g: where(wins(a, b), 0.0, g)


class Fact(Flag):
    """The algebra of a function, as passes and checks use it."""

    NONE = 0
    COMMUTATIVE = auto()
    ORDERED = auto()  # depends on which operand is larger
    CHOOSES = auto()  # the result is one of the operands
    LINEAR = auto()  # a gradient goes through it with its sign at most changed
    STEPS = auto()  # constant between its jumps: the derivative is 0
    JUMPS = auto()  # follows its operands between its jumps
    ROUNDS = auto()  # correctly rounded, but not exact
    BELOW_ONE = auto()  # |result| < 1 except at 0, but rounding may reach 1
    LEAVES_ONE = auto()  # 1 only at 0, and larger above, but rounding may stay at 1
    OF_POSITIVES = auto()  # NaN below 0
    NEVER_NEGATIVE = auto()  # of floats: no result is below 0, or -0.0
    KEEPS_SIGN = auto()  # never negative if no operand is negative
    ZERO_DIVISOR = auto()  # undefined where integers are divided by 0


class Api(NamedTuple):
    """Functions of the front ends that mean the same, separated by blanks; an importer may have its own rule."""

    numpy: str = ""
    torch: str = ""
    onnx: str = ""


UNNAMED = Api()


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
    names: Api = UNNAMED
    facts: Fact = Fact.NONE
    derivative: tuple[Rule | None, ...] = ()  # by each operand; () where there is none, or where it steps
    flops: int = 1
    ulp: float = 0.0
    note: str = ""
    instead: str = ""  # the function for dtypes that it does not accept
    negation: str = ""  # its complement; for an ordered one on operands that are not NaN
    mirror: str = ""  # the same function with its operands exchanged, which is the normal form

    @property
    def is_comparison(self) -> bool:
        return self.result == "bool" and self.arity == 2

    def on(self, dtype: DType) -> str:
        """The function that means this one on a dtype: itself, or another where it does not accept the dtype."""
        kind = "float" if dtype.is_float8 else dtype.kind  # values of float8 are cast to float32 first
        return self.name if kind in self.accepts else self.instead or self.name


def has(function: str, fact: Fact) -> bool:
    """Whether a scalar function of the table has one of these facts."""
    return bool(OPERATORS[function].facts & fact)


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


def _guard_zero(function: np.ufunc) -> Callable[[Array, Array], Any]:
    """Integer division by zero is undefined; here it divides by one, so that nothing traps."""
    return lambda a, b: function(a, np.where(b == 0, np.ones_like(b), b) if b.dtype.kind in "iu" else b)


_floor_divide, _floor_mod, _fmod = map(_guard_zero, (np.floor_divide, np.mod, np.fmod))


def _divide(a: Array, b: Array) -> Any:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    is_rounded_up = (_floor_mod(a, b) != 0) & ((a < 0) != (b < 0))
    return (_floor_divide(a, b) + is_rounded_up).astype(a.dtype)


def _power(a: Array, b: Array) -> Any:
    if a.dtype.kind != "i":
        return np.power(a, b)
    whole = np.power(a, np.maximum(b, 0))
    small = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b >= 0, whole, small).astype(a.dtype)


def _smooth(
    name: str,
    meaning: str,
    evaluate: Callable[..., Any],
    cost: tuple[int, float],
    names: tuple[str, str, str],
    rule: Rule,
    facts: Fact = Fact.NONE,
    note: str = "",
) -> Operator:
    """A function of one float with its cost in flops and ulp, and its derivative."""
    return Operator(name, meaning, 1, FLOAT, "same", evaluate, Api(*names), facts, (rule,), *cost, note)


def _rounding(name: str, meaning: str, evaluate: Callable[..., Any], names: Api, note: str = "") -> Operator:
    return Operator(name, meaning, 1, FLOAT, "same", evaluate, names, Fact.STEPS, note=note, instead="identity")


def _comparison(
    name: str, meaning: str, evaluate: Callable[..., Any], names: Api, negation: str, mirror: str = ""
) -> Operator:
    accepts, facts = (ANY, Fact.COMMUTATIVE) if "equal" in (name, negation) else (NUMBER, Fact.ORDERED)
    note = "NaN equals nothing" if name == "equal" else ""
    return Operator(name, meaning, 2, accepts, "bool", evaluate, names, facts, (), 1, 0.0, note, "", negation, mirror)


def _of_bits(name: str, meaning: str, accepts: frozenset[str], evaluate: np.ufunc, names: Api) -> Operator:
    instead = name.replace("bitwise", "logical") if accepts is INTEGER else ""
    return Operator(name, meaning, 2, accepts, "same", evaluate, names, Fact.COMMUTATIVE, instead=instead)


_EXTREME = Fact.COMMUTATIVE | Fact.CHOOSES | Fact.ORDERED

# An entry stays together on its few lines.
# fmt: off
_TABLE = (
    Operator("identity", "x", 1, MOVED, "same", lambda x: x, Api("positive conjugate", "clone", "Identity"),
        Fact.LINEAR | Fact.KEEPS_SIGN, (lambda x, y, g: g,), 0),
    Operator("rounded", "x", 1, FLOAT, "same", lambda x: x, derivative=(lambda x, y, g: g,),
        note="a product in x is rounded, not fused with what follows"),
    Operator("negative", "-x", 1, NUMBER, "same", np.negative, Api("negative", "neg", "Neg"), Fact.LINEAR,
        (lambda x, y, g: -g,)),
    Operator("abs", "|x|", 1, NUMBER, "same", np.abs, Api("abs fabs", "abs", "Abs"), Fact.NEVER_NEGATIVE,
        (lambda x, y, g: g * x.call("sign"),), instead="identity"),
    Operator("sign", "-1, 0 or 1", 1, NUMBER, "same", np.sign, Api("sign", "sign", "Sign"), Fact.STEPS,
        note="NaN stays NaN"),
    Operator("add", "a + b", 2, NUMBER, "same", np.add, Api("add", "add", "Add"),
        Fact.COMMUTATIVE | Fact.LINEAR | Fact.ROUNDS | Fact.KEEPS_SIGN, (lambda a, b, y, g: g, lambda a, b, y, g: g),
        instead="logical_or"),
    Operator("subtract", "a - b", 2, NUMBER, "same", np.subtract, Api("subtract", "sub", "Sub"),
        Fact.LINEAR | Fact.ROUNDS, (lambda a, b, y, g: g, lambda a, b, y, g: -g)),
    Operator("multiply", "a * b", 2, NUMBER, "same", np.multiply, Api("multiply", "mul", "Mul"),
        Fact.COMMUTATIVE | Fact.ROUNDS | Fact.KEEPS_SIGN, (lambda a, b, y, g: g * b, lambda a, b, y, g: g * a),
        instead="logical_and"),
    Operator("divide", "a / b", 2, NUMBER, "same", _divide, Api("divide", "div", "Div"),
        Fact.ROUNDS | Fact.KEEPS_SIGN | Fact.ZERO_DIVISOR, (lambda a, b, y, g: g / b, lambda a, b, y, g: -(g * y / b)),
        4, note="integers: truncates; by zero undefined"),
    Operator("floor_divide", "floor(a / b)", 2, NUMBER, "same", _floor_divide, Api("floor_divide", "floor_divide"),
        Fact.STEPS | Fact.ZERO_DIVISOR, (), 5, 2.0, "integers: by zero undefined"),
    Operator("floor_mod", "a - b * floor(a / b)", 2, NUMBER, "same", _floor_mod, Api("remainder", "remainder", "Mod"),
        Fact.JUMPS | Fact.ZERO_DIVISOR, (lambda a, b, y, g: g, lambda a, b, y, g: -g * a.call("floor_divide", b)), 6,
        note="sign of the divisor"),
    Operator("fmod", "a - b * truncate(a / b)", 2, NUMBER, "same", _fmod, Api("fmod", "fmod", "Mod"),
        Fact.JUMPS | Fact.ZERO_DIVISOR, (lambda a, b, y, g: g, lambda a, b, y, g: -g * (a / b).call("truncate")), 6,
        note="sign of the dividend"),
    Operator("power", "a ** b", 2, NUMBER, "same", _power, Api("power float_power", "pow", "Pow"), Fact.NONE,
        (power_by_first, power_by_second), 40, 1.0, "float32 in double; integers below 0 truncate"),
    _smooth("exp", "e ** x", np.exp, (10, 2.0), ("exp", "exp", "Exp"), lambda x, y, g: g * y,
        Fact.LEAVES_ONE | Fact.NEVER_NEGATIVE),
    _smooth("exp2", "2 ** x", np.exp2, (10, 2.0), ("exp2", "exp2", ""), lambda x, y, g: g * y * LOG_2,
        Fact.NEVER_NEGATIVE),
    _smooth("expm1", "exp(x) - 1, exact near 0", np.expm1, (14, 2.0), ("expm1", "expm1", ""),
        lambda x, y, g: g * (y + 1.0)),
    _smooth("log", "the natural logarithm of x", np.log, (12, 2.0), ("log", "log", "Log"), lambda x, y, g: g / x,
        Fact.OF_POSITIVES),
    _smooth("log2", "the logarithm of x to the base 2", np.log2, (12, 2.0), ("log2", "log2", ""),
        lambda x, y, g: g / (x * LOG_2), Fact.OF_POSITIVES),
    _smooth("log10", "the logarithm of x to the base 10", np.log10, (12, 2.0), ("log10", "log10", ""),
        lambda x, y, g: g / (x * LOG_10), Fact.OF_POSITIVES),
    _smooth("log1p", "log(1 + x), exact near 0", np.log1p, (14, 2.0), ("log1p", "log1p", ""),
        lambda x, y, g: g / (x + 1.0)),
    _smooth("sqrt", "the square root of x", np.sqrt, (4, 0.0), ("sqrt", "sqrt", "Sqrt"), lambda x, y, g: g / (y * 2.0),
        Fact.ROUNDS | Fact.OF_POSITIVES | Fact.KEEPS_SIGN),
    _smooth("cbrt", "the cube root of x", np.cbrt, (16, 2.0), ("cbrt", "", ""), lambda x, y, g: g / (y * y * 3.0),
        Fact.KEEPS_SIGN),
    _smooth("rsqrt", "1 / sqrt(x)", lambda x: np.divide(1, np.sqrt(x)).astype(x.dtype), (8, 2.0), ("", "rsqrt", ""),
        lambda x, y, g: g * -0.5 * (y * y * y),
        Fact.OF_POSITIVES | Fact.KEEPS_SIGN),
    _smooth("reciprocal", "1 / x", lambda x: np.divide(1, x).astype(x.dtype), (4, 0.0),
        ("reciprocal", "reciprocal", "Reciprocal"), lambda x, y, g: -g * (y * y), Fact.ROUNDS | Fact.KEEPS_SIGN),
    _smooth("sin", "the sine of x", np.sin, (14, 2.0), ("sin", "sin", "Sin"), lambda x, y, g: g * x.call("cos")),
    _smooth("cos", "the cosine of x", np.cos, (14, 2.0), ("cos", "cos", "Cos"), lambda x, y, g: -g * x.call("sin"),
        Fact.BELOW_ONE),
    _smooth("tan", "the tangent of x", np.tan, (20, 2.5), ("tan", "tan", "Tan"), lambda x, y, g: g * (y * y + 1.0)),
    _smooth("asin", "the arc sine of x", np.arcsin, (16, 2.0), ("arcsin", "asin", "Asin"),
        lambda x, y, g: g * (1.0 - x * x).call("rsqrt")),
    _smooth("acos", "the arc cosine of x", np.arccos, (16, 2.0), ("arccos", "acos", "Acos"),
        lambda x, y, g: -g * (1.0 - x * x).call("rsqrt")),
    _smooth("atan", "the arc tangent of x", np.arctan, (16, 2.0), ("arctan", "atan", "Atan"),
        lambda x, y, g: g / (x * x + 1.0)),
    Operator("atan2", "the angle of the point (b, a)", 2, FLOAT, "same", np.arctan2, Api("arctan2", "atan2"),
        Fact.NONE, (lambda a, b, y, g: g * b * inverse_square_length(a, b),
            lambda a, b, y, g: -g * a * inverse_square_length(a, b)), 20, 2.0, "zeros and infinities as in C"),
    _smooth("sinh", "the hyperbolic sine of x", np.sinh, (20, 2.0), ("sinh", "sinh", "Sinh"),
        lambda x, y, g: g * x.call("cosh")),
    _smooth("cosh", "the hyperbolic cosine of x", np.cosh, (20, 2.0), ("cosh", "cosh", "Cosh"),
        lambda x, y, g: g * x.call("sinh"), Fact.NEVER_NEGATIVE),
    _smooth("tanh", "the hyperbolic tangent of x", np.tanh, (14, 2.0), ("tanh", "tanh", "Tanh"),
        lambda x, y, g: g * (1.0 - y * y), Fact.BELOW_ONE),
    _smooth("asinh", "the inverse of sinh", np.arcsinh, (20, 2.0), ("arcsinh", "asinh", "Asinh"),
        lambda x, y, g: g * (x * x + 1.0).call("rsqrt")),
    _smooth("acosh", "the inverse of cosh", np.arccosh, (20, 2.0), ("arccosh", "acosh", "Acosh"),
        lambda x, y, g: g * (x * x - 1.0).call("rsqrt")),
    _smooth("atanh", "the inverse of tanh", np.arctanh, (20, 2.0), ("arctanh", "atanh", "Atanh"),
        lambda x, y, g: g / (1.0 - x * x)),
    _smooth("erf", "the error function of x", _pointwise(math.erf), (16, 2.0), ("", "erf", "Erf"),
        lambda x, y, g: g * ((-(x * x)).call("exp") * TWO_BY_ROOT_PI), Fact.BELOW_ONE),
    _smooth("sigmoid", "1 / (1 + exp(-x))", _sigmoid, (14, 3.0), ("", "sigmoid", "Sigmoid"),
        lambda x, y, g: g * (y * (1.0 - y)), Fact.BELOW_ONE | Fact.NEVER_NEGATIVE),
    _smooth("softplus", "log(1 + exp(x))",
        lambda x: (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype), (24, 2.0), ("", "", "Softplus"),
        lambda x, y, g: g * x.call("sigmoid"), Fact.NEVER_NEGATIVE, "without overflow"),
    _rounding("floor", "the largest whole number <= x", np.floor, Api("floor", "floor", "Floor")),
    _rounding("ceil", "the least whole number >= x", np.ceil, Api("ceil", "ceil", "Ceil")),
    _rounding("truncate", "x without its fraction", np.trunc, Api("trunc", "trunc")),
    _rounding("round_even", "the nearest whole number", np.rint, Api("rint", "round", "Round"), "halves to even"),
    Operator("maximum", "the larger of a and b", 2, ANY, "same", np.maximum, Api("maximum", "maximum", "Max"),
        _EXTREME | Fact.KEEPS_SIGN, share_among_ties("less"), note="NaN if either is NaN"),
    Operator("minimum", "the smaller of a and b", 2, ANY, "same", np.minimum, Api("minimum", "minimum", "Min"),
        _EXTREME | Fact.KEEPS_SIGN, share_among_ties("greater"), note="NaN if either is NaN"),
    Operator("fmax", "the larger of a and b", 2, NUMBER, "same", np.fmax, Api("fmax", "fmax"), _EXTREME,
        first_of_ties("greater_equal"), note="the other one if either is NaN", instead="maximum"),
    Operator("fmin", "the smaller of a and b", 2, NUMBER, "same", np.fmin, Api("fmin", "fmin"), _EXTREME,
        first_of_ties("less_equal"), note="the other one if either is NaN", instead="minimum"),
    _comparison("equal", "a = b", np.equal, Api("equal", "eq", "Equal"), "not_equal"),
    _comparison("not_equal", "not (a = b)", np.not_equal, Api("not_equal", "ne"), "equal"),
    _comparison("less", "a < b", np.less, Api("less", "lt", "Less"), "greater_equal"),
    _comparison("less_equal", "a <= b", np.less_equal, Api("less_equal", "le", "LessOrEqual"), "greater"),
    _comparison("greater", "a > b", np.greater, Api("greater", "gt", "Greater"), "less_equal", "less"),
    _comparison("greater_equal", "a >= b", np.greater_equal, Api("greater_equal", "ge", "GreaterOrEqual"), "less",
        "less_equal"),
    _of_bits("logical_and", "a and b", BOOL, np.logical_and, Api("logical_and", "logical_and", "And")),
    _of_bits("logical_or", "a or b", BOOL, np.logical_or, Api("logical_or", "logical_or", "Or")),
    _of_bits("logical_xor", "one of a and b, not both", BOOL, np.logical_xor,
        Api("logical_xor", "logical_xor", "Xor")),
    Operator("logical_not", "not x", 1, BOOL, "same", np.logical_not, Api("logical_not", "logical_not", "Not")),
    _of_bits("bitwise_and", "a and b, bit by bit", INTEGER, np.bitwise_and,
        Api("bitwise_and", "bitwise_and", "BitwiseAnd")),
    _of_bits("bitwise_or", "a or b, bit by bit", INTEGER, np.bitwise_or,
        Api("bitwise_or", "bitwise_or", "BitwiseOr")),
    _of_bits("bitwise_xor", "a xor b, bit by bit", INTEGER, np.bitwise_xor,
        Api("bitwise_xor", "bitwise_xor", "BitwiseXor")),
    Operator("bitwise_not", "not x, bit by bit", 1, INTEGER, "same", np.invert,
        Api("bitwise_not", "bitwise_not", "BitwiseNot"), instead="logical_not"),
    Operator("shift_left", "a * 2 ** b", 2, INTEGER, "same", np.left_shift,
        Api("left_shift", "bitwise_left_shift __lshift__", "BitShift"), note="b below 0 or beyond the width: 0"),
    Operator("shift_right", "a // 2 ** b", 2, INTEGER, "same", np.right_shift,
        Api("right_shift", "bitwise_right_shift __rshift__", "BitShift"),
        note="b below 0 or beyond the width: -1 of negative numbers, else 0"),
    Operator("is_nan", "whether x is NaN", 1, FLOAT, "bool", np.isnan, Api("isnan", "isnan", "IsNaN")),
    Operator("is_inf", "whether x is inf or -inf", 1, FLOAT, "bool", np.isinf, Api("isinf", "isinf", "IsInf")),
    Operator("where", "b where a is true, else c", 3, MOVED, "same", np.where, Api("where", "where", "Where"),
        Fact.CHOOSES, (None, lambda c, a, b, y, g: where(c, g, 0.0), lambda c, a, b, y, g: where(c, 0.0, g)),
        note="the branch not taken never matters"),
    Operator("cast", "x in another dtype", 1, MOVED, "cast", lambda x: x, Api("astype", "to", "Cast"),
        Fact.LINEAR | Fact.KEEPS_SIGN, (lambda x, y, g: g,), note="float to integer truncates"),
)
# fmt: on

OPERATORS = {operator.name: operator for operator in _TABLE}
UNDEFINED = ("float to integer out of range or NaN", "integer division and modulo by zero")
