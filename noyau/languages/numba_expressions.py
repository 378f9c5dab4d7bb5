"""Expressions of the loop IR as Python text for Numba, and the functions that the text turns out to need."""

from __future__ import annotations

import re
from typing import assert_never

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Op, Shape, exact_part, strides_of
from noyau.ir.loops import Alloc, Buffer, Call, Const, Expr, Fold, Index, Kernel, Load, Role, Var
from noyau.languages.c_expressions import HALVES, is_variable
from noyau.languages.c_tables import FLAT, SCALARS
from noyau.languages.numba_indices import is_inside, out_of_tiles
from noyau.languages.numba_names import Variables
from noyau.languages.numba_tables import INFIX, INTEGER_FUNCTIONS, KINDS, OF_BOOLS, PREFIX, const_text, narrow
from noyau.languages.spelling import closed, dim_text, opened


class Expressions:
    """The expressions of one kernel: what is in scope, and which scalar functions the text calls.

    `functions` are names of languages/cmath, `integers` keys of `integer_function`; `flat` are the packed buffers of
    the launch that are indexed by one offset, for some index into them is none along their axes."""

    def __init__(self, kernel: Kernel, names: Variables) -> None:
        self.names = names
        self.memory: dict[str, Buffer | Alloc] = {buffer.name: buffer for buffer in kernel.buffers}
        self.extents: dict[str, Dim] = {}  # of the loops that are open: they run
        self.lengths: dict[str, tuple[Dim, Dim]] = {}  # what `tile_of` says of those that have a name
        self.tiles: dict[str, tuple[Dim, Dim]] = {}  # the same of the loops over them that are open
        self.required: dict[str, Dim] = {}  # of indices that were looked up, and are inside where they are used
        self.threads: frozenset[str] = frozenset()  # the variables of the loops on threads
        self.flat: set[str] = set()
        self.functions: set[str] = set()
        self.integers: set[tuple[str, str]] = set()

    def top(self, expr: Expr) -> str:
        """An expression without the parentheses around it."""
        return opened(self.expr(expr))

    def expr(self, expr: Expr) -> str:
        """An expression that can be an operand."""
        match expr:
            case Const(value, dtype):
                return const_text(value, dtype)
            case Var(name, _):
                return self.names.value(name)
            case Index(dim, _):
                return closed(self.dim(dim))
            case Load():
                return self.load(expr)
            case Call(function, operands, dtype):
                return self.call(function, operands, dtype)
            case Fold():
                raise UnsupportedError("numba has no word for a fold: expand_folds comes before it prints")
            case _:
                assert_never(expr)

    # Memory.

    def cell(self, name: str, index: Shape) -> str:
        """One cell of a buffer or of memory; memory of one cell is a variable."""
        memory = self.memory[name]
        if is_variable(memory) or is_number(memory):
            return self.names.value(name)
        if isinstance(memory, Buffer):
            index = self.axes(memory, index)
        elif len(index) != 1:
            raise UnsupportedError(f"numba has no {len(index)} indices of {name}: flatten comes before it prints")
        places = [self.place(dim, last=axis == len(index) - 1) for axis, dim in enumerate(index)]
        return f"{self.names.value(name)}[{', '.join(places) or '()'}]"

    def axes(self, buffer: Buffer, index: Shape) -> Shape:
        """The index along each axis of a buffer, or the offset into one that is flat in this launch."""
        if buffer.strides is not None or len(buffer.shape) == 1:
            return index
        if len(index) != 1:
            raise UnsupportedError(
                f"numba has no {len(index)} indices of {buffer.name}: flatten comes before it prints"
            )
        if not buffer.shape:
            return () if buffer.role is Role.OUTPUT else index
        found = None if buffer.name in self.flat else self.unflattened(index[0], buffer.shape)
        if found is None:
            self.flat.add(buffer.name)
            return index
        return found

    def unflattened(self, offset: Dim, shape: Shape) -> Shape | None:
        """The index along each axis, where it is certain that each but the first is inside."""
        found = []
        for stride in strides_of(shape)[:-1]:
            whole, offset = exact_part(offset, stride)
            tried = ((whole, offset), (whole - 1, offset + stride))  # the latter where the axis is flipped
            inside = [pair for pair in tried if self.is_inside(pair[1], stride)]
            if not inside:
                return None
            whole, offset = inside[0]
            found.append(whole)
        return (*found, offset)

    def is_inside(self, index: Dim, extent: Dim) -> bool:
        index, extents = out_of_tiles(index, self.tiles, self.required | self.extents)
        return is_inside(index, extent, extents)

    def place(self, dim: Dim, *, last: bool) -> str:
        """An index along an axis. What may be negative as far as LLVM can see is made unsigned: Numba would count it
        from the end, which keeps loops from being vectorised."""
        text = self.dim(dim)
        plain = all(
            factor > 0 and all(isinstance(atom, str) and atom in self.extents.keys() - self.threads for atom in atoms)
            for atoms, factor in dim.terms
        )
        outer = not last and text.isidentifier()
        return text if plain or outer else f"u64({text})"

    def load(self, load: Load) -> str:
        cell, stored = self.cell(load.buffer, load.index), self.memory[load.buffer].dtype
        if stored in HALVES:
            self.functions.add(name := f"noyau_{stored.value}_to_f32")
            cell = f"{name}({cell})"
        if load.where is None:
            return cell
        assert load.other is not None
        return f"({cell} if {self.condition(load.where)} else {self.expr(load.other)})"

    def condition(self, expr: Expr) -> str:
        """An expression after `if`."""
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
            chosen, other = map(self.expr, operands[1:])
            return f"({chosen} if {self.condition(operands[0])} else {other})"
        if function == "is_inf":
            return f"(abs({self.top(operands[0])}) == {const_text(float('inf'), source)})"
        if function == "rounded":  # as all is in a kernel that fuses nothing
            return self.expr(operands[0])
        if function in FLAT:
            return FLAT[function].format(*map(self.expr, operands))
        if function in INFIX and not (source.kind != "float" and function in INTEGER_FUNCTIONS):
            left, right = map(self.expr, operands)
            return narrow(f"{left} {INFIX[function]} {right}", dtype)
        if function in PREFIX:
            return narrow(f"{PREFIX[function]}{self.expr(operands[0])}", dtype)
        if source is DType.BOOL and function in OF_BOOLS:
            left, right = map(self.expr, operands)
            return f"({left} {OF_BOOLS[function]} {right})"
        if source.kind != "float":
            return self.integer(function, operands)
        if function in SCALARS:
            return self.function(f"noyau_{SCALARS[function]}_{source.value}", operands)
        raise UnsupportedError(f"numba has no spelling of {function} for {source.value}")

    def integer(self, function: str, operands: tuple[Expr, ...]) -> str:
        dtype = operands[0].dtype
        if function not in INTEGER_FUNCTIONS:
            raise UnsupportedError(f"numba has no spelling of {function} for {dtype.value}")
        self.integers.add((function, dtype.value))
        return f"noyau_{function}_{dtype.value}({', '.join(map(self.top, operands))})"

    def function(self, name: str, operands: tuple[Expr, ...]) -> str:
        self.functions.add(name)
        return f"{name}({', '.join(map(self.top, operands))})"

    def cast(self, operand: Expr, dtype: DType) -> str:
        text = self.expr(operand)
        if dtype is operand.dtype:
            return text
        if dtype.is_float8 or operand.dtype.is_float8:
            return self.by_way_of_f32(operand, dtype)
        if dtype is DType.BOOL:
            return f"({text} != {const_text(0, operand.dtype)})"
        return f"{KINDS[dtype]}({opened(text)})"

    def by_way_of_f32(self, operand: Expr, dtype: DType) -> str:
        """A cast to or from a float8."""
        if DType.F32 not in (operand.dtype, dtype):
            return self.cast(Call("cast", (operand,), DType.F32), dtype)
        return self.function(f"noyau_{operand.dtype.value}_to_{dtype.value}", (operand,))

    # Indices.

    def dim(self, dim: Dim) -> str:
        """An index or an extent, int64, without parentheses around it. UnsupportedError of larger numbers."""
        text = opened(dim_text(dim, self.names.atom, self.operate))
        if any(int(number) >= 2**63 for number in re.findall(r"\b\d{19,}\b", text)):
            raise UnsupportedError(f"numba has no integer for {dim}: more than 64 bits; no array has so many cells")
        return text

    def operate(self, op: Op, left: str, right: str) -> str:
        """Python divides downwards, as Dims do."""
        if op.kind in ("max", "min"):
            return f"{op.kind}({opened(left)}, {opened(right)})"
        return f"({closed(left)} {'//' if op.kind == 'floordiv' else '%'} {closed(right)})"


def is_number(memory: Buffer | Alloc) -> bool:
    """Whether it is an input without axes, which launches take as a number: in a prange, Numba has it as one."""
    return isinstance(memory, Buffer) and not memory.shape and memory.role is Role.INPUT
