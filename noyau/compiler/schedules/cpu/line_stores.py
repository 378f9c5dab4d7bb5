"""Tiles that are written around the caches, a few lines at a time: where one begins with a line, its cells need not go
through memory of the thread, for the compiler keeps so many in registers.

Tiles beside which something is fetched stay whole: there memory is read and written in turns, in long runs (rmsnorm
took 1.14 times as long).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from noyau.compiler.schedules.primitives import Statements, either, with_bodies
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, If, InWholeLines, Kernel, Let, Loop, Space, Statement, Store, StreamStore
from noyau.ir.walk import substitute

LINED = 32  # at a time: of 16 gcc 12 unrolls the loop whole, and vectorises no more what then chooses between values
WORD_BYTES = 4  # or more: narrower cells are computed in pairs, or packed


@dataclass(frozen=True, slots=True)
class StagedTile:
    """A tile of values in memory of the thread, and its copies to outputs, around the caches."""

    memory: tuple[Alloc, ...]
    tile: Loop
    copies: tuple[StreamStore, ...]

    @property
    def statements(self) -> Statements:
        return (*self.memory, self.tile, *self.copies)

    @property
    def cells(self) -> int:
        """The cells of a whole tile."""
        return self.memory[0].shape[0].constant or 0

    def is_divisible(self) -> bool:
        """Whether whole tiles can be cut, and each cell is computed by itself."""
        cells = all(isinstance(s, Let | Store) for s in self.tile.body)
        alike = {alloc.shape for alloc in self.memory}
        words = all(alloc.dtype.bytes >= WORD_BYTES for alloc in self.memory)
        long = self.cells > LINED and self.cells % LINED == 0 and self.tile.extent.constant in (None, self.cells)
        whole = all(copy.extent == self.tile.extent and copy.start == Dim.of(0) for copy in self.copies)
        own = [alloc.name for alloc in self.memory] == [copy.memory for copy in self.copies]
        return cells and words and long and len(alike) == 1 and whole and own


def in_lines(kernel: Kernel) -> Kernel:
    """The kernel with tiles of words that go around the caches written a few lines at a time, where they begin with
    one."""
    return with_bodies(kernel, _lined)


def _lined(body: Iterable[Statement]) -> Statements:
    result: list[Statement] = []
    rest = tuple(body)
    while rest:
        if (tile := staged_tile(rest)) is not None:
            result += _whole_or_not(tile)
            rest = rest[len(tile.statements) :]
            continue
        statement, *_ = rest
        inner = replace(statement, body=_lined(statement.body)) if isinstance(statement, Loop | If) else statement
        result.append(inner)
        rest = rest[1:]
    return tuple(result)


def staged_tile(statements: Sequence[Statement]) -> StagedTile | None:
    """The tile that statements begin with, if it can go so."""
    memory = tuple(s for s in takewhile(lambda s: isinstance(s, Alloc), statements) if isinstance(s, Alloc))
    after = statements[len(memory) : 2 * len(memory) + 1]
    copies = tuple(s for s in after[1:] if isinstance(s, StreamStore))
    if not memory or len(copies) < len(memory) or memory[0].space is not Space.REGISTER:
        return None
    tile = after[0]
    if not isinstance(tile, Loop) or tile.axis is not Axis.LANES:
        return None
    staged = StagedTile(memory, tile, copies)
    return staged if staged.is_divisible() else None


def _whole_or_not(staged: StagedTile) -> Statements:
    """The tile in lines where it is whole and begins with a line wherever it is written; else as it is."""
    places = tuple((copy.buffer, copy.index) for copy in staged.copies)
    whole = InWholeLines(staged.tile.extent, staged.cells, places)
    return either(whole, (_lines(staged),), staged.statements)


def _lines(staged: StagedTile) -> Loop:
    """A whole tile as a loop over a few lines at a time."""
    count, tile = Dim.of(LINED), staged.tile
    at = f"{tile.var}l"
    start = Dim.of(at) * count
    memory = tuple(replace(alloc, name=_lines_of(alloc.name), shape=(count,)) for alloc in staged.memory)
    body: list[Statement] = []
    for statement in substitute(tile.body, {tile.var: start + Dim.of(tile.var)}):
        if isinstance(statement, Store):
            names = tuple(map(_lines_of, statement.buffers))
            statement = replace(statement, buffers=names, index=(Dim.of(tile.var),))
        body.append(statement)
    copies: list[Statement] = []
    for copy in staged.copies:
        *outer, last = copy.index
        place = (*outer, last + start)
        copies.append(replace(copy, index=place, memory=_lines_of(copy.memory), extent=count, lines=True))
    inner: Statements = (*memory, replace(tile, extent=count, body=tuple(body)), *copies)
    return Loop(at, Dim.of(staged.cells // LINED), Axis.SERIAL, inner)


def _lines_of(name: str) -> str:
    """The name of a few lines of an array of a tile."""
    return f"{name}.lines"
