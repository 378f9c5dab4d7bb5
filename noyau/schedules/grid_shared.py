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
from noyau.schedules.grid_online import Pair, of_tile, pairs_in, results
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
from noyau.schedules.together import are_apart, levelled

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
    pairs = {pair.first.name: pair for pair in pairs_in(inner)}
    done = {pair.second.name for pair in pairs.values()}
    made, met, scratch = list[Statement](lead.lets), list[Statements](), list[Buffer]()
    beside, waiting = list[Statement](), [s for s in levelled(inner) if not (isinstance(s, Let) and s.name in done)]
    while waiting:
        match statement := waiting.pop(0):
            case Loop():
                made.append(cells_of(statement, piece * SHARE.size, SHARE, lead.cells))
            case Let(name, Fold()):
                beside += [pairs[name].first, pairs[name].second] if name in pairs else [statement]
                tile, merge, left = _piece_of(statement, pairs.get(name), [*loops, pieces], lead)
                made += tile
                met.append(merge)
                scratch += left
            case Store():
                made.append(If(first, (statement,)))
            case _:
                made.append(statement)
        if met and not (waiting and _is_fold(waiting[0]) and are_apart(beside, waiting[0])):
            made += [*(merge[0] for merge in met), Sync(Space.CLUSTER), *(s for merge in met for s in merge[1:])]
            met.clear()
            beside.clear()
    return replace(kernel, buffers=(*kernel.buffers, *scratch)), on_grid([*loops, pieces], tuple(made))


def _piece_of(
    let: Let, pair: Pair | None, axes: Sequence[Loop], lead: Lead
) -> tuple[Statements, Statements, list[Buffer]]:
    """A fold, or a pair of them, over a piece; the Store of its state, and what merges those of all pieces after that;
    their scratch."""
    start = Dim.of(axes[-1].var) * SHARE.size
    if pair is not None:
        tile, state, parts = of_tile(pair, SHARE, start, lead.cells)
        merge, left = _met(state, state, parts, axes)
        return tile, (*merge, *results(pair, state)), left
    assert isinstance(let.value, Fold)
    tile, state = gathered_in(let.value, f"{let.name}_own", SHARE, lead=lead.cells, start=start)
    total = state_of(let.value, let.name, wide=True)
    merge, left = _met(state, total, state.load(ZERO), axes)
    return tile, (*merge, Let(let.name, total.result(ZERO, let.value.dtype), let.origin)), left


def _met(own: State, total: State, parts: tuple[Expr, ...], axes: Sequence[Loop]) -> tuple[Statements, list[Buffer]]:
    """The state of a piece, left in scratch; what merges those of all pieces of the row after that."""
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
    return (store, *merge), buffers
