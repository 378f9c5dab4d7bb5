"""The schedule for languages whose programs are threads: a launch is a grid of blocks of threads.

A loop on THREADS is a grid of blocks, one on LANES the threads of a block. Memory of as many cells as a block has
threads is a cell of each thread; what stands outside of lanes every thread of the block computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.cpu.blocked_folds import rows_before
from noyau.compiler.schedules.cpu.scatters import merges
from noyau.compiler.schedules.cpu.strategies import columns
from noyau.compiler.schedules.cpu.strategy_choice import is_columns
from noyau.compiler.schedules.primitives import Statements
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, DimLike, product, strides_of

BLOCK, WARP = 256, 32  # threads
SHORT = 1024  # cells of a row that one warp takes
FEW = 64  # values of a fold that one thread takes in
TILE = 4 * BLOCK  # cells of a map that one block computes: a thread loads several before it waits for one
CHUNK = 1 << 15  # values of a whole array that one block takes in
WIDE = 128  # cells of an innermost loop that are worth blocks of their own


def in_blocks(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel, flat, as grids of blocks of threads, each launch by the strategy that fits it.

    UnsupportedError where a launch merges into an output, stores at an index that is looked up, or carries a state."""
    flat = primitives.flatten(kernel)
    return primitives.each(flat, [launch.body for launch in flat.launches], _one)


def _one(kernel: ir.Kernel) -> ir.Kernel:
    """A kernel of one launch, scheduled."""
    (launch,) = kernel.launches
    body = launch.body
    if merges(body):
        raise UnsupportedError(f"{kernel.name}: no strategy for blocks of threads scatters yet")
    ordered = any(map(folds.is_ordered, walk.folds_in(body)))
    if ordered or any(isinstance(s, ir.Loop) and primitives.carries(s) for s in walk.every_statement(body)):
        raise UnsupportedError(f"{kernel.name}: no strategy for blocks of threads carries a state along an axis yet")
    if folds.lets_of_folds(body) and not all(primitives.is_small(s, FEW) for s in body):
        return _full(kernel) if (first := rows_before(kernel)) is None else primitives.each(*first, _one)
    if len(apart := primitives.apart(body)) > 1:
        return primitives.each(kernel, apart, _one)
    body = primitives.sink(primitives.coalesce(body))
    loops, inner = primitives.chain(body)
    pieces = [primitives.nested(loops, piece) for piece in primitives.apart(inner)]
    if len(pieces) > 1 and all(map(is_columns, pieces)):
        return primitives.each(kernel, pieces, _one)
    if is_columns(body):
        return columns(replace(kernel, launches=(ir.Launch(body),)), width=BLOCK)
    if all(primitives.is_small(s, FEW) for s in inner):
        return replace(kernel, launches=_cells(body))
    return replace(kernel, launches=_rows(body, inner))


def _full(kernel: ir.Kernel) -> ir.Kernel:
    """The first fold at the root in two launches, over chunks and then over their states; what needs more than a few
    scalars finds the result in scratch."""
    kernel = primitives.with_bodies(kernel, primitives.coalesce)
    body = kernel.launches[0].body
    let = folds.first_fold(body)
    kernel, before, after, rest = primitives.around_fold(kernel, body, let)
    variable, zero = f"#block_of_{let.name}", Dim.of(0)
    count, length, fold = folds.in_blocks(walk.fold_of(let), CHUNK, variable)
    state = folds.state_of(fold, let.name, wide=True)
    saved, at = state.beside("of_block"), Dim.of(variable)
    one = (*before, *length, *_shared(fold, state, BLOCK, let.name), saved.store(at, state.load(zero), merge=False))
    taken = state.store(_lane(let.name), saved.load(at), merge=True)
    merged = _over_threads(((variable, count),), (taken,), state, BLOCK, let.name)
    two = (*before, *merged, ir.Let(let.name, state.result(zero, fold.dtype), let.origin), *after)
    grid = ir.Loop(variable, count, ir.Axis.THREADS, primitives.drop_unused(one))
    launches = (ir.Launch((grid,)), ir.Launch(primitives.drop_unused(_expanded(two, BLOCK))))
    done = replace(kernel, buffers=(*kernel.buffers, *saved.buffers((count,))), launches=launches)
    later = primitives.each(done, [rest] if rest else [], _one)
    return replace(later, launches=(*done.launches, *later.launches))


def _rows(body: Statements, inner: Statements) -> tuple[ir.Launch, ...]:
    """Rows on the grid: a block has each long one, and a warp each short one."""
    extents = [s.extent for s in walk.every_statement(inner) if isinstance(s, ir.Loop)]
    extents += [fold.loops[-1][1] for fold in walk.folds_in(inner)]
    is_short = ir.all_of(ir.at_most(extent, Dim.of(SHORT)) for extent in extents if not _is_inner(extent))
    rows = primitives.bind_all(body)
    if not walk.folds_in(inner):
        return (ir.Launch(primitives.widen(rows)),)
    cases = ((BLOCK, ir.opposite(is_short)), (WARP, is_short))
    return tuple(
        ir.Launch(primitives.widen(_expanded(rows, lanes)), ir.when(case)) for lanes, case in cases if case is not False
    )


def _is_inner(extent: Dim) -> bool:
    """Whether an extent is known only within another loop."""
    return any(name.startswith("#") for name in extent.names)


def _expanded(statements: Statements, lanes: int) -> Statements:
    """Every Fold over the threads of a block; the states of a sum of float32 are float64 but in a warp, whose threads
    add few."""

    def change(statement: ir.Statement) -> Statements | None:
        match statement:
            case ir.Let(name, ir.Fold() as fold, origin):
                state = folds.state_of(fold, name, wide=lanes > WARP)
                return (*_shared(fold, state, lanes, name), ir.Let(name, state.result(Dim.of(0), fold.dtype), origin))
            case _:
                return None

    return primitives.change_each(statements, change)


def _lane(name: str) -> Dim:
    """The thread of a block in a fold of this name."""
    return Dim.of(f"#lane_{name}")


def _shared(fold: ir.Fold, state: folds.State, threads: int, name: str) -> Statements:
    """A fold shared by the threads of a block, up to the merged state in cell 0."""
    return _over_threads(fold.loops, folds.step(fold, state, _lane(name)), state, threads, name)


def _over_threads(
    around: Sequence[tuple[str, Dim]], steps: Statements, state: folds.State, threads: int, name: str
) -> Statements:
    """Loops around steps, which merge into the cell of a thread: of the innermost one a thread has every round that is
    so many after another. Then the merge of the cells."""
    lane, (variable, extent) = _lane(name), around[-1]
    strided = walk.substitute(steps, {variable: Dim.of(variable) * threads + lane})
    length = ir.Let(f"#length_{name}", ir.Index(extent - lane + (threads - 1)))  # a Dim of its own: shorter to read
    loops: Statements = (ir.Loop(variable, Dim.of(length.name) // threads, ir.Axis.SERIAL, strided),)
    for outer, count in reversed(around[:-1]):
        loops = (ir.Loop(outer, count, ir.Axis.SERIAL, loops),)
    body = (state.empty(lane), length, *loops)
    one = ir.Loop(f"#lane_{name}", Dim.of(threads), ir.Axis.LANES, body)
    return (*state.memory(threads), one, *folds.halves(state, threads, f"#lane_{name}"))


def _cells(body: Statements) -> tuple[ir.Launch, ...]:
    """Cells that a thread computes by itself: blocks along the innermost loop where that is long, else all the loops
    as one, whose indices are divided."""
    loops = list[ir.Loop]()
    while len(body) == 1 and isinstance(loop := body[0], ir.Loop) and not _is_inner(loop.extent):
        loops.append(loop)
        body = loop.body
    body = folds.expand_folds(body, 1)
    if len(loops) < 2:
        return (ir.Launch(_tiled(loops, body)),)
    is_narrow = ir.at_most(loops[-1].extent, Dim.of(WIDE))
    cases = ((_tiled(loops, body), ir.opposite(is_narrow)), (_tiled(*_as_one(loops, body)), is_narrow))
    return tuple(ir.Launch(statements, ir.when(case)) for statements, case in cases if case is not False)


def _tiled(loops: Sequence[ir.Loop], body: Statements) -> Statements:
    """Loops on the grid, the innermost one in blocks of threads."""
    if not loops:
        return (ir.Loop("#cell", Dim.of(1), ir.Axis.LANES, body),)
    *outer, last = (replace(loop, axis=ir.Axis.THREADS, body=()) for loop in loops)
    variable = f"{last.var}b"
    blocks, length, cells = primitives.tiled(replace(last, body=body), BLOCK, variable, last.var, f"{variable}_length")
    return primitives.nested([*outer, blocks], (*length, replace(cells, axis=ir.Axis.LANES)))


def _as_one(loops: Sequence[ir.Loop], body: Statements) -> tuple[list[ir.Loop], Statements]:
    """Loops that stand alone in each other as one, over all their cells."""
    extents, item = tuple(loop.extent for loop in loops), Dim.of("#item")
    first, *others = zip(loops, strides_of(extents), strict=True)
    index: dict[str, DimLike] = {first[0].var: item // first[1]}
    index |= {loop.var: item // step % loop.extent for loop, step in others}
    return [ir.Loop("#item", product(extents), ir.Axis.SERIAL, ())], walk.substitute(body, index)
