"""The schedule for texts that people read to learn: one plain way for each kind of launch.

A cell of a map or of columns has a thread, a row a block of threads, a whole array a block for each chunk. Loops on
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


def in_threads(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel, flat, as grids of threads and of blocks.

    UnsupportedError where a launch merges into an output, stores at an index that is looked up, or carries a state."""
    flat = primitives.flatten(kernel)
    return primitives.each(flat, [launch.body for launch in flat.launches], _one)


def _one(kernel: ir.Kernel) -> ir.Kernel:
    """A kernel of one launch, scheduled."""
    (launch,) = kernel.launches
    body = launch.body
    if merges(body):
        raise UnsupportedError(f"{kernel.name}: no strategy for threads of a GPU scatters yet")
    ordered = any(map(folds.is_ordered, walk.folds_in(body)))
    if ordered or any(isinstance(s, ir.Loop) and primitives.carries(s) for s in walk.every_statement(body)):
        raise UnsupportedError(f"{kernel.name}: no strategy for threads of a GPU carries a state along an axis yet")
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
        return replace(kernel, launches=(ir.Launch(primitives.bind_all(folds.expand_folds(body, 1))),))
    if is_columns(body):
        return _columns(kernel, body)
    return replace(kernel, launches=(_rows(body),))


def _columns(kernel: ir.Kernel, body: Statements) -> ir.Kernel:
    """A thread for so many rows of a column, and then one that merges their states."""
    loops, inner = primitives.chain(body)
    two = in_two(inner, loops, ROWS, 1, wide=False, every=True)
    nests = primitives.nested([*loops[:-1], two.block, loops[-1]], two.first), primitives.nested(loops, two.second)
    launches = tuple(ir.Launch(primitives.bind_all(nest)) for nest in nests)
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches)


def _rows(body: Statements) -> ir.Launch:
    """A block for each row."""
    return ir.Launch(primitives.widen(_over_threads(primitives.bind_all(body))))


def _whole(kernel: ir.Kernel) -> ir.Kernel:
    """The first fold at the root in two launches, over chunks and then over their states; what needs more than a few
    scalars finds the result in scratch."""
    kernel = primitives.with_bodies(kernel, primitives.coalesce)
    let = folds.first_fold(kernel.launches[0].body)
    kernel, before, after, rest = primitives.around_fold(kernel, kernel.launches[0].body, let)
    block = f"#block_of_{let.name}"
    count, length, fold = folds.in_blocks(walk.fold_of(let), CHUNK, block)
    state = folds.state_of(fold, let.name, wide=True)
    saved = state.beside("of_block")
    one = (*before, *length, *_shared(fold, state, let.name), saved.store(Dim.of(block), state.load(Dim.of(0)), merge=False))
    loop = "#of_block"
    again = _strided(loop, count, (state.store(_lane(let.name), saved.load(Dim.of(loop)), merge=True),), let.name)
    two = (*before, *_merged(again, state, let.name), replace(let, value=state.result(Dim.of(0), fold.dtype)), *after)
    grid = ir.Loop(block, count, ir.Axis.THREADS, primitives.drop_unused(one))
    launches = (ir.Launch((grid,)), ir.Launch(primitives.drop_unused(_over_threads(two))))
    done = replace(kernel, buffers=(*kernel.buffers, *saved.buffers((count,))), launches=launches)
    later = primitives.each(done, [rest] if rest else [], _one)
    return replace(later, launches=(*launches, *later.launches))


def _over_threads(statements: Statements) -> Statements:
    """Every fold over the threads of a block. A sum of float32 is float64 there."""

    def change(statement: ir.Statement) -> Statements | None:
        match statement:
            case ir.Let(name, ir.Fold() as fold):
                state = folds.state_of(fold, name, wide=True)
                return (*_shared(fold, state, name), replace(statement, value=state.result(Dim.of(0), fold.dtype)))
            case _:
                return None

    return primitives.change_each(statements, change)


def _shared(fold: ir.Fold, state: folds.State, name: str) -> Statements:
    """A fold shared by the threads of a block, up to the merged state in cell 0: of the innermost loop a thread has
    every round that is so many after another."""
    *around, (variable, extent) = fold.loops
    loops = _strided(variable, extent, folds.step(replace(fold, at=folds.position(fold)), state, _lane(name)), name)
    for outer, count in reversed(around):
        loops = (ir.Loop(outer, count, ir.Axis.SERIAL, loops),)
    return _merged(loops, state, name)


def _strided(variable: str, extent: Dim, body: Statements, name: str) -> Statements:
    """The rounds of a loop that one thread has."""
    inner = walk.substitute(body, {variable: Dim.of(variable) * THREADS + _lane(name)})
    return (ir.Loop(variable, (extent - _lane(name) + (THREADS - 1)) // THREADS, ir.Axis.SERIAL, inner),)


def _merged(loops: Statements, state: folds.State, name: str) -> Statements:
    """What each thread does for a state of its own, and the merge of all."""
    lane = f"#lane_{name}"
    own = ir.Loop(lane, Dim.of(THREADS), ir.Axis.LANES, (state.empty(Dim.of(lane)), *loops))
    return (*state.memory(THREADS), own, *folds.halves(state, THREADS, lane))


def _lane(name: str) -> Dim:
    """The thread of a block in a fold of this name."""
    return Dim.of(f"#lane_{name}")
