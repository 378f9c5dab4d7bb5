"""Folds of folds: of many values, each of which is a fold of its own, as the distances to many points are.

A short inner fold fills no vector. So rows run side by side where there are many, and what a row gives to the inner
folds lies turned in memory of the thread; where there are few, the values of the outer fold do. Long inner folds are
in lanes, a tile of them before one is taken in. Which it is, the sizes tell as the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules.cpu.folds import (
    State,
    are_alike,
    expand_folds,
    halves,
    is_ordered,
    lets_of_folds,
    levelled,
    merged,
    names_in,
    over,
    state_of,
    taken,
)
from noyau.compiler.schedules.cpu.tiles import CELL, side_by_side
from noyau.compiler.schedules.primitives import (
    Statements,
    bind,
    chain,
    coalesce,
    nested,
    reindex,
    sink,
    stride_of,
    tiled,
    variables_of,
)
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimLike, product
from noyau.ir.loops import (
    Alloc,
    Asked,
    Axis,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Space,
    Statement,
    Store,
    Var,
    all_of,
    at_most,
    opposite,
    when,
)
from noyau.ir.walk import all_dims, fold_of, folds_in, is_fold, loads_of, rewrite, substitute

SHORT = 64  # values of an inner fold that are added one by one in float32: NumPy has 16 to each of its partial sums
TILE = 32  # rows, or values of an outer fold, side by side: gcc 12 unrolls loops over 16, and vectorises no more


def folds_of_folds(kernel: Kernel) -> Kernel | None:
    """A kernel whose one launch gives numbers for each row, by folds of which the values are folds, with a launch for
    each way that its sizes may ask for. None where it is no such kernel."""
    (launch,) = kernel.launches
    rows, body = chain(sink(coalesce(launch.body)))
    inner = [fold for let in lets_of_folds(body) for fold in folds_in(fold_of(let).body)]
    if not rows or not inner or any(isinstance(s, Loop) for s in body) or any(map(is_ordered, folds_in(body))):
        return None
    try:
        short = all_of(_known_at_most(product(n for _, n in fold.loops), Dim.of(SHORT)) for fold in inner)
        many = _known_at_most(Dim.of(TILE), rows[-1].extent)
        parts = _passes(body)
        ways = [(all_of((short, many)), bind(_rows_beside(rows, parts), len(rows)))] if _lie_beside(parts, rows) else []
        few = opposite(many) if ways else True
        for condition, along in ((all_of((short, few)), _values_beside), (opposite(short), _in_turn)):
            ways.append((condition, bind(nested(rows, _over(parts, along)), len(rows))))
    except UnsupportedError:
        return None
    launches = [Launch(body, when(condition)) for condition, body in ways if condition is not False]
    return replace(kernel, launches=tuple(launches))


@dataclass(frozen=True, slots=True)
class _Pass:
    """Folds over the same loops, in one pass: each round does `steps`, which merge into the first cell of each state;
    inner folds stand in them as they are."""

    loops: tuple[tuple[str, Dim], ...]
    steps: Statements
    states: tuple[State, ...]
    results: Statements

    @property
    def memory(self) -> frozenset[str]:
        return frozenset(name for state in self.states for name in state.names)


def _passes(body: Statements) -> list[Statement | _Pass]:
    """The statements of a block, with its folds in passes, as few as may be."""
    parts: list[Statement | _Pass] = []
    waiting: list[Let] = []
    for statement in levelled(body):
        if waiting and not (is_fold(statement) and are_alike((*waiting, statement))):
            parts.append(_pass(waiting))
            waiting = []
        if isinstance(statement, Let) and is_fold(statement):
            waiting.append(statement)
        else:
            parts.append(statement)
    return [*parts, _pass(waiting)] if waiting else parts


def _pass(lets: Sequence[Let]) -> _Pass:
    folds = list(map(fold_of, lets))
    loops = folds[0].loops
    states = tuple(state_of(fold, let.name, wide=True) for fold, let in zip(folds, lets, strict=True))
    steps = []
    for fold, state in zip(folds, states, strict=True):
        same: dict[str, DimLike] = {old: Dim.of(new) for (old, _), (new, _) in zip(fold.loops, loops, strict=True)}
        steps.append(substitute((*fold.body, taken(fold, state, Dim.of(0))), same))
    ends = zip(lets, states, folds, strict=True)
    results = (Let(let.name, state.result(Dim.of(0), fold.dtype), let.origin) for let, state, fold in ends)
    once = merged(steps)
    values, stores = ([s for s in once if isinstance(s, Store) is last] for last in (False, True))
    return _Pass(loops, (*values, *stores), states, tuple(results))


# Rows side by side.
def _lie_beside(parts: Sequence[Statement | _Pass], rows: Sequence[Loop]) -> bool:
    """Whether what is read of a row for each value of an outer fold lies side by side for neighbouring rows."""
    return not any(
        variables_of(load).intersection(name for name, _ in part.loops)
        and stride_of(load, rows[-1].var) not in (Dim.of(0), Dim.of(1))
        for part in parts
        if isinstance(part, _Pass)
        for load in loads_of(part.steps)
    )


def _rows_beside(rows: Sequence[Loop], parts: Sequence[Statement | _Pass]) -> Statements:
    """Each row in a lane."""
    places = _places(parts, rows)
    body = [statement for load, memory in places.items() for statement in _filled(load, memory, parts)]
    for part in parts:
        if isinstance(part, _Pass):
            steps = rewrite(part.steps, lambda expr: places.get(expr, expr) if isinstance(expr, Load) else expr)
            body += (s for state in part.states for s in (*state.memory(1), state.empty(Dim.of(0))))
            body += (*_around(part.loops, expand_folds(steps, 1, wide=False)), *part.results)
        else:
            body.append(part)
    return nested(rows[:-1], (side_by_side(replace(rows[-1], body=tuple(body)), TILE),))


def _places(parts: Sequence[Statement | _Pass], rows: Sequence[Loop]) -> dict[Load, Load]:
    """The loads of inner folds that depend on a row alone, each with its place in memory of the thread."""
    around, extents, places = {row.var for row in rows}, _extents(parts), dict[Load, Load]()
    for load in dict.fromkeys(load for part in parts if isinstance(part, _Pass) for load in loads_of(part.steps)):
        own = tuple(variables_of(load) - around)
        if rows[-1].var in variables_of(load) and load.where is None and len(own) == 1 and own[0] in extents:
            places[load] = Load(f"{load.buffer}.{len(places)}", (Dim.of(own[0]),), load.dtype)
    return places


def _extents(parts: Sequence[Statement | _Pass]) -> dict[str, Dim]:
    """The length of each loop of an inner fold, where sizes give it."""
    folds = [fold for part in parts if isinstance(part, _Pass) for fold in folds_in(part.steps)]
    loops = {name: extent for fold in folds for name, extent in fold.loops}
    return {name: extent for name, extent in loops.items() if not any(n.startswith("#") for n in extent.names)}


def _filled(load: Load, memory: Load, parts: Sequence[Statement | _Pass]) -> Statements:
    """Memory of the thread, with what is read of a row in it."""
    (index,) = memory.index
    (name,) = index.names
    extent = _extents(parts)[name]
    fill = Loop(name, extent, Axis.SERIAL, (Store((memory.buffer,), (index,), (load,)),))
    return Alloc(memory.buffer, memory.dtype, (extent,), Space.THREAD), fill


# The values of an outer fold side by side.
def _over(parts: Sequence[Statement | _Pass], tiles: Callable[[_Pass], Loop]) -> Statements:
    """The statements of a row, with the values of each outer fold in tiles, each cell of which has a state."""
    body: list[Statement] = []
    for part in parts:
        if isinstance(part, _Pass):
            lane = f"{part.loops[-1][0]}l"
            body += (s for state in part.states for s in state.memory(TILE))
            body += (over(lane, TILE, state.empty(Dim.of(lane))) for state in part.states)
            body += _around(part.loops[:-1], (tiles(part),))
            body += (s for state in part.states for s in halves(state, TILE, lane))
            body += part.results
        else:
            body.append(part)
    return tuple(body)


def _values_beside(part: _Pass) -> Loop:
    """Each value in a lane, also within its own fold."""
    (name, extent), steps = part.loops[-1], expand_folds(part.steps, 1, wide=False)
    return side_by_side(Loop(name, extent, Axis.SERIAL, steps), TILE, part.memory)


def _in_turn(part: _Pass) -> Loop:
    """The values of a tile one by one, each by folds in lanes; then they are taken in side by side."""
    (name, extent), last = part.loops[-1], max(map(part.steps.index, lets_of_folds(part.steps)))
    first, then = part.steps[: last + 1], part.steps[last + 1 :]
    tiles, length, cells = tiled(Loop(name, extent, Axis.SERIAL, ()), TILE, f"{name}t", name, f"{name}t_length")
    places = {let.name: Load(f"{let.name}.tile", (Dim.of(CELL),), let.value.dtype) for let in _read_after(first, then)}
    stores = (Store((to.buffer,), to.index, (Var(let, to.dtype),)) for let, to in places.items())
    memory = (Alloc(to.buffer, to.dtype, (Dim.of(TILE),), Space.REGISTER) for to in places.values())
    then = rewrite(then, lambda expr: places.get(expr.name, expr) if isinstance(expr, Var) else expr)
    then = reindex(then, lambda name, index: (Dim.of(CELL),) if name in part.memory else index)
    values = replace(cells, body=(*expand_folds(first, 0), *stores))
    both = (*length, *memory, values, replace(cells, axis=Axis.LANES, body=then))
    index: dict[str, DimLike] = {name: Dim.of(tiles.var) * TILE + Dim.of(name), CELL: Dim.of(name)}
    return replace(tiles, body=substitute(both, index))


def _read_after(first: Statements, then: Statements) -> list[Let]:
    """The Lets of a block that are read after it."""
    if {s.name for s in first if isinstance(s, Let)} & {name for dim in all_dims(then) for name in dim.names}:
        raise UnsupportedError("an index that is computed is needed in two loops")
    return [s for s in first if isinstance(s, Let) and s.name in names_in(then)]


# What both ways share.
def _around(loops: Iterable[tuple[str, Dim]], body: Statements) -> Statements:
    return nested([Loop(name, extent, Axis.SERIAL, ()) for name, extent in loops], body)


def _known_at_most(left: Dim, right: Dim) -> Asked:
    """Whether it is at most another one; UnsupportedError where no size says it."""
    if any(name.startswith("#") for dim in (left, right) for name in dim.names):
        raise UnsupportedError("the length of a fold depends on where it stands")
    return at_most(left, right)
