"""The spellings of C (types, operators, functions), and expressions of the loop IR in it; two neighbouring cells of
bfloat16 are one word in loops that `schedules.cpu.packed_pairs` has made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from noyau.codegen import statements
from noyau.codegen.identifiers import Scopes
from noyau.codegen.statements import is_variable
from noyau.codegen.tables import closed, opened, parameters_of
from noyau.dtypes import CELLS, DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, Shape, never_negative
from noyau.ir.loops import Alloc, Axis, Buffer, Expr, InWholeLines, Kernel, Load, Loop, Store
from noyau.ir.ranges import at_least_one, lowest
from noyau.ir.walk import every_expression

WIDTH = 116  # of a line that holds a loop and what it does
_WORDS = {DType.BOOL: "bool", DType.F32: "float", DType.F64: "double"}
TYPES = {dtype: _WORDS.get(dtype, f"{dtype.storage.numpy.name}_t") for dtype in CELLS}
PREFIX = {"negative": "-", "logical_not": "!", "bitwise_not": "~"}
# bodies over T and its unsigned twin U, of a and b; division by zero gives what division by one does: no trap
INTEGER_FUNCTIONS = {
    "abs": ("return a < 0 ? (T)(0 - (U)a) : a;", "return a;"),
    "sign": ("return (T)((a > 0) - (a < 0));", "return a > 0;"),
    **dict.fromkeys(("maximum", "fmax"), ("return a > b ? a : b;", "return a > b ? a : b;")),
    **dict.fromkeys(("minimum", "fmin"), ("return a < b ? a : b;", "return a < b ? a : b;")),
    "divide": ("return b == -1 ? (T)(0 - (U)a) : (T)(a / (b ? b : 1));", "return a / (b ? b : 1);"),
    "fmod": ("return b == -1 ? 0 : (T)(a % (b ? b : 1));", "return a % (b ? b : 1);"),
    "floor_divide": (
        "if (b == -1) return (T)(0 - (U)a);\n    if (!b) return a;\n"
        "    return (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));",
        "return a / (b ? b : 1);",
    ),
    "floor_mod": (
        "if (b == -1 || !b) return 0;\n    const T m = (T)(a % b);\n"
        "    return m != 0 && (m < 0) != (b < 0) ? (T)(m + b) : m;",
        "return a % (b ? b : 1);",
    ),
    "power": (
        "if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n"
        "    U base = (U)a, made = 1;\n    for (T left = b; left > 0; left /= 2) {\n"
        "        if (left & 1) made = (U)(made * base);\n        base = (U)(base * base);\n    }\n    return (T)made;",
        "T made = 1;\n    for (T left = b; left > 0; left /= 2) {\n"
        "        if (left & 1) made = (T)(made * a);\n        a = (T)(a * a);\n    }\n    return made;",
    ),
    "shift_left": (
        "return b >= 0 && b < (T)(8 * sizeof(T)) ? (T)((U)a << b) : 0;",
        "return b < 8 * sizeof(T) ? (T)((uint64_t)a << b) : 0;",
    ),
    "shift_right": (
        "return b >= 0 && b < (T)(8 * sizeof(T)) ? (T)(a >> b) : 0;",
        "return b < 8 * sizeof(T) ? (T)(a >> b) : 0;",
    ),
}


def integer_function(function: str, dtype: str) -> str:
    """The C function of an integer operation, as its text."""
    signed, unsigned = INTEGER_FUNCTIONS[function]
    kind = TYPES[DType(dtype)]
    twin = kind if kind.startswith("u") or kind == "bool" else f"u{kind}"
    body = signed if kind.startswith("int") else unsigned
    text = re.sub(r"\bT\b", kind, re.sub(r"\bU\b", twin, body))
    arguments = ", ".join(f"{kind} {name}" for name in parameters_of(function))
    return f"static inline {kind} noyau_{function}_{dtype}({arguments})\n{{\n    {text}\n}}"


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
    """C has computed small integers as int: cut the result back."""
    return f"(({TYPES[dtype]})({text}))" if dtype.kind in ("int", "uint") and dtype.bytes < 4 else f"({text})"


def _float_text(value: float, suffix: str) -> str:
    if math.isnan(value):
        return "NAN"
    if suffix:
        with np.errstate(over="ignore"):  # beyond its range it is infinite
            value = float(str(np.float32(value)))
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(value)
    text = text if any(c in text for c in ".e") else f"{text}.0"
    return f"({text}{suffix})" if text.startswith("-") else f"{text}{suffix}"


def comment_text(text: str) -> str:
    """The text as a C comment, whatever stands in it."""
    if not text:
        return ""
    safe = "".join(c if c == "\n" or 32 <= ord(c) < 127 else "?" for c in text).replace("\\", "/")
    safe = re.sub(r"/(?=\*)|\*(?=/)|\?(?=\?)", r"\g<0> ", safe)
    lines = [line if len(line) <= 4 * WIDTH else f"{line[: 4 * WIDTH]}..." for line in safe.strip().splitlines()]
    return "/* " + "\n   ".join(lines) + " */"


class CExpressions(statements.Expressions):
    """The expressions of one kernel in C."""

    language = "c"
    prefix, integer_functions = PREFIX, INTEGER_FUNCTIONS
    const, narrow = staticmethod(const_text), staticmethod(narrow)

    def __init__(self, kernel: Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.absurd = False  # whether sizes may be so large that arithmetic on them overflows
        self.pairs = Open()

    def cell(self, name: str, index: Shape) -> str:
        memory = self.memory[name]
        if isinstance(memory, Buffer) and memory.strides is not None:
            index = (sum((at * stride for at, stride in zip(index, memory.strides, strict=True)), Dim.of(0)),)
        if len(index) != 1:
            raise UnsupportedError(f"c has no {len(index)} indices of {name}: flatten comes before it prints")
        if is_variable(memory):
            return self.names.value(name)
        return f"{self.names.value(name)}[{self.dim(index[0])}]"

    def load(self, load: Load) -> str:
        if self.pairs.words and (half := self.half(load)) is not None:
            return half
        return super().load(load)

    def in_whole_lines(self, tile: InWholeLines) -> str:
        whole = [] if tile.length.constant is not None else [f"{self.dim(tile.length)} == {tile.cells}"]
        begins = [f"noyau_begins_line(&{self.cell(name, index)})" for name, index in tile.places]
        return " && ".join([*whole, *begins])

    def half(self, load: Load) -> str | None:
        """A cell of a pair that was loaded as a word."""
        place = (load.buffer, load.index)
        for at, name in ((place, "noyau_bf16_low_to_f32"), (before(place), "noyau_bf16_high_to_f32")):
            if at in self.pairs.words:
                self.functions.add(name)
                return f"{name}({self.pairs.words[at]})"
        return None

    def chosen(self, condition: str, value: str, other: str) -> str:
        return f"({condition} ? {value} : {other})"

    def own(self, function: str, operands: tuple[Expr, ...]) -> str | None:
        if function != "is_inf":
            return None
        text = self.expr(operands[0])
        return f"(({text} == INFINITY) | ({text} == -INFINITY))"

    def converted(self, operand: Expr, dtype: DType) -> str:
        text = self.expr(operand)
        return f"({text} != 0)" if dtype is DType.BOOL else f"(({TYPES[dtype]}){text})"

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """C divides towards zero, Dims downwards: one stands for the other only where nothing can be negative. A size
        that divides may be 0 where nothing makes sure that its loop runs."""
        if op.kind == "max":
            return self.integer_call("maximum", DType.I64, opened(left), opened(right))
        if op.kind == "min":
            return self.integer_call("minimum", DType.I64, opened(left), opened(right))
        if self.is_natural(op.left) and self.is_positive(op.right):
            return f"({closed(left)} {'/' if op.kind == 'floordiv' else '%'} {closed(right)})"
        function = "floor_divide" if op.kind == "floordiv" else "floor_mod"
        return self.integer_call(function, DType.I64, opened(left), opened(right))

    def is_positive(self, dim: Dim) -> bool:
        match dim.terms:
            case (((DimOp(kind="max") as op,), 1),):
                return self.is_positive(op.left) or self.is_positive(op.right)
            case _:
                return (dim.constant or 0) > 0 if self.absurd else self.is_natural(dim - 1)

    def is_natural(self, dim: Dim) -> bool:
        """Whether it is surely >= 0 here, where every open loop runs."""
        match dim.terms:
            case (((DimOp(kind="max") as op,), -1),):
                return self.is_natural(-op.left) and self.is_natural(-op.right)
            case _:
                pass
        if any(self.is_rest(dim, name, extent) for name, extent in self.extents.items()):
            return True
        low = lowest(dim, self.required | self.extents)
        running = frozenset[str]().union(*(at_least_one(extent) for extent in self.extents.values()))
        return low is not None and never_negative(low, running)

    def is_rest(self, dim: Dim, name: str, extent: Dim) -> bool:
        """Whether it is what is left of a length when a loop has come to its tile `name`."""
        step = -dict(dim.terms).get((name,), 0)
        length = dim + Dim.of(name) * step
        return step > 0 and name not in length.names and extent == (length + (step - 1)) // step

    # Pairs.

    def open_pairs(self, loop: Loop) -> Iterator[str]:
        """The words of neighbours that a loop reads in pairs; what it stores in pairs is noted."""
        loaded, stored = pairs_of(loop, self.memory)
        self.pairs = Open(stored=frozenset(stored))
        self.preludes |= {"pairs"} if loaded or stored else set()
        for name, index in loaded:
            word = self.names.bind(f"pair {len(self.pairs.words)}", f"{name}_pair")
            self.pairs.words[name, index] = word
            yield f"    const uint32_t {word} = noyau_pair(&{self.cell(name, index)});"

    def in_pair(self, store: Store) -> str | None:
        """The Store of one of two neighbours: the first one waits for the second; None for any other Store."""
        place, pairs = (store.buffers[0], store.index), self.pairs
        if not pairs.stored:
            return None
        if place in pairs.stored:
            even = self.names.bind(f"even {len(pairs.halves)}", f"{place[0]}_even")
            pairs.halves[place] = even
            return f"const float {even} = {self.top(store.values[0])};"
        first = before(place)
        if first not in pairs.halves:
            return None
        self.functions.add("noyau_f32_to_bf16_pair")
        both = f"noyau_f32_to_bf16_pair({pairs.halves[first]}, {self.top(store.values[0])})"
        return f"noyau_store_pair(&{self.cell(*first)}, {both});"


Place = tuple[str, Shape]


@dataclass(slots=True)
class Open:
    """The pairs of the loop that is being printed: the words that were loaded, and the cells whose neighbours come."""

    words: dict[Place, str] = field(default_factory=dict)
    halves: dict[Place, str] = field(default_factory=dict)
    stored: frozenset[Place] = frozenset()


def pairs_of(loop: Loop, memory: Mapping[str, Buffer | Alloc]) -> tuple[list[Place], list[Place]]:
    """The pairs of a loop in lanes over pairs, each by the place of its first cell: those that are loaded, and those
    that are stored."""
    if loop.axis is not Axis.LANES:
        return [], []
    loads = dict.fromkeys((e.buffer, e.index) for e in every_expression(loop.body) if isinstance(e, Load))
    stores = dict.fromkeys((s.buffers[0], s.index) for s in loop.body if isinstance(s, Store) and _is_float(s))
    loaded, stored = ([p for p in places if _begins(p, places, loop.var, memory)] for places in (loads, stores))
    return loaded, stored


def _begins(place: Place, places: Mapping[Place, None], variable: str, memory: Mapping[str, Buffer | Alloc]) -> bool:
    """Whether a cell is the first one of a pair, of which both are there."""
    name, index = place
    step = index[-1].replace({variable: Dim.of(variable) + 1}) - index[-1]
    is_bf16 = name in memory and memory[name].dtype is DType.BF16 and len(index) == 1
    return is_bf16 and step == Dim.of(2) and after(place) in places and before(place) not in places


def after(place: Place) -> Place:
    return place[0], (*place[1][:-1], place[1][-1] + 1)


def before(place: Place) -> Place:
    return place[0], (*place[1][:-1], place[1][-1] - 1)


def _is_float(store: Store) -> bool:
    return store.merge is None and [value.dtype for value in store.values] == [DType.F32]
