"""Folds into loops: a language without a word for them gets lanes of partial states, merged in a fixed order.

So the result never depends on the number of threads, and the loops vectorise without flags that change arithmetic.
"""

from __future__ import annotations

from dataclasses import replace

from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, Const, Expr, Fold, If, Index, Let, Load, Loop, Space, Statement, Store
from noyau.ir.monoids import MONOIDS, Monoid
from noyau.ir.walk import substitute
from noyau.schedules.algebra import Symbolic
from noyau.schedules.steps import split

Statements = tuple[Statement, ...]


def expand_folds(statements: Statements, lanes: int) -> Statements:
    """Every Fold as loops over `lanes` partial states, a tail, and a merge by halves."""
    made: list[Statement] = []
    for statement in statements:
        match statement:
            case Let(name, Fold() as fold, origin):
                states = [f"{name}_{part}" for part in parts(fold)]
                made += lanes_of(fold, states, min(lanes, _known(fold.loops[-1][1]) or lanes), name)
                made.append(Let(name, result_of(fold, states, Dim.of(0)), origin))
            case Loop() | If():
                made.append(replace(statement, body=expand_folds(statement.body, lanes)))
            case _:
                made.append(statement)
    return tuple(made)


def _known(extent: Dim) -> int:
    """The largest power of two not above an extent that is known now; 0 where it is not."""
    known = extent.constant
    return 0 if not known else 1 << (known.bit_length() - 1)


def parts(fold: Fold) -> tuple[str, ...]:
    names = {
        "argmax": ("best", "at"),
        "argmin": ("best", "at"),
        "max_apart": ("max", "nan"),
        "min_apart": ("min", "nan"),
        "logsumexp": ("top", "scaled"),
        "variance": ("count", "mean", "spread"),
    }
    return names.get(fold.monoid, (fold.monoid,))


def start(fold: Fold, states: list[str], lanes: int, lane: str) -> Statements:
    """The memory of the states, and the loop that makes them empty."""
    monoid, dtype = MONOIDS[fold.monoid], fold.value.dtype
    memory = [
        Alloc(name, state, (Dim.of(lanes),), Space.REGISTER)
        for name, state in zip(states, monoid.states(dtype), strict=True)
    ]
    empty: tuple[Expr, ...] = tuple(
        Const(value, state) for value, state in zip(monoid.init(dtype), monoid.states(dtype), strict=True)
    )
    return (*memory, Loop(lane, Dim.of(lanes), Axis.LANES, (Store(tuple(states), (Dim.of(lane),), empty),)))


def step(fold: Fold, states: list[str], at: Dim) -> Statements:
    """The body of the fold, and the merge of its value into the states at a place."""
    lifted = MONOIDS[fold.monoid].lift(Symbolic(), fold.value, Index(position(fold)))
    return (*fold.body, Store(tuple(states), (at,), lifted, fold.monoid))


def position(fold: Fold) -> Dim:
    """The position of a value in the fold: where it says, or its flat index over the loops."""
    if fold.at is not None:
        return fold.at
    flat = Dim.of(0)
    for variable, extent in fold.loops:
        flat = flat * extent + Dim.of(variable)
    return flat


def result_of(fold: Fold, states: list[str], at: Dim) -> Expr:
    monoid: Monoid = MONOIDS[fold.monoid]
    dtypes = monoid.states(fold.value.dtype)
    loads: tuple[Expr, ...] = tuple(Load(name, (at,), dtype) for name, dtype in zip(states, dtypes, strict=True))
    finished: Expr = monoid.finish(Symbolic(), loads)
    return finished


def lanes_of(fold: Fold, states: list[str], lanes: int, name: str) -> Statements:
    """The loops of a fold over lanes, up to the merged state in lane 0."""
    lane, (variable, extent) = f"#lane_{name}", fold.loops[-1]
    steps = step(replace(fold, body=expand_folds(fold.body, 1)), states, Dim.of(lane) if lanes > 1 else Dim.of(0))
    loops: list[Statement] = []
    if lanes == 1:
        loops = [Loop(variable, extent, Axis.SERIAL, steps)]
    else:
        whole, tail = extent // lanes, extent % lanes
        strip = substitute(steps, {variable: Dim.of(variable) * lanes + Dim.of(lane)})
        loops.append(Loop(variable, whole, Axis.SERIAL, (Loop(lane, Dim.of(lanes), Axis.LANES, strip),)))
        if tail != Dim.of(0):
            rest = substitute(steps, {variable: whole * lanes + Dim.of(lane)})
            loops.append(Loop(lane, tail, Axis.LANES, rest))
    for outer, count in reversed(fold.loops[:-1]):
        loops = [Loop(outer, count, Axis.SERIAL, tuple(loops))]
    return (*start(fold, states, lanes, lane), *loops, *halves(fold, states, lanes, lane))


def halves(fold: Fold, states: list[str], lanes: int, lane: str) -> Statements:
    """The lanes merged into lane 0: the upper half into the lower one, again and again."""
    made: list[Statement] = []
    dtypes = MONOIDS[fold.monoid].states(fold.value.dtype)
    while lanes > 1:
        lanes //= 2
        upper = (Dim.of(lane) + lanes,)
        values: tuple[Expr, ...] = tuple(Load(name, upper, dtype) for name, dtype in zip(states, dtypes, strict=True))
        merge = Store(tuple(states), (Dim.of(lane),), values, fold.monoid)
        made.append(Loop(lane, Dim.of(lanes), Axis.LANES, (merge,)))
    return tuple(made)


def across(loop: Loop, width: int) -> Loop:
    """A loop whose body holds one Fold, as tiles of `width`: the fold runs outside, the tile's cells side by side inside.

    For sums over a leading axis: each tile reads whole lines of memory."""
    tiles = split(loop, width, f"{loop.var}t", loop.var)
    tile = tiles.body[0]
    assert isinstance(tile, Loop)
    at = next(k for k, s in enumerate(tile.body) if isinstance(s, Let) and isinstance(s.value, Fold))
    let = tile.body[at]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    fold, states = let.value, [f"{let.name}_{part}" for part in parts(let.value)]
    before, after = tile.body[:at], tile.body[at + 1 :]

    def cells(body: Statements) -> Loop:
        return Loop(tile.var, tile.extent, Axis.LANES, body)

    inner: Statements = (cells((*before, *step(fold, states, Dim.of(tile.var)))),)
    for variable, count in reversed(fold.loops):
        inner = (Loop(variable, count, Axis.SERIAL, inner),)
    finish = Let(let.name, result_of(fold, states, Dim.of(tile.var)), let.origin)
    body = (*start(fold, states, width, f"#lane_{let.name}"), *inner, cells((*before, finish, *after)))
    return Loop(tiles.var, tiles.extent, tiles.axis, body)

