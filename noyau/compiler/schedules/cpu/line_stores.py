"""Stores of tiles around the caches, a few lines of memory at a time; and bfloat16 in pairs.

Where a tile begins with a line, its cells need not go through memory of the thread, for the compiler keeps so many in
registers. Tiles beside which something is fetched stay whole: there memory is read and written in turns, in long runs
(rmsnorm took 1.14 times as long).

A vector of floats has room for half as many cells as one of bfloat16, so a compiler spreads and packs cells, which
takes longer than what is computed of them. Two neighbours are one word of 32 bits, of which each half is a float but
for a shift or a mask. So loops whose cells all are of bfloat16 do an even and an odd one in each round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from noyau.compiler.schedules.primitives import Statements, change_each, either, stride_of, with_bodies
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.walk import every_statement, loads_of, rewrite, substitute

LINED = 32  # at a time: of 16 gcc 12 unrolls the loop whole, and vectorises no more what then chooses between values
WORD_BYTES = 4  # or more: narrower cells are computed in pairs, or packed


@dataclass(frozen=True, slots=True)
class StagedTile:
    """A tile of values in memory of the thread, and its copies to outputs, around the caches."""

    memory: tuple[ir.Alloc, ...]
    tile: ir.Loop
    copies: tuple[ir.StreamStore, ...]

    @property
    def statements(self) -> Statements:
        return (*self.memory, self.tile, *self.copies)

    @property
    def cells(self) -> int:
        """The cells of a whole tile."""
        return self.memory[0].shape[0].constant or 0

    def is_divisible(self) -> bool:
        """Whether whole tiles can be cut, and each cell is computed by itself."""
        cells = all(isinstance(s, ir.Let | ir.Store) for s in self.tile.body)
        alike = {alloc.shape for alloc in self.memory}
        words = all(alloc.dtype.bytes >= WORD_BYTES for alloc in self.memory)
        long = self.cells > LINED and self.cells % LINED == 0 and self.tile.extent.constant in (None, self.cells)
        whole = all(copy.extent == self.tile.extent and copy.start == Dim.of(0) for copy in self.copies)
        own = [alloc.name for alloc in self.memory] == [copy.memory for copy in self.copies]
        return cells and words and long and len(alike) == 1 and whole and own


def in_lines(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with tiles of words that go around the caches written a few lines at a time, where they begin with
    one."""
    return with_bodies(kernel, _lined)


def _lined(body: Iterable[ir.Statement]) -> Statements:
    result: list[ir.Statement] = []
    rest = tuple(body)
    while rest:
        if (tile := staged_tile(rest)) is not None:
            places = tuple((copy.buffer, copy.index) for copy in tile.copies)
            # and begins with a line wherever it is written
            whole = ir.InWholeLines(tile.tile.extent, tile.cells, places)
            result += either(whole, (_lines(tile),), tile.statements)
            rest = rest[len(tile.statements) :]
            continue
        statement, *_ = rest
        inner = replace(statement, body=_lined(statement.body)) if isinstance(statement, ir.Loop | ir.If) else statement
        result.append(inner)
        rest = rest[1:]
    return tuple(result)


def staged_tile(statements: Sequence[ir.Statement]) -> StagedTile | None:
    """The tile that statements begin with, if it can go so."""
    memory = tuple(s for s in takewhile(lambda s: isinstance(s, ir.Alloc), statements) if isinstance(s, ir.Alloc))
    after = statements[len(memory) : 2 * len(memory) + 1]
    copies = tuple(s for s in after[1:] if isinstance(s, ir.StreamStore))
    if not memory or len(copies) < len(memory) or memory[0].space is not ir.Space.REGISTER:
        return None
    tile = after[0]
    if not isinstance(tile, ir.Loop) or tile.axis is not ir.Axis.LANES:
        return None
    staged = StagedTile(memory, tile, copies)
    return staged if staged.is_divisible() else None


def _lines(staged: StagedTile) -> ir.Loop:
    """A whole tile as a loop over a few lines at a time."""
    count, tile = Dim.of(LINED), staged.tile
    at = f"{tile.var}l"
    start = Dim.of(at) * count
    memory = tuple(replace(alloc, name=_lines_of(alloc.name), shape=(count,)) for alloc in staged.memory)
    body: list[ir.Statement] = []
    for statement in substitute(tile.body, {tile.var: start + Dim.of(tile.var)}):
        if isinstance(statement, ir.Store):
            names = tuple(map(_lines_of, statement.buffers))
            statement = replace(statement, buffers=names, index=(Dim.of(tile.var),))
        body.append(statement)
    copies: list[ir.Statement] = []
    for copy in staged.copies:
        *outer, last = copy.index
        place = (*outer, last + start)
        copies.append(replace(copy, index=place, memory=_lines_of(copy.memory), extent=count, lines=True))
    inner: Statements = (*memory, replace(tile, extent=count, body=tuple(body)), *copies)
    return ir.Loop(at, Dim.of(staged.cells // LINED), ir.Axis.SERIAL, inner)


def _lines_of(name: str) -> str:
    """The name of a few lines of an array of a tile."""
    return f"{name}.lines"


PAIRED = 16  # cells of a loop of known length that is worth it


def in_pairs(kernel: ir.Kernel) -> ir.Kernel:
    """The loops in lanes over neighbouring cells of bfloat16, which load and store nothing else that differs from cell
    to cell, two cells a round."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}

    def in_body(body: Statements) -> Statements:
        memory = buffers | {s.name: s.dtype for s in every_statement(body) if isinstance(s, ir.Alloc)}

        def change(loop: ir.Statement) -> Statements | None:
            return _paired(loop) if isinstance(loop, ir.Loop) and _is_of_halves(loop, memory) else None

        return change_each(body, change)

    return with_bodies(kernel, in_body)


def _is_of_halves(loop: ir.Loop, memory: Mapping[str, DType]) -> bool:
    """Whether a loop goes from cell to cell of bfloat16 alone, and nothing it does may be left out."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    plain = all([value.dtype for value in s.values] == [DType.F32] and s.merge is None for s in stores)
    straight = plain and all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
    if loop.axis is not ir.Axis.LANES or not straight or (loop.extent.constant or PAIRED) < PAIRED:
        return False
    accesses: list[ir.Load | ir.Store] = [*loads_of(loop.body), *stores]
    moving = [each for each in accesses if any(loop.var in dim.names for dim in each.index)]
    stored = any(isinstance(each, ir.Store) for each in moving)
    return stored and all(_is_half(each, loop.var, memory) for each in moving)


def _is_half(access: ir.Load | ir.Store, variable: str, memory: Mapping[str, DType]) -> bool:
    name = access.buffer if isinstance(access, ir.Load) else access.buffers[0]
    masked = isinstance(access, ir.Load) and access.where is not None
    return memory.get(name) is DType.BF16 and stride_of(access, variable) == Dim.of(1) and not masked


def _paired(loop: ir.Loop) -> Statements:
    """The loop over pairs, and one over the last cell where their number is odd."""
    half, first = f"{loop.var}h", Dim.of(f"{loop.var}h") * 2
    even = substitute(loop.body, {loop.var: first})
    odd = _renamed(substitute(loop.body, {loop.var: first + 1}))
    pairs = ir.Loop(half, loop.extent // 2, ir.Axis.LANES, (*even, *odd))
    if loop.extent % 2 == Dim.of(0):
        return (pairs,)
    last = substitute(loop.body, {loop.var: loop.extent // 2 * 2 + Dim.of(loop.var)})
    return pairs, replace(loop, extent=loop.extent % 2, body=last)


def _renamed(body: Statements) -> Statements:
    """The statements with names of their own for their Lets."""
    names = {s.name: f"{s.name}.odd" for s in body if isinstance(s, ir.Let)}

    def read(expr: ir.Expr) -> ir.Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, ir.Var) else expr

    return tuple(replace(s, name=names[s.name]) if isinstance(s, ir.Let) else s for s in rewrite(body, read))
