"""Loops in tiles: long computations go through stages tile by tile, and the cells of a tile run side by side.

What a processor computes at the same time is what it finds among the next hundred or so instructions. Where each cell
takes forty that wait for each other, that is three vectors of cells, and the units idle most of the time. A tile that
goes through a part of the computation after the other has many short ones side by side; what lies between two stages
stays in the nearest cache. (Measured: bias and GELU 1.3 times as fast.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from noyau.compiler.schedules.cpu.folds import filled
from noyau.compiler.schedules.primitives import (
    COSTLY,
    Statements,
    change_each,
    drop_unused,
    reindex,
    tiled,
    with_bodies,
)
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike
from noyau.ir.substitution import rewrite, substitute
from noyau.ir.walk import all_dims, every_expression, every_statement, flops_of, loads_of, operands

TILE = 64  # cells: few, so that memory brings the next ones while these are computed, but several vectors
DEEP = 5  # flops that wait for each other, from which a function that is dear has a stage of its own


def in_stages(kernel: ir.Kernel) -> ir.Kernel:
    """The loops in lanes over many cells of which each takes long, in tiles that go through stages."""
    halves = {buffer.name for buffer in kernel.buffers if buffer.dtype is DType.BF16}  # those go in pairs

    def change(loop: ir.Statement) -> Statements | None:
        if not isinstance(loop, ir.Loop) or not _is_long(loop, halves):
            return None
        lengths = [len(stage) for stage in stages_of(loop.body)]
        return _in_tiles(loop, lengths) if len(lengths) > 1 else None

    return with_bodies(kernel, lambda body: change_each(body, change))


def _is_long(loop: ir.Loop, halves: set[str]) -> bool:
    """Whether a loop may have many rounds, which do nothing but to compute values of cells and to store them."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    values = all(isinstance(s, ir.Let) and not s.name.startswith("#") for s in loop.body if not isinstance(s, ir.Store))
    if loop.axis is not ir.Axis.LANES or not stores or not values or any(s.merge for s in stores):
        return False
    stored = {name for s in stores for name in s.buffers}
    loaded = {load.buffer for load in loads_of(loop.body)}
    count = loop.extent.constant
    return (count is None or count >= 2 * TILE) and not stored & loaded and not halves & (stored | loaded)


def stages_of(body: Statements) -> list[Statements]:
    """The statements in stages: a dear function begins one where it waits for much, or where there is another one."""
    stages: list[list[ir.Statement]] = [[]]
    depths: dict[str, int] = {}
    dear = False
    for statement in body:
        wait = _depth(statement, depths)
        if isinstance(statement, ir.Let) and flops_of(statement.value) >= COSTLY:
            if dear or wait >= DEEP:
                stages.append([])
                depths, wait = {}, 0
            dear = True
        if isinstance(statement, ir.Let):
            depths[statement.name] = wait + _flops(statement.value)
        stages[-1].append(statement)
    return [tuple(stage) for stage in stages]


def _depth(statement: ir.Statement, depths: Mapping[str, int]) -> int:
    """The flops that a statement waits for, in its stage."""
    names = [expr.name for expr in every_expression((statement,)) if isinstance(expr, ir.Var)]
    return max((depths.get(name, 0) for name in names), default=0)


def _flops(expr: ir.Expr) -> int:
    """The flops of an expression that wait for each other."""
    return flops_of(expr) + max(map(_flops, operands(expr)), default=0)


def _in_tiles(loop: ir.Loop, lengths: Sequence[int]) -> Statements:
    """The loop in tiles, each of which goes through stages of so many statements."""
    tiles, before, tile = tiled(loop, TILE, f"{loop.var}g", loop.var, f"{loop.var}g_count")
    stages: list[Statements] = []
    for length in lengths:
        at = sum(map(len, stages))
        stages.append(tile.body[at : at + length])
    lets = _between(stages)
    memory = tuple(ir.Alloc(f"{let.name}.stage", let.value.dtype, (Dim.of(TILE),), ir.Space.REGISTER) for let in lets)
    loops = [
        replace(tile, axis=ir.Axis.LANES, body=_stage(stages[:number], stage, lets, Dim.of(tile.var)))
        for number, stage in enumerate(stages)
    ]
    return (replace(tiles, axis=ir.Axis.SERIAL, body=(*before, *memory, *loops)),)


def _between(stages: Sequence[Statements]) -> list[ir.Let]:
    """The values that a later stage reads; what is only loaded is loaded again."""
    lets: list[ir.Let] = []
    for number, stage in enumerate(stages):
        after = [statement for later in stages[number + 1 :] for statement in later]
        read = {expr.name for expr in every_expression(after) if isinstance(expr, ir.Var)}
        lets += [s for s in stage if isinstance(s, ir.Let) and s.name in read and not _is_loaded(s)]
    return lets


def _is_loaded(statement: ir.Statement) -> bool:
    return isinstance(statement, ir.Let) and isinstance(statement.value, ir.Load) and statement.value.where is None


def _stage(before: Sequence[Statements], stage: Statements, lets: Sequence[ir.Let], cell: Dim) -> Statements:
    """The body of one stage: what it reads of those before it, its own statements, and what it leaves."""
    body: list[ir.Statement] = []
    for statement in (statement for earlier in before for statement in earlier):
        if _is_loaded(statement):
            body.append(statement)
        elif isinstance(statement, ir.Let) and statement in lets:
            body.append(replace(statement, value=ir.Load(f"{statement.name}.stage", (cell,), statement.value.dtype)))
    for statement in stage:
        body.append(statement)
        if isinstance(statement, ir.Let) and statement in lets:
            value = ir.Var(statement.name, statement.value.dtype)
            body.append(ir.Store((f"{statement.name}.stage",), (cell,), (value,)))
    return drop_unused(tuple(body))


CELL = "#cell"


def side_by_side(loop: ir.Loop, width: int, around: frozenset[str] = frozenset()) -> ir.Loop:
    """The loop in tiles of `width`: each serial loop of its body goes outside the cells of a tile, and memory of the
    body has room for each cell, as has that of the names in `around`. So a fold over a leading axis, or a scan along
    it, reads whole lines of memory, and short rows run side by side.

    UnsupportedError where a loop of the body depends on the cell."""
    loop = replace(loop, body=_remembered(loop.body))
    variable = f"{loop.var}t"
    tiles, length, cells = tiled(replace(loop, body=()), width, variable, loop.var, f"{variable}_length")
    inside = tuple(every_statement(loop.body))
    memory = around.union(s.name for s in inside if isinstance(s, ir.Alloc))
    lets = frozenset(s.name for s in inside if isinstance(s, ir.Let))
    body = _spread(loop.body, replace(cells, axis=ir.Axis.LANES), width, memory, lets, ())
    index: dict[str, DimLike] = {loop.var: Dim.of(tiles.var) * width + Dim.of(loop.var), CELL: Dim.of(loop.var)}
    return replace(tiles, body=(*length, *substitute(body, index)))


def _spread(
    body: Sequence[ir.Statement],
    cells: ir.Loop,
    width: int,
    memory: frozenset[str],
    lets: frozenset[str],
    outside: Statements,
) -> Statements:
    """The statements of a block, each for all cells before the next; `outside` are Lets that they may need."""
    spread: list[ir.Statement] = []
    group: list[ir.Statement] = []
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


def _remembered(body: Statements) -> Statements:
    """The statements of a block with the Lets that a loop after them needs, and that cannot be made again there, in
    memory of one cell."""
    memory = {s.name for s in every_statement(body) if isinstance(s, ir.Alloc)}
    result: list[ir.Statement] = []
    rest, loose = list(body), set[str]()
    while rest:
        statement, *rest = rest
        if isinstance(statement, ir.Loop):
            statement = replace(statement, body=_remembered(statement.body))
        if isinstance(statement, ir.Let) and not _is_constant(statement, memory, loose):
            loose.add(statement.name)
            if _is_needed_apart(statement.name, rest):
                if statement.name.startswith("#"):
                    raise UnsupportedError(f"an index that is computed, {statement.name[1:]}, is needed in two loops")
                cell = ir.Load(f"{statement.name}.cell", (Dim.of(0),), statement.value.dtype)
                result.append(ir.Alloc(cell.buffer, cell.dtype, (Dim.of(1),), ir.Space.REGISTER))
                memory.add(cell.buffer)
                rest = list(rewrite(rest, partial(_read_again, statement.name, cell)))
                statement = ir.Store((cell.buffer,), cell.index, (statement.value,))
        result.append(statement)
    return tuple(result)


def _read_again(name: str, cell: ir.Load, expr: ir.Expr) -> ir.Expr:
    return cell if isinstance(expr, ir.Var) and expr.name == name else expr


def _is_needed_apart(name: str, after: Sequence[ir.Statement]) -> bool:
    """Whether a loop after a Let, or what comes after that loop, reads its value."""
    first = next((at for at, s in enumerate(after) if isinstance(s, ir.Loop)), len(after))
    if name.startswith("#"):
        return any(name in dim.names for dim in all_dims(tuple(after[first:])))
    return any(isinstance(expr, ir.Var) and expr.name == name for expr in every_expression(after[first:]))


def _is_constant(statement: ir.Statement, memory: Collection[str], loose: Collection[str] = ()) -> bool:
    """Whether a Let has the same value wherever it stands; `loose` are names of those that have not."""
    read = [expr for expr in every_expression((statement,)) if isinstance(expr, ir.Load | ir.Var)]
    return isinstance(statement, ir.Let) and not any(
        expr.buffer in memory if isinstance(expr, ir.Load) else expr.name in loose for expr in read
    )


def _group(cells: ir.Loop, body: Statements, width: int, memory: frozenset[str], lets: frozenset[str]) -> Statements:
    """A loop over the cells of a tile, or nothing where nothing is left to do."""
    own = reindex(body, lambda name, index: (index[0] * width + Dim.of(CELL),) if name in memory else index)
    own = drop_unused(own)
    bound = {s.name for s in every_statement(own) if isinstance(s, ir.Let)}
    missing = [e.name for e in every_expression(own) if isinstance(e, ir.Var) and e.name in lets - bound]
    if missing:
        raise UnsupportedError(f"the cells of {cells.var} cannot run side by side: {missing[0]} is needed in two loops")
    if all(isinstance(s, ir.Store) and memory.issuperset(s.buffers) and _is_known(s) for s in own):
        cells = replace(cells, extent=Dim.of(width))  # a loop whose length is known
        match own:
            case (ir.Store(index=(at,)) as store,) if at == Dim.of(CELL):
                return (filled(cells.var, cells.extent, store),)
            case _:
                pass
    return (replace(cells, body=own),) if own else ()


def _is_known(store: ir.Store) -> bool:
    return store.merge is None and all(isinstance(value, ir.Const) for value in store.values)
