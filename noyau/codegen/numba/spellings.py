"""Spellings of Python for Numba: types, numbers, operators, functions of integers.

Numba computes integers in 64 bits, and a float32 beside a float64 or an integer in float64: every number in the text
has the type that it is computed in, and results of narrower integers are cut back.
No identifier is a word of Python or a name of the text itself, or a variable of two types: Numba would make one of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from noyau.codegen.identifiers import Scopes
from noyau.codegen.tables import parameters_of, short_float32
from noyau.dtypes import CELLS, DType
from noyau.ir.loops import Kernel

# What kernels compute in, by the short names that the text gives to NumPy's types; halves and float8 are bits.
KINDS = {dtype: dtype.storage.value for dtype in CELLS}
NUMPY = {
    **{f"{kind[0]}{bits}": f"np.{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"np.float{bits}" for bits in (32, 64)},
}
PREFIX = {"negative": "-", "logical_not": "not ", "bitwise_not": "~"}
OF_BOOLS = {"maximum": "|", "minimum": "&"}
_DIVIDES = "if b == T(0):\n    return a\n"
_BY_MINUS_ONE = "if b == T(-1):\n    return T(-a)\n"
_NOTHING_LEFT = "if (b == T(-1)) | (b == T(0)):\n    return T(0)\n"
_MULTIPLIES = (
    "made = T(1)\nwhile b > T(0):\n    if (b & T(1)) != T(0):\n        made = T(made * a)\n"
    "    a = T(a * a)\n    b = T(b >> T(1))\nreturn made"
)

# Bodies over T, of a and b, of signed and of unsigned integers; a division by zero is one by one.
INTEGER_FUNCTIONS = {
    "abs": ("return T(-a) if a < T(0) else a", "return a"),
    "sign": ("return T(1) if a > T(0) else T(-1) if a < T(0) else T(0)", "return T(1) if a > T(0) else T(0)"),
    **dict.fromkeys(("maximum", "fmax"), ("return a if a > b else b", "return a if a > b else b")),
    **dict.fromkeys(("minimum", "fmin"), ("return a if a < b else b", "return a if a < b else b")),
    "divide": (
        f"{_BY_MINUS_ONE}{_DIVIDES}"
        "whole = T(a // b)\nreturn T(whole + T(1)) if (a % b != T(0)) & ((a < T(0)) != (b < T(0))) else whole",
        f"{_DIVIDES}return T(a // b)",
    ),
    "fmod": (
        f"{_NOTHING_LEFT}rest = T(a % b)\n"
        "return T(rest - b) if (rest != T(0)) & ((rest < T(0)) != (a < T(0))) else rest",
        "return T(a % b) if b != T(0) else T(0)",
    ),
    "floor_divide": (f"{_BY_MINUS_ONE}{_DIVIDES}return T(a // b)", f"{_DIVIDES}return T(a // b)"),
    "floor_mod": (f"{_NOTHING_LEFT}return T(a % b)", "return T(a % b) if b != T(0) else T(0)"),
    "power": (
        "if b < T(0):\n    odd = T(-1) if (b & T(1)) != T(0) else T(1)\n"
        f"    return T(1) if a == T(1) else odd if a == T(-1) else T(0)\n{_MULTIPLIES}",
        _MULTIPLIES,
    ),
    "shift_left": (
        "return T(a << b) if (b >= T(0)) & (b < T(WIDTH)) else T(0)",
        "return T(a << b) if b < T(WIDTH) else T(0)",
    ),
    "shift_right": (
        "return T(a >> b) if (b >= T(0)) & (b < T(WIDTH)) else T(a >> T(WIDTH - 1))",
        "return T(a >> b) if b < T(WIDTH) else T(0)",
    ),
}


def integer_function(function: str, dtype: str) -> str:
    """The Python function of an integer operation, as its text."""
    signed, unsigned = INTEGER_FUNCTIONS[function]
    kind = DType(dtype)
    body = signed if kind.kind == "int" else unsigned
    body = body.replace("WIDTH", str(8 * kind.bytes)).replace("T(", f"{KINDS[kind]}(")
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"@scalar\ndef noyau_{function}_{dtype}({', '.join(parameters_of(function))}):\n{lines}"


def const_text(value: float | int | bool, dtype: DType) -> str:
    """A number in Python, as an operand of anything."""
    if dtype.is_float8:
        value = int(np.array(value, dtype.numpy).view(np.uint8))
    text = literal_text(value, KINDS[dtype.compute])
    return f"({text})" if text.startswith("-") else text


def literal_text(value: float, kind: str) -> str:
    """A number of a kind in Python: float64 and int64 are its own, the others are converted."""
    if kind == "bool":
        return str(bool(value))
    if kind not in ("f32", "f64"):
        return str(int(value)) if kind == "i64" else f"{kind}({int(value)})"
    wide = short_float32(value) if kind == "f32" else float(value)
    text = "np.nan" if math.isnan(wide) else f"{'-' * (wide < 0)}np.inf" if math.isinf(wide) else repr(wide)
    return text if kind == "f64" else f"f32({text})"


def narrow(text: str, dtype: DType) -> str:
    """Numba has computed small integers in 64 bits: cut the result back."""
    return f"{KINDS[dtype]}({text})" if dtype.kind in ("int", "uint") else f"({text})"


# Beyond those that fitting() knows: what texts call, for the CPU and for CUDA, and what they call their own names.
RESERVED = frozenset(
    """numba np math types ir cgutils arrayobj intrinsic prange scalar status items parts part range min max abs round
    print exit match case type cuda libdevice thread across down all_across all_down inside stream grid f16
    THREADS""".split()
) | frozenset(NUMPY)


class NumbaNames(Scopes):
    """Names of a kernel to Python identifiers.

    A Python function has one scope: what a block names is free again after it only for variables of its own type.
    `kind` is the type of what is bound next."""

    def __init__(self, kernel: Kernel) -> None:
        self.kind = ""
        self.kinds: dict[str, str] = {}
        self.reserved = RESERVED | {f"{kernel.name}_{number}" for number in range(len(kernel.launches))} | {kernel.name}
        super().__init__(kernel)

    @contextmanager
    def of(self, kind: str) -> Iterator[NumbaNames]:
        """Give names that are bound within this type."""
        before, self.kind = self.kind, kind
        yield self
        self.kind = before

    def forget(self) -> None:
        """Nothing of what was bound but buffers and sizes is known any more, and nothing has been used."""
        self.used.clear()
        self.kinds = {}

    def fresh(self, stem: str) -> str:
        """An identifier that nothing in sight has, and no variable of another type had."""
        name = super().fresh(f"v_{stem}" if stem in self.reserved else stem)
        self.kinds[name] = self.kind
        return name

    def fits(self, name: str) -> bool:
        return self.kinds.get(name, self.kind) == self.kind
