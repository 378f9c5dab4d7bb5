"""Strategy turn: a transpose whose tiles are turned in the nearest cache.

Rows that begin a power of two apart share a few places of the caches, so that a tile read column by column is fetched
again and again. So each line of it is read once, whole, into memory of the thread, and read from there across; what is
written are whole lines too, which can go around the caches. Tiles go in blocks, for each row is on another page.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from noyau.ir.dims import Dim, DimLike
from noyau.ir.loops import Alloc, Axis, Expr, Kernel, Launch, Let, Load, Loop, Space, Store
from noyau.ir.walk import rewrite, substitute
from noyau.schedules.launches import each
from noyau.schedules.steps import (
    Statements,
    bind,
    chain,
    coalesce,
    loads_of,
    minimum,
    nested,
    sink,
    stride_of,
    widen,
)
from noyau.schedules.transposes import transpose

TILE = 16  # cells of 4 bytes: a line of a cache
BLOCK = 4  # tiles along each axis
MOST = 4  # inputs that are turned at once, of which the tiles lie in the nearest cache


def turn(kernel: Kernel, *, along: str, across: str) -> Kernel | None:
    """`along` is the loop that reads run along, `across` the innermost one, which strides through them: whole tiles of
    both in one launch, what is left at either end in two. None where other loops or statements stand in the way."""
    (launch,) = kernel.launches
    loops, body = chain(sink(coalesce(launch.body)))
    names = {loop.var: loop for loop in loops}
    if along not in names or across not in names or not _is_straight(body):
        return None
    outer = [loop for loop in loops if loop.var not in (along, across)]
    down, right = names[along], names[across]
    turned = list(dict.fromkeys(load for load in loads_of(body) if _strides(load, along, across)))
    if not 1 <= len(turned) <= MOST or any(loop.extent.names & names.keys() for loop in loops):
        return None
    if any((loop.extent.constant or TILE) < TILE for loop in (down, right)):
        return None
    return _launches(kernel, outer, down, right, body, turned)


def _is_straight(body: Statements) -> bool:
    """Whether statements compute cells and store each once, where no index is looked up."""
    stores = [s for s in body if isinstance(s, Store)]
    plain = all(isinstance(s, Store) or (isinstance(s, Let) and not s.name.startswith("#")) for s in body)
    read = {load.buffer for load in loads_of(body)}
    return plain and not any(s.merge or read & set(s.buffers) for s in stores)


def _strides(load: Load, along: str, across: str) -> bool:
    return load.where is None and stride_of(load, along) == Dim.of(1) and stride_of(load, across) != Dim.of(0)


def _launches(
    kernel: Kernel, outer: list[Loop], down: Loop, right: Loop, body: Statements, turned: list[Load]
) -> Kernel:
    """Whole tiles; then the last columns that are read, for all rows, and the last rows, for the columns before."""
    whole_down, whole_right = down.extent // TILE, right.extent // TILE
    tiles = Launch(widen(bind(_tiles(outer, down, right, body, turned), len(outer) + 1)))
    rest: list[Statements] = []
    if (left := down.extent % TILE) != Dim.of(0):
        ends = substitute(body, {down.var: whole_down * TILE + Dim.of(down.var)})
        rest.append(nested([*outer, replace(down, extent=left), right], ends))
    if (left := right.extent % TILE) != Dim.of(0):
        ends = substitute(body, {right.var: whole_right * TILE + Dim.of(right.var)})
        before = replace(down, extent=whole_down * TILE)
        rest.append(nested([*outer, before, replace(right, extent=left)], ends))
    later = each(kernel, rest, partial(transpose, along=down.var, across=right.var))
    return replace(kernel, launches=(tiles, *(later.launches if rest else ())))


def _tiles(outer: list[Loop], down: Loop, right: Loop, body: Statements, turned: list[Load]) -> Statements:
    """The loops over blocks of tiles, over the tiles of a block, and what is done in one."""
    around: list[Loop] = []
    inside: list[Loop] = []
    places: dict[str, DimLike] = {}
    for loop in (right, down):
        block, tile = f"{loop.var}t", f"{loop.var}u"
        tiles = loop.extent // TILE
        around.append(Loop(block, (tiles + (BLOCK - 1)) // BLOCK, Axis.SERIAL, ()))
        inside.append(Loop(tile, minimum(Dim.of(BLOCK), tiles - Dim.of(block) * BLOCK), Axis.SERIAL, ()))
        places[loop.var] = (Dim.of(block) * BLOCK + Dim.of(tile)) * TILE + Dim.of(loop.var)
    return nested([*outer, *around, *inside], _turned(down, right, body, turned, places))


def _turned(down: Loop, right: Loop, body: Statements, turned: list[Load], places: dict[str, DimLike]) -> Statements:
    """One tile: what strides is read along its rows and kept with its axes exchanged, for which a language may have a
    word; then all is computed along the rows that are written."""
    cell = (Dim.of(down.var) * TILE + Dim.of(right.var),)
    reads = [_placed(load, places) for load in turned]
    own: dict[Expr, str] = {load: f"{load.buffer}_turned{number or ''}" for number, load in enumerate(reads)}
    memory = tuple(Alloc(own[load], load.dtype, (Dim.of(TILE * TILE),), Space.REGISTER) for load in reads)
    inner, outer = (Loop(loop.var, Dim.of(TILE), Axis.SERIAL, ()) for loop in (down, right))

    def again(expr: Expr) -> Expr:
        return Load(own[expr], cell, expr.dtype) if isinstance(expr, Load) and expr in own else expr

    copies = tuple(Store((own[load],), cell, (load,)) for load in reads)
    values = rewrite(substitute(body, places), again)
    return (*memory, *nested([outer, inner], copies), *nested([inner, outer], values))


def _placed(load: Load, places: dict[str, DimLike]) -> Load:
    return replace(load, index=tuple(dim.replace(places) for dim in load.index))
