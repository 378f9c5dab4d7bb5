"""Statements and expressions of languages of GPU threads: memory of as many cells as a block has threads is a variable
of each thread, and what is looked up asks whether it is inside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from noyau.codegen.identifiers import Scopes
from noyau.codegen.statements import INDENT, Expressions, Statements
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape
from noyau.ir.walk import every_expression

# Functions that CUDA has itself, within 2 ulp or so, in CUDA C++ and in Python's math alike.
MATH = "exp expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf sqrt".split()


class ThreadExpressions(Expressions):
    """The expressions of one kernel. `lanes`: the memory that is a variable of each thread; `lane`: the variable of the
    loop in lanes that is open; `inside`: whether an index that was looked up is inside."""

    both: ClassVar[str]  # stands between conditions that all hold

    def __init__(self, kernel: ir.Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.lanes, self.lane, self.inside = set[str](), "", dict[str, str]()

    def own_cell(self, name: str, index: Shape) -> str:
        """The variable of a thread. UnsupportedError for a cell of another one."""
        if index != (Dim.of(self.lane or 0),):
            raise UnsupportedError(f"{self.language}: a thread cannot reach cell {index[0]} of {name}, another's")
        return self.names.value(name)

    def load(self, load: ir.Load) -> str:
        """As of the language for processors; what lies outside is not read, and is 0."""
        cell, inside = super().load(load), self.all_inside(load.index)
        return self.select(inside, cell, self.const(0, load.dtype)) if inside else cell

    def all_inside(self, index: Shape) -> str:
        """The condition that what is looked up in an index is inside, or nothing."""
        flags = (self.inside[name] for dim in index for name in dim.names if name in self.inside)
        return self.both.join(dict.fromkeys(flags))


class ThreadStatements(Statements):
    """The statements of one launch."""

    expressions: ThreadExpressions
    unless: ClassVar[str]  # a condition does not hold, with a place for it as an operand and one for it alone
    within: ClassVar[str]  # an index lies inside
    flag: ClassVar[str] = ""  # before the declaration of whether it does
    alone = ""  # whether a thread is the first of those that compute the same

    @abstractmethod
    def merge_lanes(self, merge: ir.MergeLanes) -> Iterator[str]:
        """The states of all threads of a block, merged; each thread has the result."""

    def statement(self, statement: ir.Statement, *, last: bool) -> Iterator[str]:
        texts = self.expressions
        match statement:
            case ir.MergeLanes():
                yield from self.merge_lanes(statement)
            case ir.Require():
                yield self.note_inside(statement, "")
            case ir.If(condition, body) if all(isinstance(s, ir.Require) for s in body):
                otherwise = self.unless.format(texts.expr(condition), texts.top(condition))
                yield from (self.note_inside(s, otherwise) for s in body if isinstance(s, ir.Require))
            case ir.Store() if guard := self.of_updates(statement) or self.of_one(statement):
                yield self.opens.format(guard)
                yield from (f"{INDENT}{line}" for line in self.store(statement, last=False))
                yield from self.closes
            case _:
                yield from super().statement(statement, last=last)

    def of_one(self, store: ir.Store) -> str:
        """The condition that one thread stores what all of a block have computed alike, or nothing."""
        texts = self.expressions
        is_alike = not texts.lane and any(isinstance(texts.memory[name], ir.Buffer) for name in store.buffers)
        return self.alone if is_alike else ""

    def of_updates(self, store: ir.Store) -> str:
        """The condition that what a store names as an index was looked up inside, or nothing."""
        dims = [expr.dim for expr in every_expression((store,)) if isinstance(expr, ir.Index)]
        return self.expressions.all_inside((*store.index, *dims))

    def note_inside(self, require: ir.Require, otherwise: str) -> str:
        """Whether an index lies inside, or need not: what is loaded there asks."""
        flag, texts = f"inside {require.index}", self.expressions
        text = otherwise + self.within.format(texts.dim(require.index), texts.dim(require.extent))
        declared = self.flag + self.constant(flag, "inside", DType.BOOL, text)
        texts.inside |= {each: self.names.value(flag) for each in require.index.names if each.startswith("#")}
        return declared
