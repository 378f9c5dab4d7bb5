"""Printers of statements and expressions that are common to languages whose loops run one by one, with the idioms of
both; a subclass for each language prints the rest."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias, assert_never

from noyau.codegen.identifiers import Scopes, wish_of
from noyau.codegen.tables import FLAT, INFIX, SCALARS, as_operand, dim_text, unwrap
from noyau.compiler.schedules.primitives import stride_of
from noyau.dtypes import HALVES, DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimOp, Shape
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import every_expression, loads_of, loops_of, operands, rewrite_expression

INDENT = "    "
LONG = 7  # least number of nodes of an expression that gets its own name in a merge


class Statements(ABC):
    """Printer of the statements of one launch."""

    opens: ClassVar[str]  # text that opens a branch, with a place for its condition
    turns: ClassVar[str]  # text between a branch and its else
    closes: ClassVar[tuple[str, ...]]  # lines that close a branch
    ends: ClassVar[str]  # text at the end of a statement
    empty: ClassVar[tuple[str, ...]]  # lines of an empty block
    names: Scopes
    expressions: Expressions
    parallel: bool = False  # whether the launch has loops on threads

    @abstractmethod
    def variable(self, alloc: ir.Alloc, text: str) -> str:
        """The declaration of memory of one cell, initialised by `text`."""

    @abstractmethod
    def constant(self, name: str, wish: str, dtype: DType, text: str) -> str:
        """The declaration of a constant value."""

    @abstractmethod
    def alloc(self, alloc: ir.Alloc) -> Iterator[str]:
        """The declaration of memory of the thread."""

    @abstractmethod
    def prefetch(self, prefetch: ir.Prefetch) -> Iterator[str]:
        """The hint to prefetch a cell."""

    @abstractmethod
    def refuse(self, index: str, extent: str) -> Iterator[str]:
        """The lines that end the launch if an index is out of bounds."""

    @abstractmethod
    def stream(self, store: ir.StreamStore) -> str:
        """The copy of a tile to an output by non-temporal stores."""

    @abstractmethod
    def rounds(self, loop: ir.Loop) -> Iterator[str]:
        """A serial loop, or a loop over lanes."""

    @abstractmethod
    def signs(self, dtype: DType) -> Mapping[str, str]:
        """The signs of the functions that have compound assignments, such as +=, to a cell of a dtype."""

    @abstractmethod
    def note(self, let: ir.Let) -> None:
        """Record facts about a named index or length."""

    def block(self, statements: Iterable[ir.Statement]) -> Iterator[str]:
        """The lines of statements in the current scope."""
        left = list(statements)
        while left:
            lines, left = self.first(left)
            yield from lines

    def first(self, left: list[ir.Statement]) -> tuple[Iterator[str], list[ir.Statement]]:
        """The lines of the first statement, or of several that are printed as one, and the remaining statements."""
        statement, *left = left
        if isinstance(statement, ir.Let) and left and is_only_stored(statement, left):
            store, *left = left
            assert isinstance(store, ir.Store)
            statement = replace(store, values=(statement.value,))
        if left and isinstance(statement, ir.If) and (other := otherwise(statement, left[0])):
            return self.either(statement, other), left[1:]
        if begun := count_allocated([statement, *left]):
            *memory, store = [statement, *left][: begun + 1]
            return self.variables(memory, store), left[begun:]
        return self.statement(statement, last=not left), left

    def inner(self, statements: Iterable[ir.Statement]) -> Iterator[str]:
        """The indented lines of statements in a new scope."""
        with self.names.block():
            lines = list(self.block(statements))
        return (f"{INDENT}{line}" for line in lines or self.empty)

    def either(self, this: ir.If, other: Sequence[ir.Statement] = ()) -> Iterator[str]:
        """The lines of a branch, with an else if `other` has statements."""
        yield self.opens.format(self.expressions.top(this.condition))
        yield from self.inner(this.body)
        if other:
            yield self.turns
            yield from self.inner(other)
        yield from self.closes

    def statement(self, statement: ir.Statement, *, last: bool) -> Iterator[str]:
        """The lines of a statement; `last`: it is the last of its block."""
        match statement:
            case ir.Let():
                yield self.let(statement)
            case ir.Store():
                yield from self.store(statement, last=last)
            case ir.Loop():
                yield from self.loop(statement)
            case ir.If():
                yield from self.either(statement)
            case ir.Alloc():
                yield from self.alloc(statement)
            case ir.Prefetch():
                yield from self.prefetch(statement)
            case ir.Require():
                yield from self.require(statement)
            case ir.StreamStore():
                yield self.stream(statement)
            case ir.Zero() | ir.MergeLanes():
                loops = loops_of(statement)
                for each in loops:
                    yield from self.statement(each, last=last and each is loops[-1])
            case _:
                assert_never(statement)

    def variables(self, memory: Sequence[ir.Statement], first: ir.Statement) -> Iterator[str]:
        """The declarations of variables, initialised by a Store."""
        assert isinstance(first, ir.Store)
        for alloc, value in zip(memory, first.values, strict=True):
            assert isinstance(alloc, ir.Alloc)
            yield self.variable(alloc, self.expressions.text_as(alloc.dtype, value))

    def let(self, let: ir.Let) -> str:
        """The declaration of a Let, named as in the model; a loaded cell of a buffer `x` is named `x_i`."""
        text = self.expressions.top(let.value)
        wish = let.origin[0] if let.origin else let.name.removeprefix("#")
        if isinstance(let.value, ir.Load) and isinstance(self.expressions.memory[let.value.buffer], ir.Buffer):
            wish = f"{let.value.buffer}_i"
        if let.name.startswith("#"):
            self.note(let)
            wish = wish_of(let.name) or wish
        return self.constant(let.name, wish, let.value.dtype, text)

    def require(self, require: ir.Require) -> Iterator[str]:
        yield from self.refuse(self.expressions.dim(require.index), self.expressions.dim(require.extent))
        if require.index == Dim.of(name := str(require.index)):
            self.expressions.required[name] = require.extent

    def loop(self, loop: ir.Loop) -> Iterator[str]:
        if loop.axis is ir.Axis.THREADS:
            language = self.expressions.language
            raise UnsupportedError(f"{language} runs THREADS loops outermost only, each alone in the other")
        yield from self.rounds(loop)

    def store(self, store: ir.Store, *, last: bool) -> Iterator[str]:
        texts = self.expressions
        places = [texts.cell(name, store.index) for name in store.buffers]
        dtypes = [texts.memory[name].dtype.compute for name in store.buffers]
        old = tuple(ir.Load(name, store.index, dtype) for name, dtype in zip(store.buffers, dtypes, strict=True))
        if store.merge and self.parallel and any(isinstance(texts.memory[name], ir.Buffer) for name in store.buffers):
            reason = f"has no merge of threads into {store.buffers[0]}; give each a state of its own"
            raise UnsupportedError(f"{texts.language} {reason}")
        values = MONOIDS[store.merge].merge(Symbolic(), old, store.values) if store.merge else store.values
        if one_by_one(store.buffers, values):
            for place, name, cell, value in zip(places, store.buffers, old, values, strict=True):
                yield self.assign(place, name, cell, value)
        else:
            yield from self.at_once(store.buffers, places, values, last=last)

    def assign(self, place: str, name: str, old: ir.Load, value: ir.Expr) -> str:
        signs = self.signs(self.expressions.memory[name].dtype)
        match value:
            case ir.Call(function, (left, right), _) if left == old and function in signs:
                return f"{place} {signs[function]}= {self.expressions.top(right)}{self.ends}"
            case _:
                return f"{place} = {self.expressions.cell_text(name, value)}{self.ends}"

    def at_once(
        self, buffers: Sequence[str], places: Sequence[str], values: Sequence[ir.Expr], *, last: bool
    ) -> Iterator[str]:
        """Update several states at once: common subexpressions get names; all new values are computed first."""
        with self.names.block():
            yield from self.compute_first(buffers, places, values)

    def compute_first(self, buffers: Sequence[str], places: Sequence[str], values: Sequence[ir.Expr]) -> Iterator[str]:
        known: dict[ir.Expr, ir.Expr] = {}
        for number, call in enumerate(steps_of(values)):
            inner = rewrite_expression(call, lambda expr: known.get(expr, expr))
            part = f"part {number}"
            yield self.constant(part, part, call.dtype, self.expressions.top(inner))
            known[inner] = ir.Var(part, call.dtype)
        for buffer, value in zip(buffers, values, strict=True):
            text = self.expressions.cell_text(buffer, rewrite_expression(value, lambda expr: known.get(expr, expr)))
            final = f"next {buffer}"
            yield self.constant(final, final, self.expressions.memory[buffer].dtype, text)
        finals = [self.names.value(f"next {buffer}") for buffer in buffers]
        yield from (f"{place} = {final}{self.ends}" for place, final in zip(places, finals, strict=True))


def steps_of(values: Sequence[ir.Expr]) -> list[ir.Expr]:
    """The calls in expressions that get names, in order of dependence: those that occur twice, and long ones."""
    counts: dict[ir.Expr, int] = {}

    def count(expr: ir.Expr) -> None:
        if isinstance(expr, ir.Call):
            counts[expr] = counts.get(expr, 0) + 1
            if counts[expr] > 1:
                return
        for operand in operands(expr):
            count(operand)

    for value in values:
        count(value)
    steps = [expr for expr, times in counts.items() if times > 1 or (size_of(expr) >= LONG and expr not in values)]
    return sorted(steps, key=size_of)


def one_by_one(buffers: Sequence[str], values: Sequence[ir.Expr]) -> bool:
    """Whether buffers can be stored one after the other: no value reads a buffer that is stored before it."""
    reads = ({load.buffer for load in loads_of((ir.Let("", value),))} for value in values)
    return not any(read & set(buffers[:position]) for position, read in enumerate(reads))


def size_of(expr: ir.Expr) -> int:
    return 1 + sum(map(size_of, operands(expr)))


def is_only_stored(let: ir.Let, after: Sequence[ir.Statement]) -> bool:
    """Whether a value is only stored, by the next statement, and not read otherwise."""
    store, *rest = after
    if not isinstance(store, ir.Store) or store.merge or store.values != (ir.Var(let.name, let.value.dtype),):
        return False
    return not any(isinstance(expr, ir.Var) and expr.name == let.name for expr in every_expression(rest))


def count_allocated(statements: Sequence[ir.Statement]) -> int:
    """The number of leading allocations of variables that the next statement, a Store, initialises all; else 0."""
    count = next((at for at, s in enumerate(statements) if not (isinstance(s, ir.Alloc) and is_variable(s))), 0)
    names = tuple(s.name for s in statements[:count] if isinstance(s, ir.Alloc))
    store = statements[count] if count else None
    return count if isinstance(store, ir.Store) and store.buffers == names and not store.merge else 0


def otherwise(this: ir.Statement, after: ir.Statement) -> tuple[ir.Statement, ...]:
    """The body of the next statement, if it is the else of this one and the condition reads no memory; else empty."""
    match this, after:
        case ir.If(condition), ir.If(ir.Call("logical_not", (opposite,)), body) if condition == opposite:
            return () if loads_of((ir.Let("", condition),)) else body
        case _:
            return ()


class Expressions(ABC):
    """Printer of the expressions of one kernel, which records the functions that the text calls.

    `functions`: names of codegen/cmath; `integers`: keys of `integer_function`; `preludes`: of the language's table."""

    language: ClassVar[str]
    prefix: ClassVar[Mapping[str, str]]
    integer_functions: ClassVar[Container[str]]

    def __init__(self, kernel: ir.Kernel, names: Scopes) -> None:
        self.names = names
        self.memory: dict[str, ir.Buffer | ir.Alloc] = {buffer.name: buffer for buffer in kernel.buffers}
        self.extents: dict[str, Dim] = {}  # of the enclosing loops, which are therefore not empty
        self.required: dict[str, Dim] = {}  # extents that looked-up indices are known to be within
        self.functions: set[str] = set()
        self.integers: set[tuple[str, str]] = set()
        self.preludes: set[str] = set()

    @staticmethod
    @abstractmethod
    def const(value: float | int | bool, dtype: DType) -> str:
        """A number as text that can be any operand."""

    @abstractmethod
    def cell(self, name: str, index: Shape) -> str:
        """A cell of a buffer or of memory; memory of one cell is a variable."""

    @abstractmethod
    def select(self, condition: str, value: str, other: str) -> str:
        """The choice of one of two values, as an operand."""

    @staticmethod
    @abstractmethod
    def narrow(text: str, dtype: DType) -> str:
        """A value that the language may have computed in a wider type, converted to its dtype, as an operand."""

    @abstractmethod
    def convert(self, operand: ir.Expr, dtype: DType) -> str:
        """A cast to another dtype; neither is a float8."""

    @abstractmethod
    def operate(self, op: DimOp, left: str, right: str) -> str:
        """A quotient, a remainder, a maximum or a minimum in an index."""

    def own(self, function: str, operands: tuple[ir.Expr, ...]) -> str | None:
        """The text of a call that this language prints specially, or None."""
        return None

    def in_whole_lines(self, tile: ir.InWholeLines) -> str:
        """The condition that a tile consists of whole cache lines."""
        raise UnsupportedError(f"{self.language} does not ask where memory lies: schedule without lines")

    def until_aligned(self, place: ir.CellsToAlignment) -> str:
        """The number of cells up to the alignment of a vector."""
        raise UnsupportedError(f"{self.language} does not ask where memory lies: schedule without vectors")

    # Values.

    def top(self, expr: ir.Expr) -> str:
        """An expression without enclosing parentheses."""
        return unwrap(self.expr(expr))

    def expr(self, expr: ir.Expr) -> str:
        """An expression that can be an operand."""
        match expr:
            case ir.Const(value, dtype):
                return self.const(value, dtype)
            case ir.Var(name, _):
                return self.names.value(name)
            case ir.Index(dim, _):
                return as_operand(self.dim(dim))
            case ir.Load():
                return self.load(expr)
            case ir.Call("exp", operands, DType.F32, assumptions) if ir.Assumption.NON_POSITIVE in assumptions:
                return self.function("noyau_exp_negative_f32", operands)
            case ir.Call("divide", operands, DType.F32, assumptions) if ir.Assumption.SHARE in assumptions:
                return self.function("noyau_share_f32", operands)
            case ir.Call(function, operands, dtype, assumptions) if ir.Assumption.NEAR in assumptions:
                return self.function(f"noyau_{function}_near_{dtype.value}", operands)
            case ir.Call(function, operands, dtype):
                return self.call(function, operands, dtype)
            case ir.InWholeLines():
                return self.in_whole_lines(expr)
            case ir.CellsToAlignment():
                return self.until_aligned(expr)
            case ir.Fold():
                raise UnsupportedError(f"{self.language} has no word for a fold: expand_folds comes before it prints")
            case _:
                assert_never(expr)

    def load(self, load: ir.Load) -> str:
        cell, stored = self.cell(load.buffer, load.index), self.memory[load.buffer].dtype
        cell = self.widen(cell, stored) if stored in HALVES else cell
        if load.where is None:
            return cell
        assert load.other is not None
        return self.select(self.condition(load.where), cell, self.expr(load.other))

    def widen(self, cell: str, stored: DType) -> str:
        """A cell of a 16-bit float as float32."""
        self.functions.add(name := f"noyau_{stored.value}_to_f32")
        return f"{name}({cell})"

    def condition(self, expr: ir.Expr) -> str:
        """An expression as the condition of a choice."""
        chooses = (isinstance(expr, ir.Call) and expr.function == "where") or (isinstance(expr, ir.Load) and expr.where)
        return self.expr(expr) if chooses else self.top(expr)

    def cell_text(self, name: str, value: ir.Expr) -> str:
        return self.text_as(self.memory[name].dtype, value)

    def text_as(self, target: DType, value: ir.Expr) -> str:
        if target in HALVES:
            return self.function(f"noyau_{value.dtype.value}_to_{target.value}", (value,))
        return self.top(value)

    def call(self, function: str, operands: tuple[ir.Expr, ...], dtype: DType) -> str:
        source = operands[0].dtype
        if function == "cast":
            return self.cast(operands[0], dtype)
        if function == "where":
            value, other = map(self.expr, operands[1:])
            return self.select(self.condition(operands[0]), value, other)
        if (text := self.own(function, operands)) is not None:
            return text
        if function in FLAT:
            return FLAT[function].format(*map(self.expr, operands))
        if function in INFIX and not (source.kind != "float" and function in self.integer_functions):
            left, right = map(self.expr, operands)
            return self.narrow(f"{left} {INFIX[function]} {right}", dtype)
        if function in self.prefix:
            return self.narrow(f"{self.prefix[function]}{self.expr(operands[0])}", dtype)
        if source.kind != "float" and function in self.integer_functions:
            return self.integer_call(function, source, *map(self.top, operands))
        if source.kind == "float" and function in SCALARS:
            return self.function(f"noyau_{SCALARS[function]}_{source.value}", operands)
        raise UnsupportedError(f"{self.language} has no spelling of {function} for {source.value}")

    def integer_call(self, function: str, dtype: DType, *texts: str) -> str:
        self.integers.add((function, dtype.value))
        return f"noyau_{function}_{dtype.value}({', '.join(texts)})"

    def function(self, name: str, operands: tuple[ir.Expr, ...]) -> str:
        self.functions.add(name)
        return f"{name}({', '.join(map(self.top, operands))})"

    def cast(self, operand: ir.Expr, dtype: DType) -> str:
        if dtype is operand.dtype or not any(each.is_float8 or each.is_half for each in (dtype, operand.dtype)):
            return self.convert(operand, dtype)
        if DType.F32 not in (operand.dtype, dtype):  # convert through float32
            return self.cast(ir.Call("cast", (operand,), DType.F32), dtype)
        return self.function(f"noyau_{operand.dtype.value}_to_{dtype.value}", (operand,))

    def dim(self, dim: Dim) -> str:
        """An index or an extent, int64, without enclosing parentheses. UnsupportedError for larger numbers."""
        text = unwrap(dim_text(dim, self.names.atom, self.operate))
        if any(int(number) >= 2**63 for number in re.findall(r"\b\d{19,}\b", text)):
            reason = "more than 64 bits; no array has so many cells"
            raise UnsupportedError(f"{self.language} has no integer for {dim}: {reason}")
        return text


def is_variable(memory: ir.Buffer | ir.Alloc) -> bool:
    """Whether memory is one cell in a register."""
    return isinstance(memory, ir.Alloc) and memory.space is ir.Space.REGISTER and memory.shape == (Dim.of(1),)


def rounds_apart(launches: Iterable[ir.Launch]) -> bool:
    """Whether a value is rounded before its uses (see compiler/passes/normal_form.py). Multiplications and additions
    are then not fused in the whole kernel, since a maximum may be in another launch than the subtraction of it."""
    every = (expr for launch in launches for expr in every_expression(launch.body))
    return any(isinstance(expr, ir.Call) and expr.function == "rounded" for expr in every)


# A transposing copy of 4-byte words, for which a language may have a call that transposes tiles in registers: target,
# its first cell and stride; source, its first cell and stride; the number of lines; the cells of each.
TurnedCopy: TypeAlias = tuple[str, Dim, Dim, str, Dim, Dim, Dim, Dim]


def turned_copy(loop: ir.Loop, memory: Mapping[str, ir.Buffer | ir.Alloc]) -> TurnedCopy | None:
    """The transposing copy that a nest of two loops makes; None for any other nest, or cells that are not 4 bytes."""
    if len(loop.body) != 1 or not isinstance(inner := loop.body[0], ir.Loop):
        return None
    match inner.body:
        case (ir.Store((to,), (place,), (ir.Load(source, (at,), dtype, None) as load,), None) as store,) if (
            to != source
        ):
            ends, begin = (memory[to], memory[source]), {loop.var: 0, inner.var: 0}
        case _:
            return None
    if dtype.bytes != 4 or any(each.dtype is not dtype or getattr(each, "layout", "") == "strided" for each in ends):
        return None
    for lines, cells in ((loop, inner), (inner, loop)):
        there, here = stride_of(store, cells.var), stride_of(load, lines.var)
        beside = stride_of(load, cells.var) == stride_of(store, lines.var) == Dim.of(1)
        if beside and not (there.names | here.names) & begin.keys():
            return to, place.replace(begin), there, source, at.replace(begin), here, lines.extent, cells.extent
    return None
