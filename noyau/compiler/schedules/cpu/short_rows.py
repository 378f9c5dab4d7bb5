"""Short rows: a row of a few cells fills no vector, and what is done once a row then costs more than its cells.

Several rows run side by side, one in each lane; or, where a map does nothing once a row, rows are one run of cells, for
which what all rows have alike is repeated in memory first. Whether rows are short is asked as the kernel runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noyau.compiler.schedules.cpu.folds import expand_folds
from noyau.compiler.schedules.cpu.strategies import keep_rows
from noyau.compiler.schedules.cpu.tiles import side_by_side
from noyau.compiler.schedules.primitives import (
    Statements,
    bind,
    chain,
    coalesce,
    divides,
    is_dear,
    nested,
    sink,
    tiled,
    variables_of,
)
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Expr,
    Fold,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Space,
    Statement,
    Store,
    all_of,
    at_most,
    when,
)
from noyau.ir.walk import all_dims, every_statement, folds_in, loads_of, rewrite, substitute

SIDE_BY_SIDE = 32  # rows, one in each lane
BLOCK, REPEATED = 256, 16  # rows of an item of a map, and how many of them are one run of cells
CELLS, DEAR_CELLS, MAP_CELLS = 15, 64, 63  # of a short row: where the ways cost the same, as measured
CELL_OF_ROWS = "#cell_of_rows"


def short_rows(kernel: Kernel, *, kept: bool = True) -> Launch | None:
    """A launch that does what the one launch of a kernel does, for rows of a few cells: `when` says of which sizes.

    None where the rows are known to be long, or too few, or where they cannot run so."""
    (launch,) = kernel.launches
    body = sink(coalesce(launch.body))
    loops, inner = chain(body)
    folds = folds_in(body)
    rows = loops if folds else loops[:-1]
    if not rows or any(isinstance(s, Loop) and has_loops(s) for s in inner):
        return None
    inner, run = (inner, None) if folds else ((loops[-1],), _one_run(rows, loops[-1]))
    dear = bool(folds) and any(map(_is_dear, inner)) and _reads_one(inner, rows)
    most = MAP_CELLS if run else DEAR_CELLS if dear else CELLS
    try:
        few = _are_few(_lengths(inner), rows[-1].extent, most)
        return Launch(run or _beside(rows, inner, kept=kept), few)
    except UnsupportedError:
        return None


def _is_dear(statement: Statement) -> bool:
    """Whether a pass over a row computes something that takes longer than its cell takes to memory."""
    match statement:
        case Let(_, Fold(body=body, value=value)):
            return is_dear((*body, Let("", value)))
        case Loop(body=body):
            return is_dear(body)
        case _:
            return False


def _reads_one(inner: Statements, rows: Sequence[Loop]) -> bool:
    """Whether the cells of a row come from one buffer: lanes read each cell of its own row by itself."""
    around = {row.var for row in rows}
    places = {load: frozenset[str]().union(*(dim.names for dim in load.index)) for load in loads_of(inner)}
    in_rows = (load for load, names in places.items() if rows[-1].var in names)
    return len({load.buffer for load in in_rows if any(n.startswith("#") for n in places[load] - around)}) <= 1


def has_loops(loop: Loop) -> bool:
    """Whether a loop has another one in it."""
    return any(isinstance(s, Loop) for s in every_statement(loop.body))


def _lengths(inner: Statements) -> list[Dim]:
    """The cells of each pass over a row."""
    loops = [s.extent for s in every_statement(inner) if isinstance(s, Loop)]
    return [*loops, *(product(extent for _, extent in fold.loops) for fold in folds_in(inner))]


def _are_few(lengths: Sequence[Dim], rows: Dim, most: int) -> Expr | None:
    """Whether all passes have at most so many cells, and there are rows enough: None where that is sure, a bool where
    it depends on a size. UnsupportedError where it is surely not so, or depends on more."""
    sizes = list(dict.fromkeys(length for length in lengths if length.constant is None))
    long = any((length.constant or 0) > most for length in lengths) or len(sizes) > 1
    count = SIDE_BY_SIDE if rows.constant is None else rows.constant  # known to be 0, too
    if long or count < SIDE_BY_SIDE or any("#" in str(dim) for dim in (*sizes, rows)):
        raise UnsupportedError("its rows are long, or few, or of several lengths")
    few = [at_most(dim, Dim.of(most)) for dim in sizes]
    return when(all_of((*few, at_most(Dim.of(SIDE_BY_SIDE), rows)))) if few else None


def _beside(rows: Sequence[Loop], body: Statements, *, kept: bool) -> Statements:
    """The rows of the innermost loop side by side, each in a lane."""
    body = keep_rows(body) if kept else body
    tiles = side_by_side(replace(rows[-1], body=expand_folds(body, 1, wide=False)), SIDE_BY_SIDE)
    return bind(nested(rows[:-1], (tiles,)), len(rows))


def _one_run(rows: Sequence[Loop], cells: Loop) -> Statements | None:
    """The cells of several rows as one run: what depends on the place in the row alone is repeated in memory of the
    thread, once a block of rows. None where something depends on the row alone."""
    row, length = rows[-1], cells.extent
    loads = dict.fromkeys(load for load in loads_of(cells.body) if _is_alike(load, cells.var))
    names = {load: f"{load.buffer}.rows{at or ''}" for at, load in enumerate(loads)}
    whole = Dim.of(f"{row.var}t") * BLOCK + Dim.of(f"{row.var}r") * REPEATED + Dim.of(CELL_OF_ROWS) // length

    def repeated(expr: Expr) -> Expr:
        return (
            Load(names[expr], (Dim.of(CELL_OF_ROWS),), expr.dtype) if isinstance(expr, Load) and expr in names else expr
        )

    body = substitute(rewrite(cells.body, repeated), {row.var: whole, cells.var: Dim.of(CELL_OF_ROWS) % length})
    if any(divides(dim, CELL_OF_ROWS) for dim in all_dims(body)):
        return None
    filled = [part for load, name in names.items() for part in _repeated(name, load, cells)]
    return _blocks(rows, length, body, filled)


def _is_alike(load: Load, variable: str) -> bool:
    """Whether a load is the same one in each row."""
    return load.where is None and variables_of(load) == {variable}


def _repeated(name: str, load: Load, cells: Loop) -> Statements:
    """Memory with the cells of one row, as many times as a run has rows."""
    again = Dim.of(f"{cells.var}a")
    store = Store((name,), (again * cells.extent + Dim.of(cells.var),), (load,))
    fill = Loop(cells.var, cells.extent, Axis.LANES, (store,))
    memory = Alloc(name, load.dtype, (cells.extent * REPEATED,), Space.THREAD)
    return memory, Loop(str(again), Dim.of(REPEATED), Axis.SERIAL, (fill,))


def _blocks(rows: Sequence[Loop], length: Dim, body: Statements, filled: Sequence[Statement]) -> Statements:
    """Blocks of rows on threads, in each runs of rows, of which the cells are the lanes."""
    row = rows[-1].var
    outer, size, block = tiled(replace(rows[-1], body=()), BLOCK, f"{row}t", f"{row}b", f"{row}t_length")
    runs, count, run = tiled(replace(block, body=()), REPEATED, f"{row}r", f"{row}c", f"{row}r_length")
    cells = Loop(CELL_OF_ROWS, run.extent * length, Axis.LANES, body)
    inner = (*size, *filled, replace(runs, axis=Axis.SERIAL, body=(*count, cells)))
    return bind(nested(rows[:-1], (replace(outer, body=inner),)), len(rows))
