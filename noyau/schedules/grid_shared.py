"""Rows that several programs share: each holds a piece of a row, leaves the states of its folds in scratch, and waits
for the others of its row. So a row is read once, however long, and few rows occupy all of a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noyau.dtypes import DType
from noyau.ir.dims import Dim, product
from noyau.ir.loops import (
    Axis,
    Buffer,
    Call,
    Expr,
    Fold,
    If,
    Index,
    Kernel,
    Let,
    Loop,
    Role,
    Space,
    Statement,
    Store,
    Sync,
)
from noyau.schedules.folds import State, state_of
from noyau.schedules.grid_online import of_tile, pairs_in, results
from noyau.schedules.grid_tiles import (
    ZERO,
    Lead,
    Tile,
    all_at_most,
    all_of,
    ceiling,
    cells_of,
    extents_of_tiles,
    gathered_in,
    in_one_tile,
    merged_in,
    on_grid,
)
from noyau.schedules.steps import Statements

SHARE = Tile("SHARE", "pieces", 8192, -1)
PIECES = 64  # of a row at most
MERGED = Tile("PIECES", "fits", 1 << 16)
FEW = 128  # rows, of which a program each would leave most of a GPU idle
SHORT = 8192  # cells of a row that one program takes less time for than several that wait for each other


def can_share(loops: Sequence[Loop], inner: Statements) -> Expr | bool:
    """Whether rows are to be shared: long ones of which there are few, as sizes known now, or a bool of sizes, say."""
    extents = list(dict.fromkeys(extents_of_tiles(inner)))
    if len(extents) != 1 or not in_one_tile(inner) or not any(_is_fold(s) for s in inner):
        return False
    few = all_at_most((product(loop.extent for loop in loops),), FEW)
    fits, short = all_at_most(extents, SHARE.number * PIECES), all_at_most(extents, SHORT)
    if few is False or fits is False or short is True:
        return False
    wanted = [condition for condition in (few, fits) if not isinstance(condition, bool)]
    wanted += [] if isinstance(short, bool) else [Call("logical_not", (short,), DType.BOOL)]
    return all_of(wanted) or True


def _is_fold(statement: Statement) -> bool:
    return isinstance(statement, Let) and isinstance(statement.value, Fold)


def shared(kernel: Kernel, loops: Sequence[Loop], inner: Statements, lead: Lead) -> tuple[Kernel, Statements]:
    """The kernel with scratch for the states of pieces, and the rows in pieces."""
    extent, piece = next(extents_of_tiles(inner)), Dim.of("#piece")
    pieces = Loop("#piece", ceiling(extent + lead.most, SHARE.size), Axis.THREADS, ())
    first = Call("equal", (Index(piece), Index(ZERO)), DType.BOOL)
    start, pairs = piece * SHARE.size, {pair.first.name: pair for pair in pairs_in(inner)}
    done = {pair.second.name for pair in pairs.values()}
    made, scratch = list[Statement](lead.lets), list[Buffer]()
    for statement in inner:
        match statement:
            case Loop():
                made.append(cells_of(statement, start, SHARE, lead.cells))
            case Let(name, Fold()) if name in pairs:
                tile, state, parts = of_tile(pairs[name], SHARE, start, lead.cells)
                merge, left = _met(state, state, parts, [*loops, pieces])
                made += [*tile, *merge, *results(pairs[name], state)]
                scratch += left
            case Let(name, Fold()) if name in done:
                pass
            case Let(name, Fold() as fold, origin):
                tile, state = gathered_in(fold, f"{name}_own", SHARE, lead=lead.cells, start=start)
                total = state_of(fold, name, wide=True)
                merge, left = _met(state, total, state.load(ZERO), [*loops, pieces])
                made += [*tile, *merge, Let(name, total.result(ZERO, fold.dtype), origin)]
                scratch += left
            case Store():
                made.append(If(first, (statement,)))
            case _:
                made.append(statement)
    return replace(kernel, buffers=(*kernel.buffers, *scratch)), on_grid([*loops, pieces], tuple(made))


def _met(own: State, total: State, parts: tuple[Expr, ...], axes: Sequence[Loop]) -> tuple[Statements, list[Buffer]]:
    """The state of a piece, left in scratch, and those of all pieces of the row merged."""
    *around, pieces = axes
    shape, other = tuple(axis.extent for axis in (pieces, *around)), f"#piece_{total.names[0]}"
    left = State(own.monoid, tuple(f"{n}_of_piece" for n in total.names), own.dtypes)
    row = sum((Dim.of(axis.var) * product(shape[at + 2 :]) for at, axis in enumerate(around)), ZERO)
    casts = tuple(
        value if value.dtype is dtype else Call("cast", (value,), dtype)
        for value, dtype in zip(left.load(Dim.of(other) * product(shape[1:]) + row), total.dtypes, strict=True)
    )
    merge = merged_in(Loop(other, pieces.extent, Axis.SERIAL, ()), total, casts, total.names[0], MERGED, start=ZERO)
    store = left.store(Dim.of(pieces.var) * product(shape[1:]) + row, parts, merge=False)
    buffers = [Buffer(n, d, shape, Role.SCRATCH) for n, d in zip(left.names, left.dtypes, strict=True)]
    return (store, Sync(Space.CLUSTER), *merge), buffers
