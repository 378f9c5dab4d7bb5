"""What schedules for GPUs are made of: programs of a grid, and tiles of cells that a program holds side by side.

A loop on THREADS is a grid of programs. A loop whose extent is `min(TILE, rest)` is a tile: in LANES its cells are
computed side by side; SERIAL, around one Store that merges, it is reduced to a state. A Fold over a tile stays a Fold.
A tile's size is a size that no input binds: whoever launches the kernel chooses it, as its name says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from noyau.dtypes import DType
from noyau.ir.algebra import Symbolic
from noyau.ir.dims import Dim, Op, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Expr,
    Fold,
    Index,
    Let,
    Loop,
    Role,
    Space,
    Statement,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_expression, every_statement, substitute
from noyau.schedules.folds import State, expand_folds, position, state_of
from noyau.schedules.steps import Statements, all_dims, carries, minimum

ZERO, ONE = Dim.of(0), Dim.of(1)


@dataclass(frozen=True, slots=True)
class Tile:
    """The size of a tile, a power of two. `how`: `number` cells ("is"); as many as cover its loops, at most `number`
    ("fits"); `number` over the size of the other tiles, at least 1 ("shares"). `warps` of a program, 0 for as many as
    suit its cells, -1 for as many as suit twice as many."""

    name: str
    how: str
    number: int
    warps: int = 0

    @property
    def size(self) -> Dim:
        return Dim.of(f"${self.name} {self.how} {self.number} {self.warps}")


def tile_called(size: str) -> Tile | None:
    """The tile of which that is the size, or None."""
    if not size.startswith("$"):
        return None
    name, how, number, warps = size[1:].split(" ")
    return Tile(name, how, int(number), int(warps))


def tiles_in(body: Iterable[Statement]) -> list[Tile]:
    """The tiles that statements name, in order of their names."""
    names = {name for dim in all_dims(tuple(body)) for name in dim.names}
    found = [tile for name in names if (tile := tile_called(name))]
    return sorted(found, key=lambda tile: (tile.how == "shares", tile.name))


def tile_of(extent: Dim) -> tuple[Tile, Dim | None] | None:
    """The tile that a loop of this extent is, and how many of its cells there are where that may be fewer; or None."""
    if (whole := tile_called(str(extent))) is not None:
        return whole, None
    match extent.terms:
        case (((Op("max", left, right),), -1),):
            for size, rest in ((-left, -right), (-right, -left)):
                if (tile := tile_called(str(size))) is not None:
                    return tile, rest
        case _:
            pass
    return None


def ceiling(extent: Dim, step: Dim) -> Dim:
    """How many steps cover an extent."""
    return (extent + step - 1) // step


def covered(loop: Loop, tile: Tile) -> Loop:
    """The loop as one tile, which covers it."""
    return replace(loop, extent=minimum(tile.size, loop.extent), axis=Axis.LANES)


def cut(loop: Loop, tile: Tile, axis: Axis) -> Loop:
    """The loop in tiles, one after the other on `axis`."""
    number, lane = f"{loop.var}t", f"{loop.var}l"
    start = Dim.of(number) * tile.size
    index = Let(loop.var, Index(start + Dim.of(lane)))
    cells = Loop(lane, minimum(tile.size, loop.extent - start), Axis.LANES, (index, *loop.body))
    return Loop(number, ceiling(loop.extent, tile.size), axis, (cells,))


def on_grid(loops: Sequence[Loop], body: Statements) -> Statements:
    """Loops around a body, one program each round."""
    for loop in reversed(loops):
        body = (replace(loop, axis=Axis.THREADS, body=body),)
    return body


def gathered_in(fold: Fold, name: str, tile: Tile, *, wide: bool = False) -> tuple[Statements, State]:
    """The state of a fold over any number of values, which ends in cell 0: each cell of a tile takes in one value of
    each round, and then the tile is reduced."""
    lifted = MONOIDS[fold.monoid].lift(Symbolic(), fold.value, Index(position(fold)))
    state = state_of(fold, name, wide=wide)
    return _taken_in(fold.loops, expand_folds(fold.body, 1, wide=False), state, lifted, name, tile)


def merged_in(around: Loop, state: State, values: tuple[Expr, ...], name: str, tile: Tile) -> Statements:
    """States that lie along a loop, merged in tiles into cell 0 of `state`."""
    return _taken_in(((around.var, around.extent),), around.body, state, values, name, tile)[0]


def _taken_in(
    loops: Sequence[tuple[str, Dim]],
    body: Statements,
    state: State,
    values: tuple[Expr, ...],
    name: str,
    tile: Tile,
) -> tuple[Statements, State]:
    lane, lanes = Dim.of(f"#lane_{name}"), State(state.monoid, tuple(f"{n}_lanes" for n in state.names), state.dtypes)
    variable, extent = loops[-1]
    start = Dim.of(f"{variable}t") * tile.size
    index = Let(variable, Index(start + lane))
    cells = (index, *body, lanes.store(lane, values, merge=True))
    inner: Statement = Loop(str(lane), minimum(tile.size, extent - start), Axis.LANES, cells)
    inner = Loop(f"{variable}t", ceiling(extent, tile.size), Axis.SERIAL, (inner,))
    for outer, count in reversed(loops[:-1]):
        inner = Loop(outer, count, Axis.SERIAL, (inner,))
    memory = tuple(Alloc(n, d, (tile.size,), Space.THREAD) for n, d in zip(lanes.names, lanes.dtypes, strict=True))
    empty = Loop(str(lane), tile.size, Axis.LANES, (lanes.empty(lane),))
    total = Loop(str(lane), tile.size, Axis.SERIAL, (state.store(ZERO, lanes.load(lane), merge=True),))
    return (*memory, empty, inner, *state.memory(1), state.empty(ZERO), total), state


def partial(
    fold: Fold, name: str, around: Sequence[Loop], chunk: int, tile: Tile
) -> tuple[Loop, Statements, Statements, tuple[Buffer, ...]]:
    """A fold in two launches: the loop over chunks of `chunk` rounds; what leaves the state of a chunk in scratch; what
    merges those; the scratch. A sum of float32 is merged in float64."""
    variable, (outer, extent) = f"#chunk_{name}", fold.loops[0]
    begin = Dim.of(variable) * chunk
    placed = replace(fold, at=position(fold), loops=((outer, minimum(Dim.of(chunk), extent - begin)), *fold.loops[1:]))
    (moved,) = substitute((Let("", replace(placed, loops=fold.loops)),), {outer: Dim.of(outer) + begin})
    assert isinstance(moved, Let) and isinstance(moved.value, Fold)
    whole, part = gathered_in(replace(moved.value, loops=placed.loops), name, tile)
    chunks = Loop(variable, ceiling(extent, Dim.of(chunk)), Axis.THREADS, ())
    axes = [chunks, *around]
    shape = tuple(loop.extent for loop in axes)
    cell = sum((Dim.of(a.var) * product(shape[k + 1 :]) for k, a in enumerate(axes)), ZERO)
    scratch = State(part.monoid, tuple(f"{n}_of_chunk" for n in part.names), part.dtypes)
    first = (*whole, scratch.store(cell, part.load(ZERO), merge=False))
    total = state_of(fold, name, wide=True)
    casts = [
        v if v.dtype is d else Call("cast", (v,), d) for v, d in zip(scratch.load(cell), total.dtypes, strict=True)
    ]
    second = merged_in(chunks, total, tuple(casts), name, tile)
    result = Let(name, total.result(ZERO, fold.dtype))
    buffers = tuple(Buffer(n, d, shape, Role.SCRATCH) for n, d in zip(scratch.names, scratch.dtypes, strict=True))
    return chunks, first, (*second, result), buffers


def is_innermost(loop: Loop) -> bool:
    """Whether its cells can be computed side by side: it has no loops, no folds and no state that it carries on."""
    return not (carries(loop) or folds_in(*loop.body) or any(isinstance(s, Loop) for s in every_statement(loop.body)))


def folds_in(*statements: Statement) -> list[Fold]:
    return [expr for expr in every_expression(statements) if isinstance(expr, Fold)]


def extents_of_tiles(body: Statements) -> Iterator[Dim]:
    """The extents of the loops and folds that become tiles."""
    for statement in every_statement(body):
        if isinstance(statement, Loop) and is_innermost(statement):
            yield statement.extent
    for fold in (expr for expr in every_expression(body) if isinstance(expr, Fold)):
        yield fold.loops[-1][1]


def all_at_most(extents: Iterable[Dim], most: int) -> Expr | bool:
    """Whether extents are at most a number: known now, or a bool of the sizes; False where one depends on a loop."""
    conditions: list[Expr] = []
    for extent in dict.fromkeys(extents):
        if any(name.startswith("#") for name in extent.names):
            return False
        if extent.constant is None:
            conditions.append(Call("less_equal", (Index(extent), Index(Dim.of(most))), DType.BOOL))
        elif extent.constant > most:
            return False
    joined: Expr | None = None
    for condition in conditions:
        joined = condition if joined is None else Call("logical_and", (joined, condition), DType.BOOL)
    return True if joined is None else joined
