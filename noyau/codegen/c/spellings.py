"""Spellings of C: types, numbers, operators, functions of integers, comments, pairs of bfloat16 in one word."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from noyau.codegen.tables import by_sign, short_float32, snippets
from noyau.dtypes import CELLS, DType
from noyau.ir.dims import Dim, Shape
from noyau.ir.loops import Alloc, Axis, Buffer, Load, Loop, Store
from noyau.ir.walk import every_expression

WIDTH = 116  # of a line with a loop and its body
_WORDS = {DType.BOOL: "bool", DType.F32: "float", DType.F64: "double"}
TYPES = {dtype: _WORDS.get(dtype, f"{dtype.storage.numpy.name}_t") for dtype in CELLS}
PREFIX = {"negative": "-", "logical_not": "!", "bitwise_not": "~"}

# Functions over T and its unsigned twin U; a division by zero divides by one instead, so that nothing traps.
INTEGER_FUNCTIONS = by_sign(snippets(Path(__file__).with_name("integers.c"), r"^static inline T noyau_(\w+)"))
Place = tuple[str, Shape]


def integer_function(function: str, dtype: str) -> str:
    """The text of the C function of an integer operation."""
    signed, unsigned = INTEGER_FUNCTIONS[function]
    kind = TYPES[DType(dtype)]
    twin = kind if kind.startswith("u") or kind == "bool" else f"u{kind}"
    text = re.sub(r"\bT\b", kind, re.sub(r"\bU\b", twin, signed if kind.startswith("int") else unsigned))
    return re.sub(r"\bnoyau_\w+(?=\()", f"noyau_{function}_{dtype}", text[text.index("static inline") :], count=1)


def const_text(value: float | int | bool, dtype: DType) -> str:
    """A number as a C literal of its dtype."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_float8:
        return str(int(np.array(value, dtype.numpy).view(np.uint8)))
    if dtype.is_float:
        return _float_text(float(value), "f" if dtype is DType.F32 else "")
    number = int(value)
    if number == -(2**63):
        return "INT64_MIN"
    suffix = {DType.I64: "LL", DType.U64: "ULL", DType.U32: "U"}.get(dtype, "")
    text = f"{number}{suffix}"
    return f"({text})" if number < 0 else text


def narrow(text: str, dtype: DType) -> str:
    """Cast a result back to a small integer dtype, since C computes these as int."""
    return f"(({TYPES[dtype]})({text}))" if dtype.kind in ("int", "uint") and dtype.bytes < 4 else f"({text})"


def _float_text(value: float, suffix: str) -> str:
    if math.isnan(value):
        return "NAN"
    value = short_float32(value) if suffix else value
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(value)
    text = text if any(c in text for c in ".e") else f"{text}.0"
    return f"({text}{suffix})" if text.startswith("-") else f"{text}{suffix}"


def comment_text(text: str) -> str:
    """The text as a C comment, with unsafe characters replaced."""
    if not text:
        return ""
    safe = "".join(c if c == "\n" or 32 <= ord(c) < 127 else "?" for c in text).replace("\\", "/")
    safe = re.sub(r"/(?=\*)|\*(?=/)|\?(?=\?)", r"\g<0> ", safe)
    lines = [line if len(line) <= 4 * WIDTH else f"{line[: 4 * WIDTH]}..." for line in safe.strip().splitlines()]
    return "/* " + "\n   ".join(lines) + " */"


@dataclass(slots=True)
class Open:
    """The pairs of the loop in print: loaded words, first cells that wait for their neighbours, and stored pairs."""

    words: dict[Place, str] = field(default_factory=dict)
    halves: dict[Place, str] = field(default_factory=dict)
    stored: frozenset[Place] = frozenset()


def pairs_of(loop: Loop, memory: Mapping[str, Buffer | Alloc]) -> tuple[list[Place], list[Place]]:
    """The loaded and the stored pairs of a loop over lanes, each by the place of its first cell."""
    if loop.axis is not Axis.LANES:
        return [], []
    loads = dict.fromkeys((e.buffer, e.index) for e in every_expression(loop.body) if isinstance(e, Load))
    plain = (s for s in loop.body if isinstance(s, Store) and s.merge is None)
    stores = dict.fromkeys((s.buffers[0], s.index) for s in plain if [v.dtype for v in s.values] == [DType.F32])
    loaded, stored = ([p for p in places if _begins(p, places, loop.var, memory)] for places in (loads, stores))
    return loaded, stored


def _begins(place: Place, places: Mapping[Place, None], variable: str, memory: Mapping[str, Buffer | Alloc]) -> bool:
    """Whether a cell is the first of a pair whose second is accessed too."""
    name, index = place
    step = index[-1].replace({variable: Dim.of(variable) + 1}) - index[-1]
    is_bf16 = name in memory and memory[name].dtype is DType.BF16 and len(index) == 1
    return is_bf16 and step == Dim.of(2) and beside(place, 1) in places and beside(place, -1) not in places


def beside(place: Place, step: int) -> Place:
    """The cell `step` cells after a place."""
    return place[0], (*place[1][:-1], place[1][-1] + step)
