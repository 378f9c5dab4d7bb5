"""Tiles whose cells run side by side: the serial loops of a cell move outside the loop over the cells."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from noyau.compiler.schedules.cpu.folds import fill
from noyau.compiler.schedules.primitives import Statements, drop_unused, reindex, tile_loop
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike
from noyau.ir.walk import all_dims, every_expression, every_statement, rewrite, substitute

CELL = "#cell"


def side_by_side(loop: ir.Loop, width: int, around: frozenset[str] = frozenset()) -> ir.Loop:
    """The loop in tiles of `width`: each serial loop of its body moves outside the cells of a tile, and memory of the
    body, and of the names `around`, has room for each cell. So a fold over a leading axis, or a scan along it, reads
    whole cache lines, and short rows run side by side.

    UnsupportedError where a loop of the body depends on the cell."""
    loop = replace(loop, body=_store_lets(loop.body))
    variable = f"{loop.var}t"
    tiles, length, cells = tile_loop(replace(loop, body=()), width, variable, loop.var, f"{variable}_length")
    inside = tuple(every_statement(loop.body))
    memory = around.union(s.name for s in inside if isinstance(s, ir.Alloc))
    lets = frozenset(s.name for s in inside if isinstance(s, ir.Let))
    body = _spread(loop.body, replace(cells, axis=ir.Axis.LANES), width, memory, lets, ())
    index: dict[str, DimLike] = {loop.var: Dim.of(tiles.var) * width + Dim.of(loop.var), CELL: Dim.of(loop.var)}
    return replace(tiles, body=(*length, *substitute(body, index)))


def _spread(
    body: Statements, cells: ir.Loop, width: int, memory: frozenset[str], lets: frozenset[str], outside: Statements
) -> Statements:
    """The statements of a block, each run for all cells before the next; `outside` are Lets that they may need."""
    spread, group = list[ir.Statement](), list[ir.Statement]()
    for statement in body:
        match statement:
            case ir.Alloc(shape=(cells_of_one,)):
                spread.append(replace(statement, shape=(cells_of_one * width,)))
            case ir.Let(value=ir.Index(dim)) if not dim.names & (lets | {cells.var}):
                spread.append(statement)
            case ir.Loop(_, extent, ir.Axis.SERIAL, inner) if cells.var not in extent.names:
                spread += _group(cells, (*outside, *group), width, memory, lets)
                outside, group = (*outside, *(s for s in group if _is_constant(s, memory))), []
                spread.append(replace(statement, body=_spread(inner, cells, width, memory, lets, outside)))
            case ir.Loop() | ir.Alloc():
                raise UnsupportedError(f"the cells of {cells.var} cannot run side by side: each has loops of its own")
            case _:
                group.append(statement)
    return (*spread, *_group(cells, (*outside, *group), width, memory, lets))


def _store_lets(body: Statements) -> Statements:
    """The statements of a block; Lets that a later loop needs and cannot recompute are in memory of one cell."""
    memory = {s.name for s in every_statement(body) if isinstance(s, ir.Alloc)}
    result: list[ir.Statement] = []
    rest, loose = list(body), set[str]()
    while rest:
        statement, *rest = rest
        if isinstance(statement, ir.Loop):
            statement = replace(statement, body=_store_lets(statement.body))
        if isinstance(statement, ir.Let) and not _is_constant(statement, memory, loose):
            loose.add(statement.name)
            if _is_needed_apart(statement.name, rest):
                if statement.name.startswith("#"):
                    raise UnsupportedError(f"an index that is computed, {statement.name[1:]}, is needed in two loops")
                value = statement.value
                if value.dtype is DType.BOOL:  # gcc 12 has no wide vectors of bools beside floats
                    value = ir.Call("cast", (value,), DType.I32)
                cell = ir.Load(f"{statement.name}.cell", (Dim.of(0),), value.dtype)
                result.append(ir.Alloc(cell.buffer, cell.dtype, (Dim.of(1),), ir.Space.REGISTER))
                memory.add(cell.buffer)
                again = cell if value is statement.value else ir.Call("cast", (cell,), DType.BOOL)
                rest = list(rewrite(rest, partial(_read_again, statement.name, again)))
                statement = ir.Store((cell.buffer,), cell.index, (value,))
        result.append(statement)
    return tuple(result)


def _read_again(name: str, cell: ir.Expr, expr: ir.Expr) -> ir.Expr:
    return cell if isinstance(expr, ir.Var) and expr.name == name else expr


def _is_needed_apart(name: str, after: Sequence[ir.Statement]) -> bool:
    """Whether a loop after a Let, or a statement after that loop, reads its value."""
    first = next((at for at, s in enumerate(after) if isinstance(s, ir.Loop)), len(after))
    if name.startswith("#"):
        return any(name in dim.names for dim in all_dims(tuple(after[first:])))
    return any(isinstance(expr, ir.Var) and expr.name == name for expr in every_expression(after[first:]))


def _is_constant(statement: ir.Statement, memory: Collection[str], loose: Collection[str] = ()) -> bool:
    """Whether a Let has the same value wherever it stands; `loose`: names of Lets that have not."""
    read = [expr for expr in every_expression((statement,)) if isinstance(expr, ir.Load | ir.Var)]
    varies = any(expr.buffer in memory if isinstance(expr, ir.Load) else expr.name in loose for expr in read)
    return isinstance(statement, ir.Let) and not varies


def _group(cells: ir.Loop, body: Statements, width: int, memory: frozenset[str], lets: frozenset[str]) -> Statements:
    """A loop over the cells of a tile, or nothing if its body is empty."""
    own = drop_unused(reindex(body, lambda name, at: (at[0] * width + Dim.of(CELL),) if name in memory else at))
    bound = {s.name for s in every_statement(own) if isinstance(s, ir.Let)}
    missing = [e.name for e in every_expression(own) if isinstance(e, ir.Var) and e.name in lets - bound]
    if missing:
        raise UnsupportedError(f"the cells of {cells.var} cannot run side by side: {missing[0]} is needed in two loops")
    stores = [s for s in own if isinstance(s, ir.Store) and memory.issuperset(s.buffers) and s.merge is None]
    if len(stores) == len(own) and all(isinstance(value, ir.Const) for s in stores for value in s.values):
        cells = replace(cells, extent=Dim.of(width))  # a loop whose length is known
        if len(own) == 1 and isinstance(store := own[0], ir.Store) and store.index == (Dim.of(CELL),):
            return (fill(cells.var, cells.extent, store),)
    return (replace(cells, body=own),) if own else ()
