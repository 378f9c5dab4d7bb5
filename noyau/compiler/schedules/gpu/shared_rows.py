"""Rows that several programs share, so that few rows occupy all of a GPU: a launch leaves the states of pieces in
scratch, and the next one, which finds the rows in the cache, merges those. Programs that wait for each other instead
take longer: what counts them has to be set to 0 first, which is a launch too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from noyau.compiler.schedules.cpu.folds import State, state_of
from noyau.compiler.schedules.cpu.loop_fusion import are_apart, levelled
from noyau.compiler.schedules.gpu.online_folds import Pair, of_tile, pairs_in, results
from noyau.compiler.schedules.gpu.tiles import (
    ZERO,
    Lead,
    all_at_most,
    ceiling,
    cells_of,
    extents_of_tiles,
    gathered_in,
    in_one_tile,
    merged_in,
    on_grid,
)
from noyau.compiler.schedules.primitives import Statements, drop_unused
from noyau.dtypes import DType
from noyau.ir.dims import Dim, product
from noyau.ir.launch_conditions import Asked, all_of, opposite
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
    Statement,
    Store,
    Tile,
    TilePolicy,
)

SHARE = Tile("SHARE", TilePolicy.OCCUPYING, 8192, warp_factor=2)
PIECES = 64  # of a row at most
MERGED = Tile("PIECES", TilePolicy.COVERING, 1 << 16)
FEW = 128  # rows, of which a program each would leave most of a GPU idle
SHORT = 8192  # cells of a row that one program takes less time for than a launch does


def can_share(loops: Sequence[Loop], inner: Statements) -> Asked:
    """Whether rows are to be shared: long ones of which there are few, as sizes known now, or a bool of sizes, say."""
    extents = list(dict.fromkeys(extents_of_tiles(inner)))
    if len(extents) != 1 or not in_one_tile(inner) or not any(_is_fold(s) for s in inner):
        return False
    few = all_at_most((product(loop.extent for loop in loops),), FEW)
    fits, short = all_at_most(extents, SHARE.number * PIECES), all_at_most(extents, SHORT)
    return all_of((few, fits, opposite(short)))


def _is_fold(statement: Statement) -> bool:
    return isinstance(statement, Let) and isinstance(statement.value, Fold)


def shared(kernel: Kernel, loops: Sequence[Loop], inner: Statements, lead: Lead) -> tuple[Kernel, list[Statements]]:
    """The kernel with scratch for the states of pieces, and the rows in pieces: a launch for each time that folds wait
    for others, and one for what follows from all of them."""
    extent, piece = next(extents_of_tiles(inner)), Dim.of("#piece")
    pieces = Loop("#piece", ceiling(extent + lead.most, SHARE.size), Axis.THREADS, ())
    pairs = {pair.first.name: pair for pair in pairs_in(inner)}
    done = {pair.second.name for pair in pairs.values()}
    written = any(isinstance(s, Loop) for s in inner)
    known, launches, scratch = list[Statement](lead.lets), list[Statements](), list[Buffer]()
    level = _Level()
    for statement in (s for s in levelled(inner) if not (isinstance(s, Let) and s.name in done)):
        if level.beside and not (_is_fold(statement) and are_apart(level.beside, statement)):
            launches.append(on_grid([*loops, pieces], drop_unused((*known, *level.folded))))
            known += level.merged
            level = _Level()
        match statement:
            case Loop():
                known.append(cells_of(statement, piece * SHARE.size, SHARE, lead.cells))
            case Let(name, Fold()):
                pair = pairs.get(name)
                level.beside += [statement] if pair is None else [pair.first, pair.second]
                tile, (left, *merge), made = _piece_of(statement, pair, [*loops, pieces], lead)
                level.folded += [*tile, left]
                level.merged += merge
                scratch += made
            case Store() if written:
                known.append(If(Call("equal", (Index(piece), Index(ZERO)), DType.BOOL), (statement,)))
            case _:
                known.append(statement)
    launches.append(on_grid([*loops, pieces] if written else loops, drop_unused(tuple(known))))
    return replace(kernel, buffers=(*kernel.buffers, *scratch)), launches


@dataclass(slots=True)
class _Level:
    """Folds that do not wait for each other: what leaves the states of their pieces, and what merges those."""

    beside: list[Statement] = field(default_factory=list)
    folded: list[Statement] = field(default_factory=list)
    merged: list[Statement] = field(default_factory=list)


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
    tile, state = gathered_in(let.value, f"{let.name}.own", SHARE, lead=lead.cells, start=start)
    total = state_of(let.value, let.name, wide=True)
    merge, left = _met(state, total, state.load(ZERO), axes)
    return tile, (*merge, Let(let.name, total.result(ZERO, let.value.dtype), let.origin)), left


def _met(own: State, total: State, parts: tuple[Expr, ...], axes: Sequence[Loop]) -> tuple[Statements, list[Buffer]]:
    """The state of a piece, left in scratch; what merges those of all pieces of the row after that."""
    *around, pieces = axes
    shape, other = tuple(axis.extent for axis in (pieces, *around)), f"#piece_{total.names[0]}"
    left = State(own.monoid, tuple(f"{n}.of_piece" for n in total.names), own.dtypes)
    row = sum((Dim.of(axis.var) * product(shape[at + 2 :]) for at, axis in enumerate(around)), ZERO)
    casts = tuple(
        value if value.dtype is dtype else Call("cast", (value,), dtype)
        for value, dtype in zip(left.load(Dim.of(other) * product(shape[1:]) + row), total.dtypes, strict=True)
    )
    merge = merged_in(Loop(other, pieces.extent, Axis.SERIAL, ()), total, casts, total.names[0], MERGED, start=ZERO)
    store = left.store(Dim.of(pieces.var) * product(shape[1:]) + row, parts, merge=False)
    buffers = [Buffer(n, d, shape, Role.SCRATCH) for n, d in zip(left.names, left.dtypes, strict=True)]
    return (store, *merge), buffers
