"""Hints of a launch on a GPU: how exactly it computes, what stays in the caches, what is loaded ahead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from noyau.compiler.schedules.primitives import Statements, is_dear
from noyau.dtypes import HALVES
from noyau.ir.dims import Dim, Shape
from noyau.ir.loops import (
    Alloc,
    Axis,
    Call,
    Fold,
    Hints,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Loop,
    Reload,
    Role,
    Statement,
    Store,
    Tile,
)
from noyau.ir.operators import Fact, has
from noyau.ir.walk import every_expression, every_statement, expressions, folds_in, loads_of, on_threads

FOLDED, WRITTEN = "#folded", "#written"  # the uses of a row in one tile


def with_hints(kernel: Kernel) -> Kernel:
    """The kernel, in tiles, with the hints of each launch."""
    return replace(kernel, launches=tuple(replace(each, hints=_hints(kernel, each)) for each in kernel.launches))


def _hints(kernel: Kernel, launch: Launch) -> Hints:
    return Hints(
        is_loose=_is_loose(kernel, launch),
        reads_once=depth_of(launch.body) > 1 and _leaves_states(kernel, launch),
        shares_inputs=_shares_inputs(kernel, launch),
        is_pipelined=_is_pipelined(kernel, launch),
        passes=tuple(sorted((name, tuple(loops)) for name, loops in _passes_over(launch.body).items())),
        reload=_loaded_again(kernel, launch),
    )


def depth_of(body: Iterable[Statement]) -> int:
    """The greatest depth of tiles that stand in each other; at least 1."""

    def deepest(statements: Iterable[Statement]) -> int:
        most = 0
        for statement in statements:
            if isinstance(statement, Loop):
                most = max(most, deepest(statement.body) + (statement.tile is not None))
            elif isinstance(statement, If):
                most = max(most, deepest(statement.body))
            for expr in expressions(statement):
                if isinstance(expr, Fold):
                    most = max(most, deepest(expr.body) + (expr.tile is not None))
        return most

    return max(1, deepest(body))


def _is_loose(kernel: Kernel, launch: Launch) -> bool:
    """Whether a launch may be wrong by 2**-17 of a value: all its arrays of floats are halves, of which a last bit is
    2**-11 or more, and nothing in it jumps."""
    ends = [buffer for buffer in kernel.buffers if buffer.role is not Role.SCRATCH and buffer.shape]
    wide = [buffer.shape for buffer in ends if buffer.role is Role.OUTPUT]
    arrays = [b.dtype for b in ends if b.role is Role.OUTPUT or not _is_of_rows(b.shape, wide)]
    floats = [dtype for dtype in arrays if dtype.is_float]
    calls = [expr for expr in every_expression(launch.body) if isinstance(expr, Call)]
    jumps = any(
        has(call.function, Fact.STEPS | Fact.JUMPS) or (call.function == "cast" and _to_whole(call)) for call in calls
    )
    return bool(floats) and all(dtype in HALVES for dtype in floats) and not jumps


def _is_of_rows(shape: Shape, wide: Iterable[Shape]) -> bool:
    """Whether cells of this shape are one for each row of wider arrays."""
    return shape[-1] == Dim.of(1) or any(len(shape) < len(other) and shape == other[: len(shape)] for other in wide)


def _to_whole(cast: Call) -> bool:
    return cast.operands[0].dtype.is_float and not cast.dtype.is_float


def _leaves_states(kernel: Kernel, launch: Launch) -> bool:
    """Whether all that a launch stores are states, for a later one."""
    scratch = {buffer.name for buffer in kernel.buffers if buffer.role is Role.SCRATCH}
    buffers = {buffer.name for buffer in kernel.buffers}
    stores = [s for s in every_statement(launch.body) if isinstance(s, Store)]
    return all(scratch.issuperset(store.buffers) for store in stores if buffers & set(store.buffers))


def _shares_inputs(kernel: Kernel, launch: Launch) -> bool:
    """Whether each cell of a map is computed on its own, and several programs read the same cells of an input: these
    are to stay in the cache, before what is written."""
    statements, names = list(every_statement(launch.body)), {loop.var for loop in on_threads(launch.body)[1]}
    loads = loads_of(launch.body)
    if folds_in(launch.body) or not names:
        return False
    if any(isinstance(s, Alloc) or (isinstance(s, Loop) and s.axis is Axis.SERIAL) for s in statements):
        return False
    lets = {s.name: s.value.dim.names for s in statements if isinstance(s, Let) and isinstance(s.value, Index)}
    read = [frozenset().union(*(lets.get(n, {n}) for dim in load.index for n in dim.names)) for load in loads]
    inputs = {buffer.name for buffer in kernel.of(Role.INPUT)}
    pairs = zip(loads, read, strict=True)
    return any(load.buffer in inputs and load.index and not names <= own for load, own in pairs)


def _passes_over(body: Iterable[Statement]) -> dict[str, list[str]]:
    """The loops over tiles, one after the other, that load from each buffer."""
    loops: dict[str, list[str]] = {}
    for statement in every_statement(body):
        if isinstance(statement, Loop) and statement.axis is Axis.SERIAL and statement.tile is None:
            for name in {load.buffer for load in loads_of(statement.body)}:
                loops.setdefault(name, []).append(statement.var)
    return loops


def _loaded_again(kernel: Kernel, launch: Launch) -> Reload | None:
    """The inputs that a launch loads twice: where one fold, which computes little of a cell, reads what is then
    written with."""
    body, folded, written = launch.body, list[tuple[Tile | None, Statements]](), list[Statement]()
    for tile in (s for s in every_statement(body) if isinstance(s, Loop) and s.axis is Axis.LANES):
        if tile.tile is not None and not _is_filled(tile) and (word := read_for(kernel, tile)) is not None:
            folded += [(tile.tile, tile.body)] if word == FOLDED else []
            written += tile.body if word == WRITTEN else ()
    folded += [(fold.tile, fold.body) for fold in folds_in(body)]
    if _passes_over(body) or len(folded) != 1 or is_dear(folded[0][1]):
        return None
    tile_of_fold = folded[0][0]
    read, again = ({(e.buffer, e.where is None) for e in loads_of(s)} for s in (folded[0][1], written))
    alike = {name for name, _ in read & again}  # what is read under a condition is not what was held without one
    cells = {buffer.name: buffer.dtype.bytes for buffer in kernel.of(Role.INPUT) if buffer.name in alike}
    if tile_of_fold is None or not cells:
        return None
    return Reload(frozenset(cells), tile_of_fold, max(cells.values()))


def _is_filled(tile: Loop) -> bool:
    """Whether a tile sets memory to what it is at first."""
    match tile.body:
        case (Store(_, (at,), _, None),):
            return at == Dim.of(tile.var)
        case _:
            return False


def read_for(kernel: Kernel, tile: Loop) -> str | None:
    """Whether the cells of a tile are folded, or written; None of a tile around others."""
    inside = list(every_statement(tile.body))
    if any(isinstance(s, Loop) for s in inside) or folds_in(tile.body):
        return None
    stored = {name for s in inside if isinstance(s, Store) for name in s.buffers}
    return WRITTEN if stored & {buffer.name for buffer in kernel.buffers} else FOLDED


def _is_pipelined(kernel: Kernel, launch: Launch) -> bool:
    """Whether rounds of loops are loaded ahead: in kernels of rows and sums over them, where no buffer is passed over
    again. Elsewhere programs enough are on the way, and it took longer: sums of columns 1.1x, cross-entropy 1.7x."""
    loops = [s for one in kernel.launches for s in every_statement(one.body) if isinstance(s, Loop)]
    return any(loop.var == "#part" for loop in loops) and all(len(p) == 1 for p in _passes_over(launch.body).values())
