"""Printers for languages of GPU threads: memory with a cell for each thread of a block is a variable of each thread,
and accesses at looked-up indices are predicated on their bounds."""

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

# Functions of CUDA itself, accurate to about 2 ulp, with the same names in CUDA C++ and Python's math.
MATH = "exp expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf sqrt".split()


class ThreadExpressions(Expressions):
    """Printer of the expressions of one kernel. `lanes`: memory that is a variable of each thread; `lane`: the variable
    of the enclosing loop over lanes; `inside`: the flag of a looked-up index that is within bounds."""

    both: ClassVar[str]  # the operator of a conjunction

    def __init__(self, kernel: ir.Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.lanes, self.lane, self.inside = set[str](), "", dict[str, str]()

    def own_cell(self, name: str, index: Shape) -> str:
        """The variable of the thread. UnsupportedError for the cell of another thread."""
        if index != (Dim.of(self.lane or 0),):
            raise UnsupportedError(f"{self.language}: a thread cannot reach cell {index[0]} of {name}, another's")
        return self.names.value(name)

    def load(self, load: ir.Load) -> str:
        """The load, predicated on the bounds of looked-up indices; 0 out of bounds."""
        cell, inside = super().load(load), self.all_inside(load.index)
        return self.select(inside, cell, self.const(0, load.dtype)) if inside else cell

    def all_inside(self, index: Shape) -> str:
        """The condition that looked-up indices are within bounds; empty if there are none."""
        flags = (self.inside[name] for dim in index for name in dim.names if name in self.inside)
        return self.both.join(dict.fromkeys(flags))


class ThreadStatements(Statements):
    """Printer of the statements of one launch."""

    expressions: ThreadExpressions
    unless: ClassVar[str]  # "not condition or ", with places for the condition as an operand and without parentheses
    within: ClassVar[str]  # the condition that an index is within bounds
    flag: ClassVar[str] = ""  # text before the declaration of the flag of that condition
    alone = ""  # the condition that a thread is the first of those that compute the same

    @abstractmethod
    def merge_lanes(self, merge: ir.MergeLanes) -> Iterator[str]:
        """The lines that merge the states of all threads of a block; each thread gets the result."""

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
        """The condition by which only one thread stores a value that all threads of a block compute; else empty."""
        texts = self.expressions
        is_alike = not texts.lane and any(isinstance(texts.memory[name], ir.Buffer) for name in store.buffers)
        return self.alone if is_alike else ""

    def of_updates(self, store: ir.Store) -> str:
        """The condition that the looked-up indices in a store are within bounds; empty if there are none."""
        dims = [expr.dim for expr in every_expression((store,)) if isinstance(expr, ir.Index)]
        return self.expressions.all_inside((*store.index, *dims))

    def note_inside(self, require: ir.Require, otherwise: str) -> str:
        """The declaration of the flag that an index is within bounds, or need not be; loads at it test the flag."""
        flag, texts = f"inside {require.index}", self.expressions
        text = otherwise + self.within.format(texts.dim(require.index), texts.dim(require.extent))
        declared = self.flag + self.constant(flag, "inside", DType.BOOL, text)
        texts.inside |= {each: self.names.value(flag) for each in require.index.names if each.startswith("#")}
        return declared
