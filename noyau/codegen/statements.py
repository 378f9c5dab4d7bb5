"""Statements of a launch as lines of text: the walk that languages share that run loops one by one. Each says what it
spells otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, assert_never

from noyau.codegen.expressions import Expressions
from noyau.codegen.identifiers import Scopes, wish_of
from noyau.codegen.idioms import begun_by, inlined, is_only_stored, one_by_one, otherwise, steps_of
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Expr,
    If,
    Let,
    Load,
    Loop,
    MergeLanes,
    Prefetch,
    Require,
    Statement,
    Store,
    StreamStore,
    TransposeTile,
    Var,
    Zero,
)
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import loops_of, rewrite_expression

INDENT = "    "


class Statements(ABC):
    """The statements of one launch being printed."""

    opens: ClassVar[str]  # a branch, with a place for its condition
    turns: ClassVar[str]  # to the other one
    closes: ClassVar[tuple[str, ...]]  # both
    ends: ClassVar[str]  # a statement
    empty: ClassVar[tuple[str, ...]]  # a block
    names: Scopes
    expressions: Expressions
    parallel: bool = False  # whether the launch has loops on threads

    @abstractmethod
    def variable(self, alloc: Alloc, text: str) -> str:
        """The declaration of memory of one cell."""

    @abstractmethod
    def constant(self, name: str, wish: str, dtype: DType, text: str) -> str:
        """The declaration of a value that does not change."""

    @abstractmethod
    def alloc(self, alloc: Alloc) -> Iterator[str]:
        """Memory of the thread."""

    @abstractmethod
    def prefetch(self, prefetch: Prefetch) -> Iterator[str]:
        """A hint to fetch a cell."""

    @abstractmethod
    def refused(self, index: str, extent: str) -> Iterator[str]:
        """The end of the launch where an index is not inside."""

    @abstractmethod
    def streamed(self, store: StreamStore) -> str:
        """The copy of a tile to its place in an output, around the caches."""

    @abstractmethod
    def transposed(self, tile: TransposeTile) -> str:
        """The copy of a tile with its axes exchanged."""

    @abstractmethod
    def rounds(self, loop: Loop) -> Iterator[str]:
        """A loop whose rounds come one after the other, or side by side in lanes."""

    @abstractmethod
    def signs(self, dtype: DType) -> Mapping[str, str]:
        """The functions of which a cell of a dtype may be an operand and the result, to their signs."""

    @abstractmethod
    def noted(self, let: Let) -> None:
        """Notes what is to be known of an index or a length that has a name."""

    # Blocks.

    def block(self, statements: Iterable[Statement]) -> Iterator[str]:
        """Statements in a scope that is open already."""
        left = list(statements)
        while left:
            lines, left = self.first(left)
            yield from lines

    def first(self, left: list[Statement]) -> tuple[Iterator[str], list[Statement]]:
        """The lines of the first statement, or of several that are told as one, and the statements after it."""
        statement, *left = left
        if isinstance(statement, Let) and left and is_only_stored(statement, left):
            store, *left = left
            statement = inlined(statement, store)
        if left and isinstance(statement, If) and (other := otherwise(statement, left[0])):
            return self.either(statement, other), left[1:]
        if begun := begun_by([statement, *left]):
            *memory, store = [statement, *left][: begun + 1]
            return self.variables(memory, store), left[begun:]
        return self.statement(statement, last=not left), left

    def inner(self, statements: Iterable[Statement]) -> Iterator[str]:
        """A block of its own."""
        with self.names.block():
            lines = list(self.block(statements))
        return (f"{INDENT}{line}" for line in lines or self.empty)

    def either(self, this: If, other: Sequence[Statement] = ()) -> Iterator[str]:
        """A branch, or one of two."""
        yield self.opens.format(self.expressions.top(this.condition))
        yield from self.inner(this.body)
        if other:
            yield self.turns
            yield from self.inner(other)
        yield from self.closes

    # Statements.

    def statement(self, statement: Statement, *, last: bool) -> Iterator[str]:
        """The lines of a statement, which may be the last of its block."""
        match statement:
            case Let():
                yield self.let(statement)
            case Store():
                yield from self.store(statement, last=last)
            case Loop():
                yield from self.loop(statement)
            case If():
                yield from self.either(statement)
            case Alloc():
                yield from self.alloc(statement)
            case Prefetch():
                yield from self.prefetch(statement)
            case Require():
                yield from self.require(statement)
            case StreamStore():
                yield self.streamed(statement)
            case TransposeTile():
                yield self.transposed(statement)
            case Zero() | MergeLanes():
                *before, end = loops_of(statement)
                for each in before:
                    yield from self.statement(each, last=False)
                yield from self.statement(end, last=last)
            case _:
                assert_never(statement)

    def variables(self, memory: Sequence[Statement], first: Statement) -> Iterator[str]:
        """Memory of one cell each, with what is in it first."""
        assert isinstance(first, Store)
        for alloc, value in zip(memory, first.values, strict=True):
            assert isinstance(alloc, Alloc)
            yield self.variable(alloc, self.expressions.stored_as(alloc.dtype, value))

    def let(self, let: Let) -> str:
        """A value under the name that the model gives it; a cell of a buffer `x` is `x_i`."""
        text = self.expressions.top(let.value)
        wish = let.origin[0] if let.origin else let.name.removeprefix("#")
        if isinstance(let.value, Load) and isinstance(self.expressions.memory[let.value.buffer], Buffer):
            wish = f"{let.value.buffer}_i"
        if let.name.startswith("#"):
            self.noted(let)
            wish = wish_of(let.name) or wish
        return self.constant(let.name, wish, let.value.dtype, text)

    def require(self, require: Require) -> Iterator[str]:
        yield from self.refused(self.expressions.dim(require.index), self.expressions.dim(require.extent))
        if require.index == Dim.of(name := str(require.index)):
            self.expressions.required[name] = require.extent

    def loop(self, loop: Loop) -> Iterator[str]:
        if loop.axis is Axis.THREADS:
            raise UnsupportedError(
                f"{self.expressions.language} runs THREADS loops outermost only, each alone in the other"
            )
        yield from self.rounds(loop)

    # Stores.

    def store(self, store: Store, *, last: bool) -> Iterator[str]:
        said = self.expressions
        places = [said.cell(name, store.index) for name in store.buffers]
        dtypes = [said.memory[name].dtype.compute for name in store.buffers]
        old = tuple(Load(name, store.index, dtype) for name, dtype in zip(store.buffers, dtypes, strict=True))
        if store.merge and self.parallel and any(isinstance(said.memory[name], Buffer) for name in store.buffers):
            raise UnsupportedError(
                f"{said.language} has no merge of threads into {store.buffers[0]}; give each a state of its own"
            )
        values = MONOIDS[store.merge].merge(Symbolic(), old, store.values) if store.merge else store.values
        if one_by_one(store.buffers, values):
            for place, name, cell, value in zip(places, store.buffers, old, values, strict=True):
                yield self.assigned(place, name, cell, value)
        else:
            yield from self.at_once(store.buffers, places, values, last=last)

    def assigned(self, place: str, name: str, old: Load, value: Expr) -> str:
        signs = self.signs(self.expressions.memory[name].dtype)
        match value:
            case Call(function, (left, right), _) if left == old and function in signs:
                return f"{place} {signs[function]}= {self.expressions.top(right)}{self.ends}"
            case _:
                return f"{place} = {self.expressions.stored(name, value)}{self.ends}"

    def at_once(
        self, buffers: Sequence[str], places: Sequence[str], values: Sequence[Expr], *, last: bool
    ) -> Iterator[str]:
        """States of several values: what is used twice has a name, and all are computed before one changes."""
        with self.names.block():
            yield from self.computed_first(buffers, places, values)

    def computed_first(self, buffers: Sequence[str], places: Sequence[str], values: Sequence[Expr]) -> Iterator[str]:
        known: dict[Expr, Expr] = {}
        for number, call in enumerate(steps_of(values)):
            inner = rewrite_expression(call, lambda expr: known.get(expr, expr))
            part = f"part {number}"
            yield self.constant(part, part, call.dtype, self.expressions.top(inner))
            known[inner] = Var(part, call.dtype)
        finals = []
        for buffer, value in zip(buffers, values, strict=True):
            text = self.expressions.stored(buffer, rewrite_expression(value, lambda expr: known.get(expr, expr)))
            final = f"next {buffer}"
            yield self.constant(final, final, self.expressions.memory[buffer].dtype, text)
            finals.append(self.names.value(final))
        yield from (f"{place} = {final}{self.ends}" for place, final in zip(places, finals, strict=True))
