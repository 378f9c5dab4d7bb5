"""Rows on a GPU: folds along a row, and what is computed of them.

Short rows side by side in one tile; a row of up to KEPT cells in one tile, which is read once; a longer one in tiles,
one after the other, and again for each pass: what was read before lies in the L2 cache, where few rows are on the way.
"""

from __future__ import annotations

from dataclasses import replace

from noyau.dtypes import DType
from noyau.ir.loops import Axis, Call, Fold, If, Launch, Let, Loop, Statement
from noyau.ir.operators import OPERATORS
from noyau.ir.walk import every_expression
from noyau.schedules.folds import expand_folds
from noyau.schedules.grid_online import TILE, online
from noyau.schedules.grid_tiles import (
    ZERO,
    Tile,
    all_at_most,
    covered,
    cut,
    extents_of_tiles,
    folds_in,
    gathered_in,
    is_innermost,
    on_grid,
    tile_of,
)
from noyau.schedules.steps import Statements, chain, minimum

KEPT = 32768  # cells of a row that a program holds at most
READ = 8192  # the same where none of its cells is written, and one pass of tiles is enough
DEAR = 8  # flops of a function from which a cell takes longer to compute than to move
SIDE = Tile("ROWS", "shares", 2048)  # with folds
HARD = Tile("ROWS", "shares", 2048, -1)  # with folds of what is dear, and cells that are written
PIECES = Tile("ROWS", "shares", 1024)  # without folds
LONG = Tile("BLOCK", "is", 8192, 32)  # so many warps that few rows are on the way


def rows(body: Statements) -> list[Launch]:
    """Rows that fit into a tile, and longer ones, each where the sizes of the call say so."""
    loops, inner = chain(body)
    passed = online(inner)
    read = passed != inner and not any(isinstance(s, Loop) for s in inner)
    short = all_at_most(extents_of_tiles(inner), min(KEPT, READ) if read else KEPT)
    short = short if _in_one_tile(inner) else False
    made = []
    if short is not False:
        side = cut(replace(loops[-1], body=whole(inner)), _beside(inner), Axis.THREADS)
        made.append(Launch(on_grid(loops[:-1], (side,)), None if short is True else short))
    if short is not True:
        when = None if short is False else Call("logical_not", (short,), DType.BOOL)
        made.append(Launch(on_grid(loops, streamed(passed, LONG if passed == inner else TILE)), when))
    return made


def _beside(inner: Statements) -> Tile:
    """How many rows lie side by side in a tile."""
    folds = folds_in(*inner)
    calls = [expr for fold in folds for expr in every_expression(fold.body) if isinstance(expr, Call)]
    dear = any(call.function in OPERATORS and OPERATORS[call.function].flops >= DEAR for call in calls)
    written = any(isinstance(s, Loop) for s in inner)
    return PIECES if not folds else HARD if dear and written else SIDE


FEW = Tile("ROWS", "is", 32)


def side_by_side(body: Statements) -> Launch:
    """Rows side by side, each cell after the other: what carries a state along them."""
    loops, inner = chain(body)
    cells = expand_folds(inner, 1, wide=False)
    return Launch(on_grid(loops[:-1], (cut(replace(loops[-1], body=cells), FEW, Axis.THREADS),)))


def _in_one_tile(inner: Statements) -> bool:
    """Whether no loop stands around a tile: it would be computed again and again."""
    loops = [s for s in inner if isinstance(s, Loop)]
    folds = [s.value for s in inner if isinstance(s, Let) and isinstance(s.value, Fold)]
    nested = any(isinstance(s, If) for s in inner)
    deep = any(folds_in(*fold.body) or any(isinstance(s, Loop | If) for s in fold.body) for fold in folds)
    return not (nested or deep) and all(map(is_innermost, loops)) and all(len(fold.loops) == 1 for fold in folds)


def whole(inner: Statements) -> Statements:
    """The statements of a row with each loop, and each fold, as one tile."""
    tile, made = Tile("COLUMNS", "fits", KEPT), list[Statement]()
    for statement in inner:
        match statement:
            case Loop():
                made.append(covered(statement, tile))
            case Let(value=Fold() as fold):
                ((variable, extent),) = fold.loops
                made.append(replace(statement, value=replace(fold, loops=((variable, minimum(tile.size, extent)),))))
            case _:
                made.append(statement)
    return tuple(made)


def streamed(inner: Statements, tile: Tile) -> Statements:
    """The statements of a row with each innermost loop, and each fold, in tiles one after the other."""
    made: list[Statement] = []
    for statement in inner:
        match statement:
            case Loop() if is_innermost(statement):
                made.append(cut(statement, tile, Axis.SERIAL))
            case Loop() | If():
                made.append(replace(statement, body=streamed(statement.body, tile)))
            case Let(name, Fold() as fold, origin) if not _is_tile(fold):
                loops, state = gathered_in(fold, name, tile)
                made += [*loops, Let(name, state.result(ZERO, fold.dtype), origin)]
            case _:
                made.append(statement)
    return tuple(made)


def _is_tile(fold: Fold) -> bool:
    return tile_of(fold.loops[-1][1]) is not None
