"""Changes of a nest before it is lowered again: loops reordered, cut at a point, reversed or split by a divisor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from noyau.compiler.lowering.loop_nest import LoopNest
from noyau.compiler.lowering.values import Lowering, NeededCut, NeededLoop
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, never_negative
from noyau.ir.loops import Expr, Let, Loop, Statement, Var
from noyau.ir.walk import dims_in, every_statement, rewrite_all, substitute

FEW = 4  # the most cells that are unrolled by `split_divided`: a loop over so few is none to a vector
CELLS = 64  # the most cells of distinct values that are unrolled: shared subexpressions are computed once


def reorder(space: LoopNest, lowering: Lowering) -> LoopNest:
    """Move the loops that reductions depend on outwards, so that a reduction is done once for all others."""
    first = set[str]().union(*[names for names in lowering.folds if names < {name for name, _ in space.loops}])
    return replace(space, loops=tuple(sorted(space.loops, key=lambda loop: loop[0] not in first)))


def with_cut(space: LoopNest, cut: NeededCut) -> LoopNest:
    """The nest with one more cut, in order; UnsupportedError where the order is not certain. A loop over a few values
    of one cell each is unrolled instead, innermost."""
    count = dict(space.loops)[cut.variable].constant or 0
    if cut.by_cells and FEW <= count <= CELLS and cut.variable not in space.cuts:
        last = tuple(sorted(space.loops, key=lambda loop: loop[0] == cut.variable))
        return replace(space, loops=last, written_out=space.written_out | {cut.variable})
    points = [*space.cuts.get(cut.variable, ()), cut.point]
    ordered = sorted(points, key=lambda point: sum(1 for other in points if never_negative(point - other)))
    for low, high in pairwise(ordered):
        if not never_negative(high - low) or low == high:
            raise UnsupportedError(f"it is not certain which of {low} and {high} comes first")
    return replace(space, cuts={**space.cuts, cut.variable: tuple(ordered)})


def as_one(first: Statement, second: Loop) -> Loop | None:
    """Two loops as one, if the second repeats the body of the first: it was cut for another segment of a loop around
    it. None if they differ, or if the first statement is no such loop."""
    if not isinstance(first, Loop) or first.var != second.var:
        return None
    moved = substitute(second.body, {second.var: Dim.of(second.var) - first.extent})
    own, other = ([s.name for s in every_statement(body) if isinstance(s, Let)] for body in (first.body, moved))
    same = _rename(moved, dict(zip(other, own, strict=False))) == _rename(first.body, {})
    return replace(first, extent=first.extent + second.extent) if same else None


def _rename(body: Iterable[Statement], names: Mapping[str, str]) -> tuple[Statement, ...]:
    """Statements with their values renamed, and with origins reduced to the name of the node."""

    def value(expr: Expr) -> Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, Var) else expr

    def let(each: Statement) -> Statement:
        origin = (each.origin[0], ()) if isinstance(each, Let) and each.origin else None
        return replace(each, name=names.get(each.name, each.name), origin=origin) if isinstance(each, Let) else each

    return rewrite_all(body, let, value)


def with_loop(space: LoopNest, needed: NeededLoop) -> LoopNest:
    """The nest with a loop that runs backwards, or innermost; UnsupportedError where it does so already."""
    variable, extents = needed.variable, dict(space.loops)
    if needed.backwards:
        back = {variable: extents[variable] - 1 - Dim.of(variable)}
        turned = replace(space, index=tuple(dim.replace(back) for dim in space.index))
        if turned.index == space.index or variable in space.turned:
            raise UnsupportedError(f"the scans in {space.main} run both ways")
        return replace(turned, turned=space.turned | {variable})
    last = tuple(sorted(space.loops, key=lambda loop: loop[0] == variable))
    if last == space.loops:
        raise UnsupportedError(f"the loops of {space.main} have no order in which its scans can run")
    return replace(space, loops=last)


def split_divided(space: LoopNest, statements: Sequence[Statement]) -> LoopNest:
    """Split a loop in two where indices divide its variable: i = i_hi * c + i_lo."""
    extents = dict(space.loops)
    for op in divisions(statements):
        variable, step = str(op.left), op.right
        if variable not in extents or variable in space.cuts or step.names & extents.keys():
            continue
        if extents[variable] % step == Dim.of(0):
            high, low = f"{variable}a", f"{variable}b"
            parts = {variable: Dim.of(high) * step + Dim.of(low)}
            at = [name for name, _ in space.loops].index(variable)
            loops = (*space.loops[:at], (high, extents[variable] // step), (low, step), *space.loops[at + 1 :])
            inner = at == len(space.loops) - 1 and DimOp("mod", op.left, step) not in divisions(statements)
            few = {low} if inner and 0 < (step.constant or 0) <= FEW else set[str]()
            index = tuple(dim.replace(parts) for dim in space.index)
            return replace(space, loops=loops, index=index, written_out=space.written_out | few)
    return space


def divisions(statements: Sequence[Statement]) -> list[DimOp]:
    """Every division and modulo in the indices of statements."""
    divided: list[DimOp] = []
    waiting = list(dims_in(statements))
    while waiting:
        for monomial, _ in waiting.pop().terms:
            for atom in monomial:
                if isinstance(atom, DimOp):
                    divided.append(atom)
                    waiting += [atom.left, atom.right]
    return [op for op in divided if op.kind in ("floordiv", "mod")]
