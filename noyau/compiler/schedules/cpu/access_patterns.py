"""Access patterns of a nest: loads that run along the innermost loop, along another one, or along its folds."""

from __future__ import annotations

from noyau.compiler.schedules.cpu.folds import are_alike, lets_of_folds
from noyau.compiler.schedules.primitives import Statements, stride_of
from noyau.ir.dims import Dim
from noyau.ir.loops import Loop
from noyau.ir.walk import every_statement, fold_of, folds_in, loads_of


def is_columns(body: Statements) -> bool:
    """The folds are in the innermost loop, alike, and their loads run along that loop, not along the folds."""
    inner, folds = body, folds_in(body)
    while inner and isinstance(inner[-1], Loop):
        variable, inner = inner[-1].var, inner[-1].body
    if inner is body or not folds or list(map(fold_of, lets_of_folds(inner))) != folds or not are_alike(inner):
        return False
    if any(isinstance(s, Loop) for s in every_statement(inner)):
        return False
    loads = [(load, fold.loops[-1][0]) for fold in folds for load in loads_of(fold.body)]
    along = [stride_of(load, variable) for load, _ in loads]
    across = [stride_of(load, row) for load, row in loads]
    return along.count(Dim.of(1)) > across.count(Dim.of(1))


def reads_along(body: Statements, outer: tuple[str, ...] = ()) -> tuple[str, str] | None:
    """The loop, not the innermost one, that loads run along with stride 1 while the innermost one strides, and that
    innermost one; or None."""
    for loop in (s for s in body if isinstance(s, Loop)):
        if any(isinstance(s, Loop) for s in loop.body):
            ways = reads_along(loop.body, (*outer, loop.var))
        else:
            ways = _along(loop, outer)
        if ways is not None:
            return ways
    return None


def _along(innermost: Loop, outer: tuple[str, ...]) -> tuple[str, str] | None:
    for load in loads_of(innermost.body):
        if stride_of(load, innermost.var) not in (Dim.of(0), Dim.of(1)):
            for variable in outer:
                if stride_of(load, variable) == Dim.of(1):
                    return variable, innermost.var
    return None
