"""Two folds along a row in one pass, where the second needs what the first one gives: a tile's own result first, then
one value a cell, and both as a state that is merged.

A sum of exp(x - m), where m is the largest x (Milakov and Gimelshein, 2018); a sum of (x - m) ** 2, where m is the mean
of x (Chan, Golub and LeVeque, 1979); with a tile for an element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, nan

from noyau.dtypes import DType
from noyau.ir.algebra import Symbolic
from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Call, Const, Expr, Fold, Index, Let, Loop, Statement, Var
from noyau.ir.walk import substitute
from noyau.schedules.folds import State
from noyau.schedules.grid_tiles import ZERO, Tile, ceiling
from noyau.schedules.steps import Statements, minimum

TILE = Tile("BLOCK", "is", 4096, 4)  # small, for each of its tiles waits for a reduction
F32 = DType.F32


@dataclass(frozen=True, slots=True)
class Pair:
    """Two folds along a row. `called`: how the second calls what it takes off; `mean`: whether that is the first over
    the number of cells, and no maximum."""

    first: Let
    second: Let
    called: str
    mean: bool

    @property
    def folds(self) -> tuple[Fold, Fold]:
        one, other = self.first.value, self.second.value
        assert isinstance(one, Fold) and isinstance(other, Fold)
        return one, other


def online(inner: Statements) -> Statements:
    """The statements of a row with such pairs of folds in one pass each."""
    lets = [s for s in inner if isinstance(s, Let) and isinstance(s.value, Fold)]
    scalars = {s.name: s.value for s in inner if isinstance(s, Let) and not isinstance(s.value, Fold)}
    pairs = [pair for one in lets for other in lets if (pair := paired(one, other, scalars)) is not None]
    if not pairs:
        return inner
    made: list[Statement] = []
    for statement in inner:
        if statement is pairs[0].first:
            made += in_one_pass(pairs[0])
        elif statement is not pairs[0].second:
            made.append(statement)
    return online(tuple(made))


def paired(one: Let, other: Let, scalars: Mapping[str, Expr]) -> Pair | None:
    """Two folds that are such a pair, or None."""
    first, second = one.value, other.value
    assert isinstance(first, Fold) and isinstance(second, Fold)
    alike = len(first.loops) == len(second.loops) == 1 and first.loops[0][1] == second.loops[0][1]
    if not alike or second.monoid != "sum" or first.value.dtype is not F32:
        return None
    match first.monoid, _value(second.body, second.value):
        case "max", Call("exp", (moved,)):
            mean = False
        case "sum", Call("multiply", (moved, again)) if moved == again:
            mean = True
        case _:
            return None
    match _value(second.body, moved):
        case Call("subtract", (value, Var(name))) if _taken_off(name, scalars, mean) == one.name:
            variable = first.loops[0][0]
            own = _origin(first, first.value, variable)
            return Pair(one, other, name, mean) if own is not None and _origin(second, value, variable) == own else None
        case _:
            return None


def _taken_off(name: str, scalars: Mapping[str, Expr], mean: bool) -> str | None:
    """The fold of which a value is the result, or the mean."""
    found = scalars.get(name)
    while isinstance(found, Var):
        name, found = found.name, scalars.get(found.name)
    if not mean:
        return name if found is None else None
    match found:
        case Call("divide", (Var(total), Var(count))) if isinstance(counted := scalars.get(count), Call):
            return total if counted.function == "cast" and isinstance(counted.operands[0], Index) else None
        case _:
            return None


def _named(body: Statements, value: Expr) -> Let | None:
    """The Let of a body that a value stands for, or None."""
    name = value.name if isinstance(value, Var) else None
    return next((s for s in body if isinstance(s, Let) and s.name == name), None)


def _value(body: Statements, value: Expr) -> Expr:
    found = _named(body, value)
    return value if found is None else found.value


def _origin(fold: Fold, value: Expr, variable: str) -> tuple[str, tuple[Dim, ...]] | None:
    """The value of the graph, and its index with the fold's loop called `variable`, that a value holds."""
    found = _named(fold.body, value)
    if found is None or found.origin is None:
        return None
    name, index = found.origin
    return name, tuple(dim.replace({fold.loops[0][0]: variable}) for dim in index)


def in_one_pass(pair: Pair) -> Statements:
    """What leaves the results of both folds under their names."""
    first, second = pair.folds
    variable, extent = second.loops[0]
    number, lane, here = f"{variable}t", f"{variable}l", f"{pair.first.name}_here"
    start = Dim.of(number) * TILE.size
    count = minimum(TILE.size, extent - start)
    index = Let(variable, Index(start + Dim.of(lane)))
    (moved,) = substitute((Let(here, first),), {first.loops[0][0]: Dim.of(variable)})
    assert isinstance(moved, Let) and isinstance(moved.value, Fold)
    loop, at = ((lane, count),), Dim.of(variable)
    own = Let(here, replace(moved.value, loops=loop, body=(index, *moved.value.body), at=at))
    off, state, parts = (_moments if pair.mean else _exponentials)(pair, here, count)
    body = tuple(_with(s, pair.called, Var(off.name, F32)) for s in second.body)
    taken = Let(f"{pair.second.name}_here", Fold("sum", loop, (index, *body), second.value, second.dtype, at))
    store = state.store(ZERO, (*parts, Var(taken.name, F32)), merge=True)
    passed = Loop(number, ceiling(extent, TILE.size), Axis.SERIAL, (own, off, taken, store))
    one, other = _results(state.load(ZERO), extent, pair.mean)
    lets = (Let(pair.first.name, one, pair.first.origin), Let(pair.second.name, other, pair.second.origin))
    return (*state.memory(1), state.empty(ZERO), passed, *lets)


def _exponentials(pair: Pair, here: str, count: Dim) -> tuple[Let, State, tuple[Expr, ...]]:
    """What is taken off in a tile: its largest value, but not an infinity; the state, and its first part."""
    call, like, most = Symbolic().call, Symbolic().like, Var(here, F32)
    off = Let(f"{here}_shift", call("where", call("equal", most, like(-inf, most)), like(0.0, most), most))
    names = (f"{pair.first.name}_top", f"{pair.second.name}_scaled")
    return off, State("logsumexp", names, (F32, F32)), (most,)


def _moments(pair: Pair, here: str, count: Dim) -> tuple[Let, State, tuple[Expr, ...]]:
    """What is taken off in a tile: its mean; the state, and its first two parts."""
    cells = Call("cast", (Index(count),), F32)
    off = Let(f"{here}_mean", Symbolic().call("divide", Var(here, F32), cells))
    names = tuple(f"{pair.second.name}_{part}" for part in ("count", "mean", "spread"))
    return off, State("variance", names, (F32, F32, F32)), (cells, Var(off.name, F32))


def _results(state: tuple[Expr, ...], extent: Dim, mean: bool) -> tuple[Expr, Expr]:
    """The results of both folds. Where the largest value is infinite, the sum of exp is NaN, as in two passes."""
    call = Symbolic().call
    if mean:
        return call("multiply", state[1], state[0]), state[2]
    odd = call("logical_and", call("is_inf", state[0]), call("less", Index(ZERO), Index(extent)))
    return state[0], call("where", odd, Const(nan, F32), state[1])


def _with(statement: Statement, old: str, new: Var) -> Statement:
    """A Let with another value in place of one."""
    match statement:
        case Let(_, Call(function, operands, dtype)):
            changed = tuple(new if isinstance(o, Var) and o.name == old else o for o in operands)
            return replace(statement, value=Call(function, changed, dtype))
        case _:
            return statement
