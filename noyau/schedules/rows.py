"""Strategy row: reductions along a row. Rows on threads; a row is passed over once a reduction, and once to write.

Streamed, each pass computes anew what it needs; kept, what is dear stays in memory of the thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Call, Expr, Fold, Kernel, Let, Loop, Statement
from noyau.ir.operators import OPERATORS
from noyau.ir.walk import every_statement, expressions
from noyau.schedules.folds import expand_folds
from noyau.schedules.steps import Statements, bind, coalesce, keep, lone_loops, memory, sink, widen, with_bodies

DEAR = 8  # flops from which keeping a value is cheaper than computing it again


def row(kernel: Kernel, *, lanes: int = 32, kept: bool = True, rests: bool = True) -> Kernel:
    """Outer loops on threads, folds over `lanes` partial states, other innermost loops in lanes. `rests` is as in
    `expand_folds`."""
    kernel = with_bodies(kernel, lambda body: sink(coalesce(body)))
    kernel = with_bodies(kernel, lambda body: bind(body, lone_loops(body)))
    if kept:
        kernel = with_bodies(kernel, kept_rows)
    return with_bodies(kernel, lambda body: widen(expand_folds(body, lanes, rests=rests)))


def kept_rows(body: Statements) -> Statements:
    """The statements of a row, or loops on threads over rows, with what is dear in memory of the thread."""
    found = [fold for fold in folds_of(body) if len(fold.loops) == 1]
    if not found:
        return body
    _, extent = found[-1].loops[0]
    if any(name.startswith("#") for name in extent.names):
        return body
    dear = _dear(found[-1].body)
    return _in_row(body, dear[-1], extent) if dear else body


def _in_row(body: Statements, let: Let, extent: Dim) -> Statements:
    """The statements of a row, within the loops on threads, with the value of `let` kept."""
    match body:
        case (*before, Loop(axis=Axis.THREADS) as loop):
            return (*before, replace(loop, body=_in_row(loop.body, let, extent)))
        case _:
            name = f"kept.{let.name}"
            changed = keep(body, frozenset({let.origin[0]} if let.origin else ()), name)
            return body if changed == body else (memory(name, let.value, extent), *changed)


def _dear(body: Iterable[Statement]) -> list[Let]:
    """The Lets of a fold whose function costs much."""
    return [s for s in body if isinstance(s, Let) and isinstance(s.value, Call) and _flops(s.value) >= DEAR]


def _flops(call: Call) -> int:
    return OPERATORS[call.function].flops


def folds_of(body: Iterable[Statement]) -> list[Fold]:
    """The folds in statements, in order."""
    found: list[Expr] = [expr for s in every_statement(body) for expr in expressions(s) if isinstance(expr, Fold)]
    return [fold for fold in found if isinstance(fold, Fold)]
