"""Stores of tiles around the caches, a few lines of memory at a time.

Where a tile begins with a line, its cells need not go through memory of the thread, for the compiler keeps so many in
registers. Tiles beside which something is fetched stay whole: there memory is read and written in turns, in long runs
(rmsnorm took 1.14 times as long).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from noyau.compiler.schedules.primitives import Statements, either, with_bodies
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.substitution import substitute

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
            whole = ir.InWholeLines(
                tile.tile.extent, tile.cells, places
            )  # and begins with a line wherever it is written
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
