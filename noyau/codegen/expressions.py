"""Expressions of the loop IR as text, and the functions that the text turns out to need: what languages compute cell by
cell share. Each says what it spells otherwise."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from typing import ClassVar, assert_never

from noyau.codegen.identifiers import Scopes
from noyau.codegen.tables import FLAT, INFIX, SCALARS, closed, dim_text, opened
from noyau.dtypes import HALVES, DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, Shape
from noyau.ir.loops import (
    Alloc,
    Assumption,
    Buffer,
    Call,
    Const,
    Expr,
    Fold,
    Index,
    InWholeLines,
    Kernel,
    Load,
    Space,
    Var,
)


class Expressions(ABC):
    """The expressions of one kernel: what is in scope, and which scalar functions the text calls.

    `functions` are names of codegen/cmath, `integers` keys of `integer_function`, `preludes` names in the language's
    own table of what stands above its kernels."""

    language: ClassVar[str]
    prefix: ClassVar[Mapping[str, str]]
    integer_functions: ClassVar[Container[str]]

    def __init__(self, kernel: Kernel, names: Scopes) -> None:
        self.names = names
        self.memory: dict[str, Buffer | Alloc] = {buffer.name: buffer for buffer in kernel.buffers}
        self.extents: dict[str, Dim] = {}  # of the loops that are open: they run
        self.required: dict[str, Dim] = {}  # of indices that were looked up, and are inside where they are used
        self.functions: set[str] = set()
        self.integers: set[tuple[str, str]] = set()
        self.preludes: set[str] = set()

    @abstractmethod
    def const(self, value: float | int | bool, dtype: DType) -> str:
        """A number, as an operand of anything."""

    @abstractmethod
    def cell(self, name: str, index: Shape) -> str:
        """One cell of a buffer or of memory; memory of one cell is a variable."""

    @abstractmethod
    def chosen(self, condition: str, value: str, other: str) -> str:
        """One of two values, as an operand."""

    @abstractmethod
    def narrow(self, text: str, dtype: DType) -> str:
        """A value that the language has computed in a type of its own choice, as an operand of its dtype."""

    @abstractmethod
    def converted(self, operand: Expr, dtype: DType) -> str:
        """A cast of what has another dtype; neither is a float8."""

    @abstractmethod
    def operate(self, op: DimOp, left: str, right: str) -> str:
        """A quotient, a rest, a maximum or a minimum in an index."""

    def own(self, function: str, operands: tuple[Expr, ...]) -> str | None:
        """A call that this language spells in its own way, or None."""
        return None

    def in_whole_lines(self, tile: InWholeLines) -> str:
        """Whether a tile begins with lines of memory."""
        raise UnsupportedError(f"{self.language} does not ask where memory lies: schedule without lines")

    # Values.

    def top(self, expr: Expr) -> str:
        """An expression without the parentheses around it."""
        return opened(self.expr(expr))

    def expr(self, expr: Expr) -> str:
        """An expression that can be an operand."""
        match expr:
            case Const(value, dtype):
                return self.const(value, dtype)
            case Var(name, _):
                return self.names.value(name)
            case Index(dim, _):
                return closed(self.dim(dim))
            case Load():
                return self.load(expr)
            case Call("exp", operands, DType.F32, assumptions) if Assumption.NON_POSITIVE in assumptions:
                return self.function("noyau_exp_negative_f32", operands)
            case Call("divide", operands, DType.F32, assumptions) if Assumption.SHARE in assumptions:
                return self.function("noyau_share_f32", operands)
            case Call(function, operands, dtype):
                return self.call(function, operands, dtype)
            case InWholeLines():
                return self.in_whole_lines(expr)
            case Fold():
                raise UnsupportedError(f"{self.language} has no word for a fold: expand_folds comes before it prints")
            case _:
                assert_never(expr)

    def load(self, load: Load) -> str:
        cell, stored = self.cell(load.buffer, load.index), self.memory[load.buffer].dtype
        if stored in HALVES:
            self.functions.add(name := f"noyau_{stored.value}_to_f32")
            cell = f"{name}({cell})"
        if load.where is None:
            return cell
        assert load.other is not None
        return self.chosen(self.condition(load.where), cell, self.expr(load.other))

    def condition(self, expr: Expr) -> str:
        """An expression that is asked for a choice."""
        chooses = (isinstance(expr, Call) and expr.function == "where") or (isinstance(expr, Load) and expr.where)
        return self.expr(expr) if chooses else self.top(expr)

    def stored(self, name: str, value: Expr) -> str:
        """A value in the dtype of what it is stored in."""
        return self.stored_as(self.memory[name].dtype, value)

    def stored_as(self, target: DType, value: Expr) -> str:
        if target in HALVES:
            return self.function(f"noyau_{value.dtype.value}_to_{target.value}", (value,))
        return self.top(value)

    # Calls.

    def call(self, function: str, operands: tuple[Expr, ...], dtype: DType) -> str:
        source = operands[0].dtype
        if function == "cast":
            return self.cast(operands[0], dtype)
        if function == "where":
            value, other = map(self.expr, operands[1:])
            return self.chosen(self.condition(operands[0]), value, other)
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

    def function(self, name: str, operands: tuple[Expr, ...]) -> str:
        self.functions.add(name)
        return f"{name}({', '.join(map(self.top, operands))})"

    def cast(self, operand: Expr, dtype: DType) -> str:
        if not (dtype.is_float8 or operand.dtype.is_float8) or dtype is operand.dtype:
            return self.converted(operand, dtype)
        if DType.F32 not in (operand.dtype, dtype):  # by way of it
            return self.cast(Call("cast", (operand,), DType.F32), dtype)
        return self.function(f"noyau_{operand.dtype.value}_to_{dtype.value}", (operand,))

    # Indices.

    def dim(self, dim: Dim) -> str:
        """An index or an extent, int64, without parentheses around it. UnsupportedError of larger numbers."""
        text = opened(dim_text(dim, self.names.atom, self.operate))
        if any(int(number) >= 2**63 for number in re.findall(r"\b\d{19,}\b", text)):
            raise UnsupportedError(
                f"{self.language} has no integer for {dim}: more than 64 bits; no array has so many cells"
            )
        return text


def is_variable(memory: Buffer | Alloc) -> bool:
    """Whether it is memory of one cell, in registers."""
    return isinstance(memory, Alloc) and memory.space is Space.REGISTER and memory.shape == (Dim.of(1),)
