"""Expressions of the loop IR as C text, and the functions that the text turns out to need."""

from __future__ import annotations

import re
from typing import assert_never

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Op, never_negative
from noyau.ir.loops import Alloc, Buffer, Call, Const, Expr, Fold, Index, Kernel, Load, Space, Var
from noyau.ir.ranges import at_least_one, lowest
from noyau.languages.c_names import Scopes
from noyau.languages.c_pairs import Open, before
from noyau.languages.c_tables import FLAT, INFIX, INTEGER_FUNCTIONS, PREFIX, SCALARS, TYPES, const_text
from noyau.languages.spelling import closed, dim_text, opened

HALVES = (DType.F16, DType.BF16)


class Expressions:
    """The expressions of one kernel: what is in scope, and which scalar functions the text calls.

    `functions` are names of languages/cmath, `integers` keys of `integer_function`."""

    def __init__(self, kernel: Kernel, scopes: Scopes) -> None:
        self.scopes = scopes
        self.memory: dict[str, Buffer | Alloc] = {buffer.name: buffer for buffer in kernel.buffers}
        self.extents: dict[str, Dim] = {}  # of the loops that are open: they run
        self.required: dict[str, Dim] = {}  # of indices that were looked up, and are inside where they are used
        self.absurd = False  # whether sizes may be so large that arithmetic on them overflows
        self.functions: set[str] = set()
        self.integers: set[tuple[str, str]] = set()
        self.pairs = Open()

    def top(self, expr: Expr) -> str:
        """An expression without the parentheses around it."""
        return opened(self.expr(expr))

    def expr(self, expr: Expr) -> str:
        """An expression that can be an operand."""
        match expr:
            case Const(value, dtype):
                return const_text(value, dtype)
            case Var(name, _):
                return self.scopes.value(name)
            case Index(dim, _):
                return closed(self.dim(dim))
            case Load():
                return self.load(expr)
            case Call(function, operands, dtype):
                return self.call(function, operands, dtype)
            case Fold():
                raise UnsupportedError("c has no word for a fold: expand_folds comes before it prints")
            case _:
                assert_never(expr)

    def cell(self, name: str, index: tuple[Dim, ...]) -> str:
        """One cell of a buffer or of memory; memory of one cell is a variable."""
        memory = self.memory[name]
        if isinstance(memory, Buffer) and memory.strides is not None:
            index = (sum((at * stride for at, stride in zip(index, memory.strides, strict=True)), Dim.of(0)),)
        if len(index) != 1:
            raise UnsupportedError(f"c has no {len(index)} indices of {name}: flatten comes before it prints")
        if is_variable(memory):
            return self.scopes.value(name)
        return f"{self.scopes.value(name)}[{self.dim(index[0])}]"

    def load(self, load: Load) -> str:
        if self.pairs.words and (half := self.half(load)) is not None:
            return half
        cell, stored = self.cell(load.buffer, load.index), self.memory[load.buffer].dtype
        if stored in HALVES:
            self.functions.add(name := f"noyau_{stored.value}_to_f32")
            cell = f"{name}({cell})"
        if load.where is None:
            return cell
        assert load.other is not None
        return f"({self.condition(load.where)} ? {cell} : {self.expr(load.other)})"

    def half(self, load: Load) -> str | None:
        """A cell of a pair that was loaded as a word."""
        place = (load.buffer, load.index)
        for at, name in ((place, "noyau_bf16_low_to_f32"), (before(place), "noyau_bf16_high_to_f32")):
            if at in self.pairs.words:
                self.functions.add(name)
                return f"{name}({self.pairs.words[at]})"
        return None

    def condition(self, expr: Expr) -> str:
        """An expression before a question mark."""
        chooses = (isinstance(expr, Call) and expr.function == "where") or (isinstance(expr, Load) and expr.where)
        return self.expr(expr) if chooses else self.top(expr)

    def stored(self, name: str, value: Expr) -> str:
        """A value in the dtype of what it is stored in."""
        return self.stored_as(self.memory[name].dtype, value)

    def stored_as(self, target: DType, value: Expr) -> str:
        if target in HALVES:
            return self.function(f"noyau_{value.dtype.value}_to_{target.value}", (value,))
        return self.top(value)

    def call(self, function: str, operands: tuple[Expr, ...], dtype: DType) -> str:
        source = operands[0].dtype
        if function == "cast":
            return self.cast(operands[0], dtype)
        if function == "where":
            chosen, other = map(self.expr, operands[1:])
            return f"({self.condition(operands[0])} ? {chosen} : {other})"
        if function in FLAT:
            return FLAT[function].format(*map(self.expr, operands))
        if function in INFIX and not (source.kind != "float" and function in INTEGER_FUNCTIONS):
            left, right = map(self.expr, operands)
            return narrow(f"({left} {INFIX[function]} {right})", dtype)
        if function in PREFIX:
            return narrow(f"({PREFIX[function]}{self.expr(operands[0])})", dtype)
        if source.kind != "float":
            return self.integer(function, operands)
        if function in SCALARS:
            return self.function(f"noyau_{SCALARS[function]}_{source.value}", operands)
        raise UnsupportedError(f"c has no spelling of {function} for {source.value}")

    def integer(self, function: str, operands: tuple[Expr, ...]) -> str:
        dtype = operands[0].dtype
        if function not in INTEGER_FUNCTIONS:
            raise UnsupportedError(f"c has no spelling of {function} for {dtype.value}")
        return self.integer_call(function, dtype, *map(self.top, operands))

    def integer_call(self, function: str, dtype: DType, *texts: str) -> str:
        self.integers.add((function, dtype.value))
        return f"noyau_{function}_{dtype.value}({', '.join(texts)})"

    def function(self, name: str, operands: tuple[Expr, ...]) -> str:
        self.functions.add(name)
        return f"{name}({', '.join(map(self.top, operands))})"

    def cast(self, operand: Expr, dtype: DType) -> str:
        if dtype.is_float8 or operand.dtype.is_float8:
            return self.by_way_of_f32(operand, dtype)
        text = self.expr(operand)
        return f"({text} != 0)" if dtype is DType.BOOL else f"(({TYPES[dtype]}){text})"

    def by_way_of_f32(self, operand: Expr, dtype: DType) -> str:
        """A cast to or from a float8."""
        if DType.F32 not in (operand.dtype, dtype):
            return self.cast(Call("cast", (operand,), DType.F32), dtype)
        return self.function(f"noyau_{operand.dtype.value}_to_{dtype.value}", (operand,))

    def dim(self, dim: Dim) -> str:
        """An index or an extent, int64, without parentheses around it. UnsupportedError of larger numbers."""
        text = opened(dim_text(dim, self.scopes.atom, self.operate))
        if any(int(number) >= 2**63 for number in re.findall(r"\b\d{19,}\b", text)):
            raise UnsupportedError(f"c has no integer for {dim}: more than 64 bits; no array has so many cells")
        return text

    def operate(self, op: Op, left: str, right: str) -> str:
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
            case (((Op(kind="max") as op,), 1),):
                return self.is_positive(op.left) or self.is_positive(op.right)
            case _:
                return (dim.constant or 0) > 0 if self.absurd else self.is_natural(dim - 1)

    def is_natural(self, dim: Dim) -> bool:
        """Whether it is surely >= 0 here, where every open loop runs."""
        match dim.terms:
            case (((Op(kind="max") as op,), -1),):
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


def is_variable(memory: Buffer | Alloc) -> bool:
    """Whether it is memory of one cell, in registers."""
    return isinstance(memory, Alloc) and memory.space is Space.REGISTER and memory.shape == (Dim.of(1),)


def narrow(text: str, dtype: DType) -> str:
    """C computes small integers as int: cut the result back."""
    return f"(({TYPES[dtype]}){text})" if dtype.kind in ("int", "uint") and dtype.bytes < 4 else text
