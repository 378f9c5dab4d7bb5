"""Language `c`: C11 for gcc, clang and zig, against the ABI of noyau.h; the text compiles alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import assert_never

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Const,
    Expr,
    Fold,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Require,
    Role,
    Space,
    Statement,
    Store,
    Sync,
    Var,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import dims_in, every_expression, every_statement
from noyau.languages import cmath
from noyau.languages.c_interface import interface
from noyau.languages.c_names import names_for
from noyau.languages.c_tables import FLAT, INFIX, INTEGER_FUNCTIONS, PREFIX, SCALARS, TYPES, integer_function, op_text
from noyau.languages.spelling import dim_text
from noyau.schedules.algebra import Symbolic

INDENT = "    "


def source(kernel: Kernel, comment: str = "", *, anonymous: bool = False) -> str:
    """The text of a kernel: a comment, the ABI, the scalar functions it uses, its launches, its table. `anonymous`: with
    numbers for names, to tell whether two kernels are one."""
    printer = Printer(kernel, anonymous=anonymous)
    launches = [printer.launch(position, launch) for position, launch in enumerate(kernel.launches)]
    parts = [
        _comment(comment),
        files("noyau.languages").joinpath("noyau.h").read_text(),
        "#include <math.h>\n#include <stdbool.h>\n#include <stdlib.h>\n#include <string.h>",
        cmath.text(sorted(printer.functions)) if printer.functions else "",
        "\n\n".join(integer_function(*key) for key in sorted(printer.integers)),
        *launches,
        interface(kernel, printer.names),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _comment(text: str) -> str:
    """The text as a C comment, whatever stands in it."""
    if not text:
        return ""
    safe = text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")
    safe = "".join(c if c == "\n" or 32 <= ord(c) < 127 else "?" for c in safe).replace("??", "? ?")
    return "/* " + "\n   ".join(safe.strip().splitlines()) + " */"


class Printer:
    """One kernel being printed: the identifiers in use, and the functions that its text turns out to need."""

    def __init__(self, kernel: Kernel, *, anonymous: bool = False) -> None:
        self.kernel = kernel
        self.names: Mapping[str, str] = names_for(kernel, anonymous=anonymous)
        self.functions: set[str] = set()
        self.integers: set[tuple[str, str]] = set()
        self.allocated: dict[str, DType] = {}

    def launch(self, position: int, launch: Launch) -> str:
        """The function that runs items [begin, end) of a launch."""
        memory = [s for s in every_statement(launch.body) if isinstance(s, Alloc) and s.space is Space.THREAD]
        self.allocated = {s.name: s.dtype for s in memory}
        inner = [*self.rows(memory), *self.threads(launch.body)]
        used = {name for dim in self.all_dims(launch) for name in dim.names}
        head = [*self.pointers(launch), *self.sizes(used)]
        free = [f"{INDENT}free({self.names[s.name]});" for s in memory]
        lines = [*head, *([""] if head else []), *inner, *free, f"{INDENT}return NOYAU_OK;"]
        signature = f"static int32_t {self.kernel.name}_{position}(const noyau_call *call, int64_t begin, int64_t end)"
        return "\n".join([signature, "{", *lines, "}"])

    def all_dims(self, launch: Launch) -> Iterator[Dim]:
        yield from dims_in(launch.body)
        for statement in every_statement(launch.body):
            match statement:
                case Loop(_, extent, _, _):
                    yield extent
                case Require(_, extent):
                    yield extent
                case Alloc(_, _, shape, _):
                    yield from shape
                case _:
                    pass

    def pointers(self, launch: Launch) -> Iterator[str]:
        touched = {name for s in every_statement(launch.body) if isinstance(s, Store) for name in s.buffers}
        touched |= {e.buffer for e in every_expression(launch.body) if isinstance(e, Load)}
        for at, buffer in enumerate(self.kernel.buffers):
            if buffer.name in touched:
                constant = "const " if buffer.role is Role.INPUT else ""
                name, kind = self.names[buffer.name], TYPES[buffer.dtype]
                yield f"{INDENT}{constant}{kind} *restrict {name} = call->buffers[{at}];"

    def sizes(self, used: set[str]) -> Iterator[str]:
        for at, binding in enumerate(self.kernel.binding):
            if binding.size in used:
                yield f"{INDENT}const int64_t {self.names[binding.size]} = call->sizes[{at}];"

    def rows(self, memory: Iterable[Alloc]) -> Iterator[str]:
        """Memory of the thread, taken once a call."""
        taken: list[str] = []
        for alloc in memory:
            name, kind = self.names[alloc.name], TYPES[alloc.dtype]
            count = _closed(self.dim(product(alloc.shape)))
            yield f"{INDENT}{kind} *restrict {name} = malloc((size_t){count} * sizeof(*{name}) + 1);"
            yield f"{INDENT}if (!{name}) {{"
            yield from (f"{INDENT * 2}free({other});" for other in taken)
            yield f"{INDENT * 2}return NOYAU_OUT_OF_MEMORY;"
            yield f"{INDENT}}}"
            taken.append(name)

    def threads(self, body: tuple[Statement, ...]) -> Iterator[str]:
        """What stands before the loops on threads, then these as one counted loop over the call's items."""
        loops: list[Loop] = []
        before: tuple[Statement, ...] = ()
        inner = body
        if body and isinstance(body[-1], Loop) and body[-1].axis is Axis.THREADS:
            before, inner = body[:-1], body[-1:]
        while inner and isinstance(inner[-1], Loop) and inner[-1].axis is Axis.THREADS and len(inner) == 1:
            loops.append(inner[0])
            inner = inner[0].body
        yield from self.block(before, 1)
        if len(loops) == 1:
            name = self.names[loops[0].var]
            yield f"{INDENT}for (int64_t {name} = begin; {name} < end; ++{name}) {{"
        else:
            yield from self.odometer_start(loops)
            yield f"{INDENT}for (int64_t item = begin; item < end; ++item) {{"
        yield from self.block(inner, 2)
        yield from self.odometer_step(loops)
        yield f"{INDENT}}}"

    def odometer_start(self, loops: list[Loop]) -> Iterator[str]:
        """The variables of several loops at the first item."""
        if not loops:
            return
        yield f"{INDENT}int64_t left = begin;"
        for loop in reversed(loops[1:]):
            name, extent = self.names[loop.var], self.dim(loop.extent)
            yield f"{INDENT}int64_t {name} = left % {_closed(extent)};"
            yield f"{INDENT}left /= {extent};"
        yield f"{INDENT}int64_t {self.names[loops[0].var]} = left;"

    def odometer_step(self, loops: list[Loop]) -> Iterator[str]:
        """The variables of several loops moved to the next item."""
        if len(loops) < 2:
            return
        text = f"++{self.names[loops[0].var]};"
        for loop in loops[1:]:
            name = self.names[loop.var]
            text = f"if (++{name} == {self.dim(loop.extent)}) {{ {name} = 0; {text} }}"
        yield f"{INDENT * 2}{text}"

    def block(self, statements: Iterable[Statement], depth: int) -> Iterator[str]:
        for statement in statements:
            yield from (f"{INDENT * depth}{line}" for line in self.statement(statement))

    def statement(self, statement: Statement) -> Iterator[str]:
        match statement:
            case Let(name, value, _):
                kind = "int64_t" if name.startswith("#") else TYPES[value.dtype]
                yield f"const {kind} {self.names[name]} = {self.top(value)};"
            case Store():
                yield from self.store(statement)
            case Loop():
                yield from self.loop(statement)
            case If(condition, body):
                yield f"if ({self.top(condition)}) {{"
                yield from self.block(body, 1)
                yield "}"
            case Alloc(name, dtype, shape, Space.REGISTER):
                self.allocated[name] = dtype
                yield f"{TYPES[dtype]} {self.names[name]}[{self.dim(shape[0])}];"
            case Alloc(space=Space.THREAD):
                pass  # taken once a call, by `rows`
            case Require(index, extent):
                at = self.dim(index)
                yield f"if ({at} < 0 || {at} >= {self.dim(extent)}) return NOYAU_INDEX_OUT_OF_BOUNDS;"
            case Alloc() | Sync():
                raise UnsupportedError(f"c has no {statement}; it has threads that never wait for each other")
            case _:
                assert_never(statement)

    def loop(self, loop: Loop) -> Iterator[str]:
        if loop.axis is Axis.THREADS:
            raise UnsupportedError("c runs THREADS loops outermost only, each alone in the other")
        name = self.names[loop.var]
        if loop.axis is Axis.LANES:
            yield "#pragma GCC ivdep"
        yield f"for (int64_t {name} = 0; {name} < {self.dim(loop.extent)}; ++{name}) {{"
        yield from self.block(loop.body, 1)
        yield "}"

    def store(self, store: Store) -> Iterator[str]:
        places = [f"{self.names[name]}[{self.dim(store.index[0])}]" for name in store.buffers]
        values = store.values
        if store.merge is not None:
            dtypes = [self.dtype_of(name) for name in store.buffers]
            old = tuple(Load(name, store.index, dtype) for name, dtype in zip(store.buffers, dtypes, strict=True))
            values = MONOIDS[store.merge].merge(Symbolic(), old, values)
        if len(values) > 1 and store.merge is not None:
            names = [f"next_{k}" for k in range(len(values))]
            yield "{"
            for name, value in zip(names, values, strict=True):
                yield f"{INDENT}const {TYPES[value.dtype]} {name} = {self.top(value)};"
            yield from (f"{INDENT}{place} = {name};" for place, name in zip(places, names, strict=True))
            yield "}"
            return
        for place, name, value in zip(places, store.buffers, values, strict=True):
            yield f"{place} = {self.stored(name, value)};"

    def stored(self, name: str, value: Expr) -> str:
        target = self.dtype_of(name)
        if target in (DType.F16, DType.BF16):
            return self.function(f"noyau_{value.dtype.value}_to_{target.value}", (value,))
        return self.top(value)

    def dtype_of(self, name: str) -> DType:
        return self.allocated[name] if name in self.allocated else self.kernel[name].dtype

    def top(self, expr: Expr) -> str:
        """An expression without the parentheses around it."""
        text = self.expr(expr)
        return text[1:-1] if text.startswith("(") and _closes_last(text) else text

    def expr(self, expr: Expr) -> str:
        match expr:
            case Const(value, dtype):
                return const_text(value, dtype)
            case Var(name, _):
                return self.names[name]
            case Index(dim, _):
                return f"({self.dim(dim)})"
            case Load():
                return self.load(expr)
            case Call(function, operands, dtype):
                return self.call(function, operands, dtype)
            case Fold():
                raise UnsupportedError("c has no word for a fold: expand_folds comes before it prints")
            case _:
                assert_never(expr)

    def load(self, load: Load) -> str:
        cell = f"{self.names[load.buffer]}[{self.dim(load.index[0])}]"
        stored = self.dtype_of(load.buffer)
        if stored in (DType.F16, DType.BF16):
            self.functions.add(name := f"noyau_{stored.value}_to_f32")
            cell = f"{name}({cell})"
        if load.where is None:
            return cell
        assert load.other is not None
        return f"({self.expr(load.where)} ? {cell} : {self.expr(load.other)})"

    def call(self, function: str, operands: tuple[Expr, ...], dtype: DType) -> str:
        source = operands[0].dtype
        if function == "cast":
            return self.cast(operands[0], dtype)
        if function == "where":
            chosen = [self.expr(operand) for operand in operands]
            return f"({chosen[0]} ? {chosen[1]} : {chosen[2]})"
        if function in FLAT:
            return FLAT[function].format(*(self.expr(operand) for operand in operands))
        if function in INFIX and not (source.kind != "float" and function in INTEGER_FUNCTIONS):
            left, right = (self.expr(operand) for operand in operands)
            return _narrow(f"({left} {INFIX[function]} {right})", dtype)
        if function in PREFIX:
            return _narrow(f"({PREFIX[function]}{self.expr(operands[0])})", dtype)
        if source.kind in ("int", "uint", "bool"):
            return self.integer(function, operands)
        if function in SCALARS:
            return self.function(f"noyau_{SCALARS[function]}_{source.value}", operands)
        raise UnsupportedError(f"c has no spelling of {function} for {source.value}")

    def integer(self, function: str, operands: tuple[Expr, ...]) -> str:
        kind = TYPES[operands[0].dtype]
        if function not in INTEGER_FUNCTIONS:
            raise UnsupportedError(f"c has no spelling of {function} for {operands[0].dtype.value}")
        self.integers.add((function, operands[0].dtype.value))
        inner = ", ".join(self.top(operand) for operand in operands)
        return f"noyau_{function}_{operands[0].dtype.value}({inner})" if kind else ""

    def function(self, name: str, operands: tuple[Expr, ...]) -> str:
        self.functions.add(name)
        return f"{name}({', '.join(self.top(operand) for operand in operands)})"

    def cast(self, operand: Expr, dtype: DType) -> str:
        if dtype is DType.BOOL:
            return f"({self.expr(operand)} != 0)"
        return f"(({TYPES[dtype]}){self.expr(operand)})"

    def dim(self, dim: Dim) -> str:
        return dim_text(dim, self.names, op_text)


def _closed(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def const_text(value: float | int | bool, dtype: DType) -> str:
    """A number as a C literal of its dtype."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_text(float(value), "f" if dtype is DType.F32 else "")
    number = int(value)
    if number == -(2**63):
        return "INT64_MIN"
    suffix = {DType.I64: "LL", DType.U64: "ULL", DType.U32: "U"}.get(dtype, "")
    text = f"{number}{suffix}"
    return f"({text})" if number < 0 else text


def _float_text(value: float, suffix: str) -> str:
    if math.isnan(value):
        return "((float)NAN)" if suffix else "((double)NAN)"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(value)
    if suffix:
        text = repr(float(str(np.float32(value))))
    text = text if any(c in text for c in ".en") else f"{text}.0"
    return f"({text}{suffix})" if value < 0 or text.startswith("-") else f"{text}{suffix}"


def _narrow(text: str, dtype: DType) -> str:
    """C computes small integers as int: cut the result back."""
    return f"(({TYPES[dtype]}){text})" if dtype.kind in ("int", "uint") and dtype.bytes < 4 else text


def _closes_last(text: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return at == len(text) - 1
    return False
