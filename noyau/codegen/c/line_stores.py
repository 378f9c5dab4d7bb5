"""Tiles that are written around the caches, a few lines at a time: where one begins with a line, its cells need not go
through memory of the thread, for the compiler keeps so many in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from noyau.codegen.c.expressions import Expressions
from noyau.codegen.idioms import is_copied_around
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, Let, Load, Loop, Space, Statement, Store
from noyau.ir.walk import substitute

CELLS = 32  # at a time: of 16 gcc 12 unrolls the loop whole, and vectorises no more what then chooses between values
WORD_BYTES = 4  # or more: narrower cells are computed in pairs, or packed


@dataclass(frozen=True, slots=True)
class Staged:
    """A tile of values in memory of the thread, and its copies to outputs, around the caches."""

    memory: tuple[Alloc, ...]
    tile: Loop
    copies: tuple[Loop, ...]

    @property
    def statements(self) -> tuple[Statement, ...]:
        return (*self.memory, self.tile, *self.copies)

    @property
    def cells(self) -> int:
        """Of a whole tile."""
        return self.memory[0].shape[0].constant or 0

    def is_right(self) -> bool:
        """Whether whole tiles can be cut, and each cell is computed by itself."""
        names = [alloc.name for alloc in self.memory]
        cells = all(isinstance(s, Let | Store) for s in self.tile.body)
        alike = {alloc.shape for alloc in self.memory}
        words = all(alloc.dtype.bytes >= WORD_BYTES for alloc in self.memory)
        length = self.tile.extent.constant or self.cells
        long = self.cells > CELLS and self.cells % CELLS == 0 and length == self.cells
        return cells and words and long and len(alike) == 1 and all(map(self.is_copied, names, self.copies))

    def is_copied(self, name: str, copy: Loop) -> bool:
        """Whether a loop copies one array of the tile, all of it."""
        if not is_copied_around(copy) or copy.extent != self.tile.extent:
            return False
        value = _value(copy)
        return value.buffer == name and value.index == (Dim.of(copy.var),)


def staged(statements: Sequence[Statement]) -> Staged | None:
    """The tile that statements begin with, if it can go so. Not where something is fetched meanwhile, between the
    memory and the loop: there memory is read and written in turns, in long runs (rmsnorm took 1.14 times as long)."""
    memory = tuple(s for s in takewhile(lambda s: isinstance(s, Alloc), statements) if isinstance(s, Alloc))
    loops = tuple(s for s in statements[len(memory) : 2 * len(memory) + 1] if isinstance(s, Loop))
    if not memory or len(loops) <= len(memory) or loops[0].axis is not Axis.LANES:
        return None
    found = Staged(memory, loops[0], loops[1:])
    return found if memory[0].space is Space.REGISTER and found.is_right() else None


def in_lines(made: Staged) -> Loop:
    """A whole tile as a loop over a few lines at a time."""
    count, at = Dim.of(CELLS), f"{made.tile.var}l"
    start = Dim.of(at) * count
    memory = tuple(replace(alloc, name=lines_of(alloc.name), shape=(count,)) for alloc in made.memory)
    body: list[Statement] = []
    for statement in substitute(made.tile.body, {made.tile.var: start + Dim.of(made.tile.var)}):
        if isinstance(statement, Store):
            names = tuple(map(lines_of, statement.buffers))
            statement = replace(statement, buffers=names, index=(Dim.of(made.tile.var),))
        body.append(statement)
    copies = []
    for copy in made.copies:
        (store,) = substitute(copy.body, {copy.var: start + Dim.of(copy.var)})
        assert isinstance(store, Store)
        value = replace(_value(copy), buffer=lines_of(_value(copy).buffer))
        copies.append(replace(copy, extent=count, body=(replace(store, values=(value,)),)))
    tile = replace(made.tile, extent=count, body=tuple(body))
    return Loop(at, Dim.of(made.cells // CELLS), Axis.SERIAL, (*memory, tile, *copies))


def begins_lines(made: Staged, said: Expressions) -> str:
    """Whether all of a tile is there, and begins with a line wherever it is written."""
    known = made.tile.extent.constant is not None
    there = [] if known else [f"{said.dim(made.tile.extent)} == {made.cells}"]
    return " && ".join([*there, *(f"noyau_begins_line(&{_place(copy, said)})" for copy in made.copies)])


def written_lines(copy: Loop, said: Expressions) -> str:
    """The copy of cells that begin with a line."""
    cells = said.names.value(_value(copy).buffer)
    return f"noyau_write_lines(&{_place(copy, said)}, {cells}, sizeof {cells});"


def lines_of(name: str) -> str:
    """What a few lines of an array of a tile are called."""
    return f"{name}.lines"


def _value(copy: Loop) -> Load:
    (store,) = copy.body
    assert isinstance(store, Store) and isinstance(store.values[0], Load)
    return store.values[0]


def _place(copy: Loop, said: Expressions) -> str:
    (store,) = copy.body
    assert isinstance(store, Store)
    return said.cell(store.buffers[0], tuple(dim.replace({copy.var: 0}) for dim in store.index))
