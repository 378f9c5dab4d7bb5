"""Rows that begin at any cell: where the tiles of a row are to begin, so that 16 bytes are moved at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noyau.ir.dims import Dim
from noyau.ir.loops import Buffer, Fold, Index, Kernel, Let, Load, Loop, Statement, Store
from noyau.ir.walk import every_expression, every_statement
from noyau.schedules.grid_tiles import NO_LEAD, ZERO, Lead, Tile, offset_of
from noyau.schedules.steps import Statements

LINE = 16  # bytes that a thread moves at once


def lead_of(kernel: Kernel, loops: Sequence[Loop], inner: Sequence[Statement]) -> Lead:
    """Where the tiles of a row begin, whose statements these are, in these loops: before the row that most of its bytes
    lie in; NO_LEAD where all such rows begin at multiples of 16 bytes, or each in the midst of another."""
    buffers, around = {buffer.name: buffer for buffer in kernel.buffers}, {loop.var for loop in loops}
    rows: dict[Dim, dict[str, int]] = {}
    for buffer, base in _rows(buffers, inner):
        if not {name for name in base.names if name.startswith("#")} <= around:
            continue
        rows.setdefault(base, {})[buffer.name] = buffer.dtype.bytes
    rows = {base: of for base, of in rows.items() if base.replace(dict.fromkeys(base.names, 0)) == ZERO}
    if not rows:
        return NO_LEAD
    base = max(rows, key=lambda row: (sum(rows[row].values()), len(row.terms)))
    cells = LINE // min(rows[base].values())
    steps, size = strides_in(base, cells), Tile("ALIGN", "aligns", cells).size
    odd = tuple(step % cells for step in steps)
    return Lead(Let("#lead", Index(base % size)), size - 1, odd) if steps else NO_LEAD


def strides_in(base: Dim, cells: int) -> list[Dim]:
    """The steps between rows that may be no multiple of so many cells."""
    steps = [Dim(((tuple(a for a in atoms if not _moves(a)), factor),)) for atoms, factor in base.terms]
    return list(dict.fromkeys(step for step in steps if step % cells != ZERO))


def _moves(atom: object) -> bool:
    """Whether a factor of an offset is an index."""
    return any(name.startswith("#") for name in Dim((((atom,), 1),)).names)  # type: ignore[arg-type]


def _rows(buffers: dict[str, Buffer], inner: Sequence[Statement]) -> Iterator[tuple[Buffer, Dim]]:
    """Where the rows begin that loops and folds run along, one cell after the other."""
    for statement in every_statement(inner):
        if isinstance(statement, Loop):
            yield from _along(buffers, statement.var, statement.body)
    for expr in every_expression(inner):
        if isinstance(expr, Fold):
            yield from _along(buffers, expr.loops[-1][0], expr.body)


def _along(buffers: dict[str, Buffer], variable: str, body: Statements) -> Iterator[tuple[Buffer, Dim]]:
    loads = [expr for expr in every_expression(body) if isinstance(expr, Load)]
    stores = [s for s in every_statement(body) if isinstance(s, Store)]
    places = [(load.buffer, load.index) for load in loads] + [(n, s.index) for s in stores for n in s.buffers]
    for name, index in ((name, index) for name, index in places if name in buffers):
        offset = offset_of(buffers[name], index)
        base = offset.replace({variable: 0})
        if offset - base == Dim.of(variable) and base.constant is None:
            yield buffers[name], base
