"""Maps on a GPU: each cell in one tile of one program."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Kernel, Launch, Loop
from noyau.schedules.grid_leads import lead_of
from noyau.schedules.grid_tiles import NO_LEAD, ONE, ZERO, Lead, Tile, cut, offset_of, on_grid
from noyau.schedules.steps import Statements, chain, loads_of

FLAT = Tile("BLOCK", "upto", 1024)  # few cells are those of few threads: what is dear is compiled once for each
COLUMNS = Tile("COLUMNS", "fits", 1024)
ROWS = Tile("ROWS", "shares", 4096)  # so many that what all rows have in common is loaded once for several
APART = 4  # warps for 1024 cells where those that are read lie apart: each is a load of its own, of few in a thread
SQUARE = (Tile("DOWN", "is", 64), Tile("ACROSS", "is", 64))


def map_(kernel: Kernel, body: Statements) -> Launch:
    """Lone loops: the innermost one in tiles, with several rounds of the one around it side by side."""
    loops, inner = chain(body)
    apart = _lie_apart(kernel, loops[-1].var, inner)
    if len(loops) == 1:
        return Launch(on_grid([], (cut(loops[0], replace(FLAT, warps=APART) if apart else FLAT, Axis.THREADS),)))
    lead, rows = lead_of(kernel, loops[:-1], loops[-1:]), replace(ROWS, number=1024, warps=APART) if apart else ROWS
    return Launch(_two(loops, inner, loops[-2], loops[-1], (rows, COLUMNS), lead))


def _lie_apart(kernel: Kernel, variable: str, inner: Statements) -> bool:
    """Whether cells that are read do not follow each other along a loop."""
    buffers, there = {buffer.name: buffer for buffer in kernel.buffers}, {variable: Dim.of(variable) + 1}
    offsets = [offset_of(buffers[load.buffer], load.index) for load in loads_of(inner) if load.buffer in buffers]
    return any(offset.replace(there) - offset not in (ZERO, ONE) for offset in offsets)


def transpose(body: Statements, along: str, across: str) -> Launch:
    """Square tiles of the loop that reads run along and of the one that writes run along: both move whole lines."""
    loops, inner = chain(body)
    by_name = {loop.var: loop for loop in loops}
    return Launch(_two(loops, inner, by_name[along], by_name[across], SQUARE))


def _two(
    loops: list[Loop], inner: Statements, first: Loop, second: Loop, tiles: tuple[Tile, Tile], lead: Lead = NO_LEAD
) -> Statements:
    """The loops on the grid, two of them in tiles, one within the other."""
    one = cut(replace(first, body=()), tiles[0], Axis.THREADS)
    other = cut(replace(second, body=inner), tiles[1], Axis.THREADS, lead)
    (rows,), (columns,) = one.body, other.body
    assert isinstance(rows, Loop)
    cells = (replace(rows, body=(*rows.body, *lead.lets, columns)),)
    around = [loop for loop in loops if loop not in (first, second)]
    return on_grid([*around, replace(one, body=()), replace(other, body=())], cells)
