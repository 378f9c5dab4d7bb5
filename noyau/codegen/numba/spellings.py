"""Spellings of Python for Numba: types, numbers, operators, functions of integers.

Numba computes integers in 64 bits, and a float32 with a float64 or an integer in float64: so every number in the text
has the type of its computation, and results of narrower integers are cast back. No identifier is a keyword of Python, a
name of the text itself, or a variable of two types, which Numba would unify."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from noyau.codegen.identifiers import Scopes
from noyau.codegen.tables import by_sign, parameters_of, short_float32, snippets
from noyau.dtypes import CELLS, DType
from noyau.ir.loops import Kernel

# Types of computation by dtype, under the text's short names of NumPy's types; 16-bit floats and float8 are bits.
KINDS = {dtype: dtype.storage.value for dtype in CELLS}
NUMPY = {
    **{f"{kind[0]}{bits}": f"np.{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"np.float{bits}" for bits in (32, 64)},
}
PREFIX = {"negative": "-", "logical_not": "not ", "bitwise_not": "~"}
OF_BOOLS = {"maximum": "|", "minimum": "&"}
# Functions over T, for signed and for unsigned integers; a division by zero divides by one instead.
INTEGER_FUNCTIONS = by_sign(snippets(Path(__file__).with_name("integers.txt")))


def integer_function(function: str, dtype: str) -> str:
    """The text of the Python function of an integer operation."""
    signed, unsigned = INTEGER_FUNCTIONS[function]
    kind = DType(dtype)
    _, _, body = (signed if kind.kind == "int" else unsigned).partition(":\n")
    body = body.replace("WIDTH", str(8 * kind.bytes)).replace("T(", f"{KINDS[kind]}(")
    return f"@scalar\ndef noyau_{function}_{dtype}({', '.join(parameters_of(function))}):\n{body}"


def const_text(value: float | int | bool, dtype: DType) -> str:
    """A number in Python, as text that can be any operand."""
    if dtype.is_float8:
        value = int(np.array(value, dtype.numpy).view(np.uint8))
    text = literal_text(value, KINDS[dtype.compute])
    return f"({text})" if text.startswith("-") else text


def literal_text(value: float, kind: str) -> str:
    """A number of a kind in Python: float64 and int64 are literals, the others are converted."""
    if kind == "bool":
        return str(bool(value))
    if kind not in ("f32", "f64"):
        return str(int(value)) if kind == "i64" else f"{kind}({int(value)})"
    wide = short_float32(value) if kind == "f32" else float(value)
    text = "np.nan" if math.isnan(wide) else f"{'-' * (wide < 0)}np.inf" if math.isinf(wide) else repr(wide)
    return text if kind == "f64" else f"f32({text})"


def narrow(text: str, dtype: DType) -> str:
    """Cast a result back to a narrower integer dtype, since Numba computes integers in 64 bits."""
    return f"{KINDS[dtype]}({text})" if dtype.kind in ("int", "uint") else f"({text})"


# Beside the words of fitting(): functions that texts call, for the CPU and for CUDA, and names that they define.
RESERVED = frozenset(
    """numba np math types ir cgutils arrayobj intrinsic prange scalar status items parts part range min max abs round
    print exit match case type cuda libdevice thread across down all_across all_down inside stream grid f16
    THREADS""".split()
) | frozenset(NUMPY)


class NumbaNames(Scopes):
    """The map from names of a kernel to Python identifiers.

    A Python function has one scope: after a block its identifiers are free only for variables of the same type.
    `kind`: the type of the next variable."""

    def __init__(self, kernel: Kernel) -> None:
        self.kind = ""
        self.kinds: dict[str, str] = {}
        self.reserved = RESERVED | {f"{kernel.name}_{number}" for number in range(len(kernel.launches))} | {kernel.name}
        super().__init__(kernel)

    @contextmanager
    def of(self, kind: str) -> Iterator[NumbaNames]:
        """A block in which bound names have this type."""
        before, self.kind = self.kind, kind
        yield self
        self.kind = before

    def forget(self) -> None:
        """Forget all uses, and the types of identifiers."""
        self.used.clear()
        self.kinds = {}

    def fresh(self, stem: str) -> str:
        """An identifier that is unused in this scope, and was not used for a variable of another type."""
        name = super().fresh(f"v_{stem}" if stem in self.reserved else stem)
        self.kinds[name] = self.kind
        return name

    def fits(self, name: str) -> bool:
        return self.kinds.get(name, self.kind) == self.kind
