"""Maps on a GPU: each cell in one tile of one program."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.loops import Axis, Kernel, Launch, Loop
from noyau.schedules.grid_leads import lead_of
from noyau.schedules.grid_tiles import NO_LEAD, Lead, Tile, cut, on_grid
from noyau.schedules.steps import Statements, chain

FLAT = Tile("BLOCK", "is", 1024)
COLUMNS = Tile("COLUMNS", "fits", 1024)
ROWS = Tile("ROWS", "shares", 4096)  # so many that what all rows have in common is loaded once for several
SQUARE = (Tile("DOWN", "is", 64), Tile("ACROSS", "is", 64))


def map_(kernel: Kernel, body: Statements) -> Launch:
    """Lone loops: the innermost one in tiles, with several rounds of the one around it side by side."""
    loops, inner = chain(body)
    if len(loops) == 1:
        return Launch(on_grid([], (cut(loops[0], FLAT, Axis.THREADS),)))
    lead = lead_of(kernel, loops[:-1], loops[-1:])
    return Launch(_two(loops, inner, loops[-2], loops[-1], (ROWS, COLUMNS), lead))


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
