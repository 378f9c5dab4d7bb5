"""Maps on a GPU: each cell in one tile of one program."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.loops import Axis, Kernel, Launch, Loop
from noyau.schedules.grid_tiles import Tile, cut, on_grid
from noyau.schedules.steps import Statements, chain

FLAT = Tile("BLOCK", "is", 1024)
COLUMNS = Tile("COLUMNS", "fits", 1024)
ROWS = Tile("ROWS", "shares", 2048)
SQUARE = (Tile("DOWN", "is", 64), Tile("ACROSS", "is", 64))


def map_(kernel: Kernel, body: Statements) -> Launch:
    """Lone loops: the innermost one in tiles, with several rounds of the one around it side by side."""
    loops, inner = chain(body)
    if len(loops) == 1:
        return Launch(on_grid([], (cut(loops[0], FLAT, Axis.THREADS),)))
    return Launch(_two(loops, inner, loops[-2], loops[-1], (ROWS, COLUMNS)))


def transpose(body: Statements, along: str, across: str) -> Launch:
    """Square tiles of the loop that reads run along and of the one that writes run along: both move whole lines."""
    loops, inner = chain(body)
    by_name = {loop.var: loop for loop in loops}
    return Launch(_two(loops, inner, by_name[along], by_name[across], SQUARE))


def _two(loops: list[Loop], inner: Statements, first: Loop, second: Loop, tiles: tuple[Tile, Tile]) -> Statements:
    """The loops on the grid, two of them in tiles, one within the other."""
    one, other = cut(replace(first, body=()), tiles[0], Axis.THREADS), cut(second, tiles[1], Axis.THREADS)
    (rows,), (columns,) = one.body, other.body
    assert isinstance(rows, Loop) and isinstance(columns, Loop)
    cells = (replace(rows, body=(*rows.body, replace(columns, body=(*columns.body[:1], *inner)))),)
    around = [loop for loop in loops if loop not in (first, second)]
    return on_grid([*around, replace(one, body=()), replace(other, body=())], cells)
