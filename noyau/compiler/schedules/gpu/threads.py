"""The schedule for texts that people read to learn: one plain way for each kind of launch.

A cell of a map, and a piece of a column, has a thread; a row, and a chunk of a whole array, a block of them. Loops on
THREADS are a grid: of blocks where loops in LANES stand within, else of threads.
"""

from __future__ import annotations

from dataclasses import replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.cpu.blocked_folds import in_two, rows_before
from noyau.compiler.schedules.cpu.scatters import merges
from noyau.compiler.schedules.cpu.strategy_choice import is_columns
from noyau.compiler.schedules.primitives import Statements
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim

THREADS = 256  # of a block
FEW = 64  # values of a fold that one thread takes in
ROWS = 256  # of a column that one thread adds up
CHUNK = 1 << 15  # values of a whole array that one block takes in
ZERO = Dim.of(0)


def in_threads(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel, flat, as grids of threads and of blocks.

    UnsupportedError where a launch merges into an output, stores at an index that is looked up, or carries a state."""
    flat = primitives.flatten(kernel)
    return primitives.each(flat, [launch.body for launch in flat.launches], _one)


def _one(kernel: ir.Kernel) -> ir.Kernel:
    """A kernel of one launch, scheduled."""
    body = kernel.launches[0].body
    ordered = any(map(folds.is_ordered, walk.folds_in(body)))
    carries = ordered or any(isinstance(s, ir.Loop) and primitives.carries(s) for s in walk.every_statement(body))
    if carries or merges(body):
        lacks = "scatters" if merges(body) else "carries a state along an axis"
        raise UnsupportedError(f"{kernel.name}: no strategy for threads of a GPU {lacks} yet")
    if folds.lets_of_folds(body) and not all(primitives.is_small(s, FEW) for s in body):
        return _whole(kernel) if (first := rows_before(kernel)) is None else primitives.each(*first, _one)
    if len(apart := primitives.apart(body)) > 1:
        return primitives.each(kernel, apart, _one)
    body = primitives.sink(primitives.coalesce(body))
    loops, inner = primitives.chain(body)
    pieces = [primitives.nested(loops, piece) for piece in primitives.apart(inner)]
    if len(pieces) > 1 and all(map(is_columns, pieces)):
        return primitives.each(kernel, pieces, _one)
    if all(primitives.is_small(s, FEW) for s in inner):
        return replace(kernel, launches=_bound(folds.expand_folds(body, 1)))
    if is_columns(body):
        two = in_two(inner, loops, ROWS, 1, wide=False, every=True)
        first_loops = [*loops[:-1], two.block, loops[-1]]
        launches = _bound(primitives.nested(first_loops, two.first), primitives.nested(loops, two.second))
        return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches)
    return replace(kernel, launches=_bound(primitives.widen(_over_threads(body))))


def _bound(*bodies: Statements) -> tuple[ir.Launch, ...]:
    return tuple(ir.Launch(primitives.bind_all(body)) for body in bodies)


def _over_threads(statements: Statements) -> Statements:
    """Every fold over the threads of a block; a sum of float32 is float64 there."""

    def change(statement: ir.Statement) -> Statements | None:
        if not isinstance(statement, ir.Let) or not walk.is_fold(statement):
            return None
        loops, state = _shared(walk.fold_of(statement), statement.name)
        return (*loops, replace(statement, value=state.result(ZERO, statement.value.dtype)))

    return primitives.change_each(statements, change)


def _shared(fold: ir.Fold, name: str) -> tuple[Statements, folds.State]:
    """A fold shared by the threads of a block, and the state that it leaves in cell 0."""
    state = folds.state_of(fold, name, wide=True)
    return folds.lanes_of(fold, state, THREADS, name, rests=False), state


def _whole(kernel: ir.Kernel) -> ir.Kernel:
    """The first fold at the root in two launches, over chunks and then over their states; what needs more than a few
    scalars finds the result in scratch."""
    kernel = primitives.with_bodies(kernel, primitives.coalesce)
    let = folds.first_fold(kernel.launches[0].body)
    kernel, before, after, rest = primitives.around_fold(kernel, kernel.launches[0].body, let)
    block, lane = f"#block_of_{let.name}", f"#lane_{let.name}"
    count, length, fold = folds.in_blocks(walk.fold_of(let), CHUNK, block)
    loops, state = _shared(fold, let.name)
    saved = state.beside("of_block")
    one = (*before, *length, *loops, saved.store(Dim.of(block), state.load(ZERO), merge=False))
    again = ir.Loop(block, count, ir.Axis.SERIAL, (state.store(Dim.of(lane), saved.load(Dim.of(block)), merge=True),))
    tiles, tile_length, cells = primitives.tiled(again, THREADS, "#chunks", lane, "#chunks_length")
    merged = (
        replace(tiles, body=(*tile_length, replace(cells, axis=ir.Axis.LANES))),
        *folds.halves(state, THREADS, lane),
    )
    empty = (*state.memory(THREADS), folds.over(lane, THREADS, state.empty(Dim.of(lane))))
    two = (*before, *empty, *merged, replace(let, value=state.result(ZERO, fold.dtype)), *after)
    grid = ir.Loop(block, count, ir.Axis.THREADS, primitives.drop_unused(one))
    launches = (ir.Launch((grid,)), ir.Launch(primitives.drop_unused(_over_threads(two))))
    done = replace(kernel, buffers=(*kernel.buffers, *saved.buffers((count,))), launches=launches)
    later = primitives.each(done, [rest] if rest else [], _one)
    return replace(later, launches=(*launches, *later.launches))
