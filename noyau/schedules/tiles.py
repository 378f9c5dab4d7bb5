"""Loops in tiles of which the cells run side by side, through all that the body of the loop does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimLike
from noyau.ir.loops import Alloc, Axis, Const, Index, Let, Load, Loop, Space, Statement, Store, Var
from noyau.ir.walk import every_expression, every_statement, substitute
from noyau.schedules.steps import Statements, counted, drop_unused, reindex, split

CELL = "#cell"


def side_by_side(loop: Loop, width: int) -> Loop:
    """The loop in tiles of `width`: each serial loop of its body goes outside the cells of a tile, and a variable of
    the body gets a value for each cell. So a fold over a leading axis, or a scan along it, reads whole lines of memory.

    UnsupportedError where a loop of the body depends on the cell, or memory of the body has more than one cell."""
    tiles = split(replace(loop, body=()), width, f"{loop.var}t", loop.var)
    (cells,) = tiles.body
    assert isinstance(cells, Loop)
    length, cells = counted(cells, f"{tiles.var}_length")
    inside = tuple(every_statement(loop.body))
    memory = frozenset(s.name for s in inside if isinstance(s, Alloc))
    lets = frozenset(s.name for s in inside if isinstance(s, Let))
    body = _spread(loop.body, replace(cells, axis=Axis.LANES), width, memory, lets, ())
    index: dict[str, DimLike] = {loop.var: Dim.of(tiles.var) * width + Dim.of(loop.var), CELL: Dim.of(loop.var)}
    return replace(tiles, body=(*length, *substitute(body, index)))


def _spread(
    body: Sequence[Statement],
    cells: Loop,
    width: int,
    memory: frozenset[str],
    lets: frozenset[str],
    outside: Statements,
) -> Statements:
    """The statements of a block, each for all cells before the next; `outside` are Lets that they may need."""
    made: list[Statement] = []
    group: list[Statement] = []
    for statement in body:
        match statement:
            case Alloc(_, _, shape, Space.REGISTER) if shape == (Dim.of(1),):
                made.append(replace(statement, shape=(Dim.of(width),)))
            case Let(value=Index(dim)) if not dim.names & (lets | {cells.var}):
                made.append(statement)
            case Loop(_, extent, Axis.SERIAL, inner) if cells.var not in extent.names:
                made += _group(cells, (*outside, *group), width, memory, lets)
                outside, group = (*outside, *(s for s in group if _is_constant(s, memory))), []
                made.append(replace(statement, body=_spread(inner, cells, width, memory, lets, outside)))
            case Loop() | Alloc():
                raise UnsupportedError(f"the cells of {cells.var} cannot run side by side: each has loops of its own")
            case _:
                group.append(statement)
    return (*made, *_group(cells, (*outside, *group), width, memory, lets))


def _is_constant(statement: Statement, memory: frozenset[str]) -> bool:
    """Whether a Let has the same value wherever it stands."""
    loads = [expr for expr in every_expression((statement,)) if isinstance(expr, Load)]
    return isinstance(statement, Let) and not any(load.buffer in memory for load in loads)


def _group(cells: Loop, body: Statements, width: int, memory: frozenset[str], lets: frozenset[str]) -> Statements:
    """A loop over the cells of a tile, or nothing where nothing is left to do."""
    own = reindex(body, lambda name, index: (Dim.of(CELL),) if name in memory else index)
    kept = drop_unused(own)
    bound = {s.name for s in every_statement(kept) if isinstance(s, Let)}
    missing = [e.name for e in every_expression(kept) if isinstance(e, Var) and e.name in lets - bound]
    if missing:
        raise UnsupportedError(f"the cells of {cells.var} cannot run side by side: {missing[0]} is needed in two loops")
    if all(isinstance(s, Store) and memory.issuperset(s.buffers) and _is_known(s) for s in kept):
        cells = replace(cells, extent=Dim.of(width))  # a loop whose length is known
    return (replace(cells, body=kept),) if kept else ()


def _is_known(store: Store) -> bool:
    return store.merge is None and all(isinstance(value, Const) for value in store.values)
