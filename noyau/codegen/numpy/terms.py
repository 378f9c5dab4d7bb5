"""Terms of NumPy source: expressions with their precedence, numbers, dtypes, extents."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from noyau.codegen.tables import as_operand, dim_text, unwrap
from noyau.dtypes import DType
from noyau.ir.dims import Dim, DimOp, Shape

OR, XOR, AND, PLUS, TIMES, UNARY, POWER, ATOM = range(1, 9)  # Python's precedence levels
COMPARE = 0
_SIGNS = {
    PLUS: {"add": "+", "subtract": "-"},
    TIMES: {"multiply": "*", "divide": "/", "floor_divide": "//", "floor_mod": "%"},
    COMPARE: {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="},
    AND: {"logical_and": "&", "bitwise_and": "&"},
    OR: {"logical_or": "|", "bitwise_or": "|"},
    XOR: {"logical_xor": "^", "bitwise_xor": "^"},
}
INFIX = {name: (sign, level) for level, signs in _SIGNS.items() for name, sign in signs.items()}
_WHOLE = 1 << 24  # integral floats below this are printed without a point


@dataclass(frozen=True, slots=True)
class NumpyTerm:
    """An expression: its text, its precedence level, and its NumPy shape, in which a broadcast axis may be 1 or missing
    at the front. `typed`: of a constant, the text with its dtype, for use where no array operand determines it."""

    text: str
    level: int
    shape: Shape
    typed: str = ""

    @property
    def number(self) -> bool:
        return bool(self.typed)

    def within(self, level: int) -> str:
        """The text as an operand at a precedence level, in parentheses if needed."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass(frozen=True, slots=True)
class SizeText:
    """Printer of sizes. `name`: maps a size to its name in the text; `used`: collects the printed sizes."""

    name: Callable[[str], str]
    used: set[str]

    def text(self, dim: Dim, grid: Callable[[str], str] = str) -> str:
        """A Dim over sizes, and over indices `#k`, which `grid` maps to names of arrays."""

        def name(atom: str) -> str:
            if atom.startswith("#"):
                return grid(atom)
            self.used.add(atom)
            return self.name(atom)

        arrays = any(each.startswith("#") for each in dim.names)
        return unwrap(dim_text(dim, name, partial(_operate, arrays)))

    def shape(self, dims: Sequence[Dim]) -> str:
        inner = ", ".join(map(self.text, dims))
        return f"({inner},)" if len(dims) == 1 else f"({inner})"

    def term(self, dim: Dim, dtype: DType) -> NumpyTerm:
        """The term of a size as a number of a dtype."""
        text = self.text(dim)
        level = ATOM if text.isidentifier() or text.isdigit() else PLUS
        return NumpyTerm(text, level, (), typed=f'cast({text}, "{dtype.value}")')


def _operate(arrays: bool, op: DimOp, left: str, right: str) -> str:
    if op.kind in ("max", "min"):
        return f"np.{op.kind}imum({left}, {right})" if arrays else f"{op.kind}({left}, {right})"
    return f"({as_operand(left)} {'//' if op.kind == 'floordiv' else '%'} {as_operand(right)})"


def numpy_name(dtype: DType) -> str:
    """`np.int64`; bfloat16 has no name in NumPy."""
    return f"np.{np.dtype(dtype.numpy).name}" if dtype is not DType.BOOL else "bool"


def number_text(value: float | int | bool) -> str:
    """A number as Python source; integral floats without a point, except -0.0 and large ones."""
    if isinstance(value, bool):
        return str(value)
    if math.isnan(value):
        return "np.nan"
    if math.isinf(value):
        return "np.inf" if value > 0 else "-np.inf"
    whole = isinstance(value, int) or (value.is_integer() and 0 < abs(value) < _WHOLE)
    return str(int(value)) if whole or str(value) == "0.0" else repr(value)


def constant_term(value: float | int | bool, dtype: DType, name: str = "") -> NumpyTerm:
    """The term of a number of a dtype; `name`: its name in the text, if any."""
    text = name or shortest(value, dtype)
    typed = f'cast({text}, "{dtype.value}")'
    if dtype is DType.BF16:
        return NumpyTerm(typed, ATOM, (), typed)
    is_short = dtype.is_float and dtype is not DType.F64 and math.isfinite(value)
    if is_short and float(shortest(value, dtype)) != value:  # the short text denotes another number in float64
        return NumpyTerm(f"{numpy_name(dtype)}({text})", ATOM, (), typed)
    return NumpyTerm(text, UNARY if text.startswith("-") else ATOM, (), typed)


def shortest(value: float | int | bool, dtype: DType) -> str:
    """The text of fewest digits that denotes this number of the dtype: `1e-06`."""
    text = number_text(value)
    if not dtype.is_float or dtype in (DType.F64, DType.BF16) or not math.isfinite(value) or text.lstrip("-").isdigit():
        return text
    return str(dtype.numpy.type(value))
