"""Index set splitting: scheduled loops in lanes are cut where a condition changes, so that all cells of each part do
the same; the point may lie before the first cell or behind the last one, as the half of a row of unknown length may in
each of its tiles. docs/notes/performance.md."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import TypeAlias

from noyau.compiler.lowering.loop_cuts import FEW, divisions
from noyau.compiler.schedules.cpu.folds import fuse
from noyau.compiler.schedules.primitives import Statements, change_lanes, drop_unused, either, minimum, with_bodies
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimOp, maximum, product, with_sides
from noyau.ir.ranges import simplify
from noyau.ir.walk import all_dims, every_expression, rewrite, substitute, with_dims

# The fewest cells of a known length that pay: rows of 16 and 32 cells take up to 1.9 and 1.3 times as long in two
# loops, those of 64 cells 0.8 (where one branch is an exponential) to 1.07 times, those of 256 cells 0.65 to 0.92.
LONG = 64
Change = tuple[Dim, bool]  # the round of a loop from which on a condition changes, and its value before
Changes: TypeAlias = Mapping[ir.Expr, Change]
States: TypeAlias = Mapping[ir.Expr, bool]  # conditions, and their known values


def cut_at_bounds(kernel: ir.Kernel) -> ir.Kernel:
    """Split each loop in lanes whose cells take one of two branches by position into two; a loop whose cells at its
    ends differ, as in a stencil, into three, separately for the rows inside and those at the edge."""
    return with_bodies(kernel, lambda body: change_lanes(body, _cut))


def _cut(loop: ir.Loop) -> Statements:
    """A loop cut where its conditions change; the loop itself if none does, or if their order is not known."""
    own = {s.name for s in loop.body if isinstance(s, ir.Let)}
    comparisons = [expr for expr in every_expression(loop.body) if isinstance(expr, ir.Call)]
    cells: Changes = {expr: change for expr in comparisons if (change := _change(expr, loop.var))}
    points = {point for point, _ in cells.values()}
    is_long = (loop.extent.constant or LONG) >= LONG
    if not points or not is_long or not _is_straight(loop) or any(point.names & own for point in points):
        return (loop,)
    if len(points) > 1:
        rows = ((expr, _change_of_rows(expr, {loop.var, *own})) for expr in comparisons)
        return _cut_edges(loop, cells, {expr: change for expr, change in rows if change})
    (point,) = points
    until = Dim.of(f"{loop.var}_until")
    return (
        ir.Let(str(until), ir.Index(minimum(maximum(point, 0), loop.extent))),
        _part(loop, Dim.of(0), until, {expr: before for expr, (_, before) in cells.items()}),
        _part(loop, until, loop.extent, {expr: not before for expr, (_, before) in cells.items()}),
    )


def _cut_edges(loop: ir.Loop, cells: Changes, rows: Changes) -> Statements:
    """A loop as its first cells, its inner ones, without conditions, and its last ones. Rows at an edge, where a
    condition on the row has another value than in all other rows, keep the whole loop."""
    points = dict.fromkeys(point for point, _ in cells.values())
    first, last = (tuple(each for each in points if _is_near_begin(each) == near) for near in (True, False))
    if any((point - other).constant is None for point in last for other in last):
        return (loop,)
    begin, until = Dim.of(f"{loop.var}_begin"), Dim.of(f"{loop.var}_until")
    inside: States = {expr: before != (point in first) for expr, (point, before) in cells.items()}
    of_rows: States = {expr: before != _is_near_begin(point) for expr, (point, before) in rows.items()}
    # at an end a condition is known to differ from inside if a single point is near that end
    begins = {expr: not inside[expr] for expr, (point, _) in cells.items() if (point,) == first}
    ends = {expr: not inside[expr] for expr, (point, _) in cells.items() if (point,) == last}
    most = maximum(reduce(minimum, last, loop.extent), begin)
    cut: Statements = (
        ir.Let(str(begin), ir.Index(minimum(reduce(maximum, first, Dim.of(0)), loop.extent))),
        ir.Let(str(until), ir.Index(minimum(most, loop.extent))),
        _part(loop, Dim.of(0), begin, {**of_rows, **begins}),
        _part(loop, begin, until, {**of_rows, **inside}),
        _part(loop, until, loop.extent, {**of_rows, **ends}),
    )
    condition = ir.when(ir.all_of(expr if state else ir.opposite(expr) for expr, state in of_rows.items()))
    return cut if condition is None else either(condition, cut, (loop,))


def _part(loop: ir.Loop, begin: Dim, until: Dim, states: States) -> ir.Loop:
    """A loop from one point to another, between which conditions are known."""
    body = substitute(_decide(loop.body, states), {loop.var: begin + Dim.of(loop.var)})
    return replace(loop, extent=until - begin, body=body)


def _is_near_begin(point: Dim) -> bool:
    """Whether a point is a constant number of cells from the start, whatever the sizes."""
    return point.replace({name: 0 for name in point.names if name.startswith("#")}).constant is not None


def _is_straight(loop: ir.Loop) -> bool:
    """Whether a loop only computes values of cells and stores them."""
    return all(isinstance(s, ir.Let) or (isinstance(s, ir.Store) and not s.merge) for s in loop.body)


def _change(expr: ir.Expr, variable: str) -> Change | None:
    """The round in which a comparison of indices changes, if it changes once as a variable grows by one a round."""
    match expr:
        case ir.Call("less" | "less_equal" as function, (ir.Index(left), ir.Index(right))):
            below = left - right - int(function == "less_equal")
        case ir.Call("greater" | "greater_equal" as function, (ir.Index(left), ir.Index(right))):
            below = right - left - int(function == "greater_equal")
        case _:
            return None
    at_first, step = below.replace({variable: 0}), below.replace({variable: Dim.of(variable) + 1}) - below
    return {Dim.of(1): (-at_first, True), Dim.of(-1): (at_first + 1, False)}.get(step)


def _change_of_rows(expr: ir.Call, own: Collection[str]) -> Change | None:
    """The same for a comparison that is invariant in a loop: by the variable of a loop around it."""
    names = {name for each in expr.operands if isinstance(each, ir.Index) for name in each.dim.names}
    outer = sorted(name for name in names if name.startswith("#"))
    return None if names & {*own} else next(filter(None, (_change(expr, name) for name in outer)), None)


def _decide(statements: Statements, states: States) -> Statements:
    """Statements with conditions replaced by their values."""
    constants: dict[str, ir.Const] = {}

    def simpler(expr: ir.Expr) -> ir.Expr:
        if expr in states:
            return ir.Const(states[expr], DType.BOOL)
        return _simpler(constants.get(expr.name, expr) if isinstance(expr, ir.Var) else expr)

    body: list[ir.Statement] = []
    for statement in statements:
        body += rewrite((statement,), simpler)
        if isinstance(let := body[-1], ir.Let) and isinstance(let.value, ir.Const) and let.value.dtype is DType.BOOL:
            constants[let.name] = let.value
    return drop_unused(tuple(body))


def _simpler(expr: ir.Expr) -> ir.Expr:
    """Simplify an expression with constant conditions."""
    match expr:
        case ir.Call("logical_not", (ir.Const(value),)):
            return ir.Const(not value, DType.BOOL)
        case ir.Call("logical_and" | "logical_or" as function, (ir.Const(value), other) | (other, ir.Const(value))):
            return other if value == (function == "logical_and") else ir.Const(value, DType.BOOL)
        case ir.Call("where", (ir.Const(value), one, other)):
            return one if value else other
        case ir.Load(where=ir.Const(True)):
            return replace(expr, where=None, other=None)
        case ir.Load(where=ir.Const(False), other=ir.Const(value)):
            return ir.Const(value, expr.dtype)
        case _:
            return expr


def split_by_steps(body: Statements) -> Statements:
    """Version each loop in lanes with strides that sizes make 0 or not: as a loop without stride 0, and as it is. Where
    branches of a model meet, either may be broadcast; no vector has a stride that only a call determines."""
    return change_lanes(body, _split)


def _split(loop: ir.Loop) -> Statements:
    stops = dict.fromkeys(stop for dim in all_dims(loop.body) for stop in _stops(dim, loop.var))
    none = (ir.Call("equal", (ir.Index(Dim.of(stop)), ir.Index(Dim.of(0))), DType.BOOL) for stop in stops)
    condition = ir.when(ir.all_of(none))
    whole = _in_steps(replace(loop, body=with_dims(loop.body, partial(_without, stops))))
    return whole if condition is None else either(condition, whole, (loop,))


def _in_steps(loop: ir.Loop) -> Statements:
    """A loop in which a few neighbours read one cell, as in an enlarged image: a round for each cell, and the rest."""
    divided = (op for op in divisions(loop.body) if op.kind == "floordiv" and loop.var in op.left.names)
    count = max((op.right.constant or 0 for op in divided), default=0)
    if not _is_straight(loop) or not 1 < count <= FEW:
        return (loop,)
    rounds, left = loop.extent // count, loop.extent % count
    moved = (substitute(loop.body, {loop.var: Dim.of(loop.var) * count + at}) for at in range(count))
    cells = [with_dims(body, lambda dim: simplify(dim, {})) for body in moved]
    rest = substitute(loop.body, {loop.var: rounds * count + Dim.of(loop.var)})
    loops = replace(loop, extent=rounds, body=fuse(cells)), replace(loop, extent=left, body=rest)
    return loops[: 1 if left == Dim.of(0) else 2]


def _stops(dim: Dim, variable: str) -> Iterator[DimOp]:
    """The formulas of sizes, 0 for an unchanged stride, that a variable is multiplied by."""
    for monomial, _ in dim.terms:
        ops = [atom for atom in monomial if isinstance(atom, DimOp)]
        yield from (op for op in ops if variable in monomial and op.kind == "max" and "#" not in str(op))
        yield from (stop for op in ops for stop in _stops(op.left, variable))


def _without(stops: Collection[DimOp], dim: Dim) -> Dim:
    """A Dim with some formulas of sizes replaced by 0."""
    total, change = Dim.of(0), partial(_without, stops)
    for monomial, factor in dim.terms:
        if not any(atom in stops for atom in monomial):
            total = total + product((factor, *(with_sides(atom, change) for atom in monomial)))
    return total
