"""Two folds along a row in one pass, where the second needs the result of the first: a tile's own result first, then
one value a cell, and both as a state that is merged.

A sum of exp(x - m), where m is the largest x (Milakov and Gimelshein, 2018); a sum of (x - m) ** 2, where m is the mean
of x (Chan, Golub and LeVeque, 1979); a tile takes the place of an element."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, nan

from noyau.compiler.schedules.cpu.folds import State, lets_of_folds
from noyau.compiler.schedules.gpu.tiles import ZERO, around_lanes, ceiling, fold_tile
from noyau.compiler.schedules.primitives import Statements, minimum
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, maximum
from noyau.ir.monoids import Symbolic
from noyau.ir.walk import fold_of, is_fold, substitute_in

TILE = ir.Tile("BLOCK", ir.TilePolicy.FIXED, 16384, 16, 8, 1 << 17)  # each tile waits for a reduction
GROUP = ir.Tile("GROUP", ir.TilePolicy.FIXED, 8)  # cells of one thread, folded without others: 16 bytes
LANES = ir.Tile("LANES", ir.TilePolicy.FIXED, 512, 8)
# The same where cells are written after the folds: so many that few rows are in flight.
WRITTEN = ir.Tile("LANES", ir.TilePolicy.GROWING, 2048, 64, 4)
F32 = DType.F32


@dataclass(frozen=True, slots=True)
class Pair:
    """Two folds along a row. `called`: the name in the second fold of the value that it subtracts; `mean`: whether that
    is the mean by the first fold, not its maximum."""

    first: ir.Let
    second: ir.Let
    called: str
    mean: bool

    @property
    def folds(self) -> tuple[ir.Fold, ir.Fold]:
        return fold_of(self.first), fold_of(self.second)


def online(inner: Statements, lead: Dim = ZERO, group: ir.Tile = GROUP, lanes: ir.Tile | None = None) -> Statements:
    """The statements of a row with each such pair of folds in one pass, over tiles that begin `lead` cells early."""
    if not (pairs := pairs_in(inner)):
        return inner
    lanes = lanes or (WRITTEN if any(isinstance(s, ir.Loop) for s in inner) else LANES)
    at, passed = inner.index(pairs[0].first), _pair_in_one_pass(pairs[0], lanes, group, lead)
    after = (s for s in inner[at + 1 :] if s is not pairs[0].second)
    return online((*inner[:at], *passed, *after), lead, group, lanes)


def match_pair(one: ir.Let, other: ir.Let, scalars: Mapping[str, ir.Expr]) -> Pair | None:
    """The pair of two folds, or None if they are not one."""
    first, second = fold_of(one), fold_of(other)
    alike = len(first.loops) == len(second.loops) == 1 and first.loops[0][1] == second.loops[0][1]
    if not alike or second.monoid != "sum" or first.value.dtype is not F32:
        return None
    match first.monoid, _value(second.body, second.value):
        case "max", ir.Call("exp", (moved,)):
            mean = False
        case "sum", ir.Call("multiply", (moved, again)) if moved == again:
            mean = True
        case _:
            return None
    match _value(second.body, moved):
        case ir.Call("subtract", (value, ir.Var(name))) if _subtracted_fold(name, scalars, mean) == one.name:
            variable = first.loops[0][0]
            own, value = _origin(first, first.value, variable), _without_rounding(second.body, value)
            return Pair(one, other, name, mean) if own is not None and _origin(second, value, variable) == own else None
        case _:
            return None


def _without_rounding(body: Statements, value: ir.Expr) -> ir.Expr:
    """The value without `rounded` (see compiler/passes/normal_form.py)."""
    match _value(body, value):
        case ir.Call("rounded", (inner,)):
            return inner
        case _:
            return value


def _subtracted_fold(name: str, scalars: Mapping[str, ir.Expr], mean: bool) -> str | None:
    """The fold whose result, or mean, a value is."""
    value = scalars.get(name)
    while isinstance(value, ir.Var):
        name, value = value.name, scalars.get(value.name)
    if not mean:
        return name if value is None else None
    match value:
        case ir.Call("divide", (ir.Var(total), ir.Var(count))) if isinstance(counted := scalars.get(count), ir.Call):
            return total if counted.function == "cast" and isinstance(counted.operands[0], ir.Index) else None
        case _:
            return None


def _let_of(body: Statements, value: ir.Expr) -> ir.Let | None:
    """The Let of a body that a value refers to, or None."""
    name = value.name if isinstance(value, ir.Var) else None
    return next((s for s in body if isinstance(s, ir.Let) and s.name == name), None)


def _value(body: Statements, value: ir.Expr) -> ir.Expr:
    let = _let_of(body, value)
    return value if let is None else let.value


def _origin(fold: ir.Fold, value: ir.Expr, variable: str) -> tuple[str, tuple[Dim, ...]] | None:
    """The value of the graph that a value holds, and its index, with the fold's loop called `variable`."""
    let = _let_of(fold.body, value)
    if let is None or let.origin is None:
        return None
    name, index = let.origin
    return name, tuple(dim.replace({fold.loops[0][0]: variable}) for dim in index)


def _pair_in_one_pass(pair: Pair, side: ir.Tile, group: ir.Tile = GROUP, lead: Dim = ZERO) -> Statements:
    """Statements that bind the results of both folds to their names."""
    variable, extent = pair.folds[1].loops[0]
    number, lane = f"{variable}t", f"#lane_{pair.first.name}"
    if pair.mean:
        tile, state, parts = of_tile(pair, TILE, Dim.of(number) * TILE.size, lead)
        merged = (*tile, state.store(ZERO, parts, merge=True))
        passed = ir.Loop(number, ceiling(extent + lead, TILE.size), ir.Axis.SERIAL, merged)
        return (*state.memory(1), state.empty(ZERO), passed, *results(pair, state))
    step = side.size * group.size
    tile, state, parts = of_tile(pair, group, Dim.of(number) * step + Dim.of(lane) * group.size, lead)
    lanes = state.beside("lanes")
    own = ir.Loop(lane, side.size, ir.Axis.LANES, (*tile, lanes.store(Dim.of(lane), parts, merge=True)), side)
    passed = ir.Loop(number, ceiling(extent + lead, step), ir.Axis.SERIAL, (own,))
    before, after = around_lanes(state, lanes, lane, side)
    return (*before, passed, *after, *results(pair, state))


def of_tile(pair: Pair, tile: ir.Tile, start: Dim, lead: Dim) -> tuple[Statements, State, tuple[ir.Expr, ...]]:
    """Statements that compute both folds over the tile at `start`; the state of both; the state's parts."""
    first, second = pair.folds
    variable, extent = second.loops[0]
    here, taken = f"{pair.first.name}.here", f"{pair.second.name}.here"
    moved = substitute_in(first, {first.loops[0][0]: Dim.of(variable)})
    own = fold_tile(replace(moved, loops=second.loops), here, tile, start, lead)
    count = minimum(tile.size, extent + lead - start) - maximum(ZERO, lead - start)
    off, state, parts = (_moments if pair.mean else _exponentials)(pair, here, maximum(ZERO, count))
    body = tuple(_with(s, pair.called, ir.Var(off.name, F32)) for s in second.body)
    other = fold_tile(replace(second, body=body), taken, tile, start, lead)
    return (*own, off, *other), state, (*parts, ir.Var(taken, F32))


def results(pair: Pair, state: State) -> Statements:
    """The results of both folds under their names, from the state of the row."""
    one, other = _results(state.load(ZERO), pair.folds[1].loops[0][1], pair.mean)
    return ir.Let(pair.first.name, one, pair.first.origin), ir.Let(pair.second.name, other, pair.second.origin)


def pairs_in(inner: Statements) -> list[Pair]:
    """The pairs of folds of a row."""
    lets = lets_of_folds(inner)
    scalars = {s.name: s.value for s in inner if isinstance(s, ir.Let) and not is_fold(s)}
    return [pair for one in lets for other in lets if (pair := match_pair(one, other, scalars)) is not None]


def _exponentials(pair: Pair, here: str, count: Dim) -> tuple[ir.Let, State, tuple[ir.Expr, ...]]:
    """The shift of a tile: its largest value, but not an infinity; the state, and its first part."""
    call, like, most = Symbolic().call, Symbolic().like, ir.Var(here, F32)
    off = ir.Let(f"{here}.shift", call("where", call("equal", most, like(-inf, most)), like(0.0, most), most))
    return off, State("logsumexp", (f"{pair.first.name}.top", f"{pair.second.name}.scaled"), (F32, F32)), (most,)


def _moments(pair: Pair, here: str, count: Dim) -> tuple[ir.Let, State, tuple[ir.Expr, ...]]:
    """The shift of a tile: its mean; the state, and its first two parts."""
    cells, some = (ir.Call("cast", (ir.Index(dim),), F32) for dim in (count, maximum(Dim.of(1), count)))
    off = ir.Let(f"{here}.mean", Symbolic().call("divide", ir.Var(here, F32), some))
    names = tuple(f"{pair.second.name}.{part}" for part in ("count", "mean", "spread"))
    return off, State("variance", names, (F32, F32, F32)), (cells, ir.Var(off.name, F32))


def _results(state: tuple[ir.Expr, ...], extent: Dim, mean: bool) -> tuple[ir.Expr, ir.Expr]:
    """The results of both folds. Where the largest value is infinite, the sum of exp is NaN, as in two passes."""
    call = Symbolic().call
    if mean:
        return call("multiply", state[1], state[0]), state[2]
    odd = call("logical_and", call("is_inf", state[0]), call("less", ir.Index(ZERO), ir.Index(extent)))
    return state[0], call("where", odd, ir.Const(nan, F32), state[1])


def _with(statement: ir.Statement, old: str, new: ir.Var) -> ir.Statement:
    """A Let with one variable replaced by another."""
    match statement:
        case ir.Let(_, ir.Call(function, operands, dtype)):
            changed = tuple(new if isinstance(o, ir.Var) and o.name == old else o for o in operands)
            return replace(statement, value=ir.Call(function, changed, dtype))
        case _:
            return statement
