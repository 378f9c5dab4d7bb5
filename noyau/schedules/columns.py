"""Strategy columns: a reduction over a leading axis. Tiles of neighbouring cells are reduced side by side; many rows in
two launches: partial states of fixed blocks of rows, then their merge in order."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.loops import Fold, Kernel, Launch, Let, Loop
from noyau.schedules.folds import expand_folds, is_ordered
from noyau.schedules.launches import in_two, is_small
from noyau.schedules.steps import Statements, bind, chain, coalesce, lone_loops, nested, sink, widen, with_bodies
from noyau.schedules.tiles import side_by_side

ROWS = 256  # of a block: fixed, so that bits do not depend on threads


def columns(kernel: Kernel, *, width: int = 64, rows: int = ROWS) -> Kernel:
    """The innermost output loop in tiles of `width` lanes, the fold outside of them, in blocks of `rows`."""
    kernel = with_bodies(kernel, lambda body: sink(coalesce(body)))
    (launch,) = kernel.launches
    loops, body = chain(launch.body)
    ordered = any(is_ordered(fold) for fold in _folds(body))
    if not folds_at(body) or ordered or all(is_small(statement, rows) for statement in body):
        return replace(kernel, launches=(_launch(_innermost(launch.body, width)),))
    two = in_two(body, loops, rows, 1, wide=False)
    first = nested([*loops[:-1], two.block], (_tiled(loops[-1], two.first, width),))
    second = nested(loops[:-1], (_tiled(loops[-1], two.second, width),))
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=(_launch(first), _launch(second)))


def folds_at(body: Statements) -> bool:
    """Whether a fold stands directly in a block."""
    return bool(_folds(body))


def _folds(body: Statements) -> list[Fold]:
    return [s.value for s in body if isinstance(s, Let) and isinstance(s.value, Fold)]


def _innermost(body: Statements, width: int) -> Statements:
    match body:
        case (*before, Loop() as loop) if folds_at(loop.body):
            return (*before, _tiled(loop, loop.body, width))
        case (*before, Loop() as loop):
            return (*before, replace(loop, body=_innermost(loop.body, width)))
        case _:
            return body


def _tiled(loop: Loop, body: Statements, width: int) -> Loop:
    return side_by_side(replace(loop, body=expand_folds(body, 1, wide=False)), width)


def _launch(body: Statements) -> Launch:
    return Launch(widen(bind(body, lone_loops(body))))
