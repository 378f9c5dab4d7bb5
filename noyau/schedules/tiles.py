"""Loops in tiles of which the cells run side by side, through all that the body of the loop does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimLike
from noyau.ir.loops import Alloc, Axis, Const, Expr, Index, Let, Load, Loop, Space, Statement, Store, Var
from noyau.ir.walk import every_expression, every_statement, rewrite, substitute
from noyau.schedules.steps import Statements, all_dims, counted, drop_unused, reindex, split

CELL = "#cell"


def side_by_side(loop: Loop, width: int, around: frozenset[str] = frozenset()) -> Loop:
    """The loop in tiles of `width`: each serial loop of its body goes outside the cells of a tile, and memory of the
    body has room for each cell, as has that of the names in `around`. So a fold over a leading axis, or a scan along
    it, reads whole lines of memory, and short rows run side by side.

    UnsupportedError where a loop of the body depends on the cell."""
    loop = replace(loop, body=_remembered(loop.body))
    tiles = split(replace(loop, body=()), width, f"{loop.var}t", loop.var)
    (cells,) = tiles.body
    assert isinstance(cells, Loop)
    length, cells = counted(cells, f"{tiles.var}_length")
    inside = tuple(every_statement(loop.body))
    memory = around.union(s.name for s in inside if isinstance(s, Alloc))
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
            case Alloc(_, _, (cells_of_one,), Space.REGISTER | Space.THREAD):
                made.append(replace(statement, shape=(cells_of_one * width,)))
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


def _remembered(body: Statements) -> Statements:
    """The statements of a block with the Lets that a loop after them needs, and that cannot be made again there, in
    memory of one cell."""
    memory = {s.name for s in every_statement(body) if isinstance(s, Alloc)}
    made: list[Statement] = []
    left, loose = list(body), set[str]()
    while left:
        statement, *left = left
        if isinstance(statement, Loop):
            statement = replace(statement, body=_remembered(statement.body))
        if isinstance(statement, Let) and not _is_constant(statement, memory, loose):
            loose.add(statement.name)
            if _is_needed_apart(statement.name, left):
                if statement.name.startswith("#"):
                    raise UnsupportedError(f"an index that is computed, {statement.name[1:]}, is needed in two loops")
                cell = Load(f"{statement.name}.cell", (Dim.of(0),), statement.value.dtype)
                made.append(Alloc(cell.buffer, cell.dtype, (Dim.of(1),), Space.REGISTER))
                memory.add(cell.buffer)
                left = list(rewrite(left, partial(_read_again, statement.name, cell)))
                statement = Store((cell.buffer,), cell.index, (statement.value,))
        made.append(statement)
    return tuple(made)


def _read_again(name: str, cell: Load, expr: Expr) -> Expr:
    return cell if isinstance(expr, Var) and expr.name == name else expr


def _is_needed_apart(name: str, after: Sequence[Statement]) -> bool:
    """Whether a loop after a Let, or what comes after that loop, reads its value."""
    first = next((at for at, s in enumerate(after) if isinstance(s, Loop)), len(after))
    if name.startswith("#"):
        return any(name in dim.names for dim in all_dims(tuple(after[first:])))
    return any(isinstance(expr, Var) and expr.name == name for expr in every_expression(after[first:]))


def _is_constant(statement: Statement, memory: Collection[str], loose: Collection[str] = ()) -> bool:
    """Whether a Let has the same value wherever it stands; `loose` are names of those that have not."""
    read = [expr for expr in every_expression((statement,)) if isinstance(expr, Load | Var)]
    return isinstance(statement, Let) and not any(
        expr.buffer in memory if isinstance(expr, Load) else expr.name in loose for expr in read
    )


def _group(cells: Loop, body: Statements, width: int, memory: frozenset[str], lets: frozenset[str]) -> Statements:
    """A loop over the cells of a tile, or nothing where nothing is left to do."""
    own = reindex(body, lambda name, index: (index[0] * width + Dim.of(CELL),) if name in memory else index)
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
