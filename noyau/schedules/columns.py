"""Strategy columns: reductions over a leading axis. Tiles of neighbouring cells are reduced side by side; many rows in
two launches: partial states of fixed blocks of rows, then their merge in order. A tile is as wide as its states fit
into the nearest cache: long pieces of rows are read, and few pages are touched at a time."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.loops import Kernel, Launch, Loop
from noyau.schedules.folds import expand_folds
from noyau.schedules.launches import in_two, is_small
from noyau.schedules.steps import Statements, bind, chain, coalesce, lone_loops, nested, sink, widen, with_bodies
from noyau.schedules.tiles import side_by_side
from noyau.schedules.together import are_alike, expand_together, lets_of_folds

ROWS = 256  # of a block: fixed, so that bits do not depend on threads


def columns(kernel: Kernel, *, width: int = 2048, rows: int = ROWS) -> Kernel:
    """The innermost output loop in tiles of `width` lanes, the folds outside of them, in blocks of `rows`."""
    kernel = with_bodies(kernel, lambda body: sink(coalesce(body)))
    (launch,) = kernel.launches
    loops, body = chain(launch.body)
    if not lets_of_folds(body) or not are_alike(body) or all(is_small(statement, rows) for statement in body):
        return replace(kernel, launches=(_launch(_innermost(launch.body, width)),))
    two = in_two(body, loops, rows, 1, wide=False, every=True)
    first = nested([*loops[:-1], two.block], (_tiled(loops[-1], two.first, width),))
    second = nested(loops[:-1], (_tiled(loops[-1], two.second, width),))
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=(_launch(first), _launch(second)))


def _innermost(body: Statements, width: int) -> Statements:
    match body:
        case (*before, Loop() as loop) if lets_of_folds(loop.body):
            return (*before, _tiled(loop, loop.body, width))
        case (*before, Loop() as loop):
            return (*before, replace(loop, body=_innermost(loop.body, width)))
        case _:
            return body


def _tiled(loop: Loop, body: Statements, width: int) -> Loop:
    wide = expand_together(body) if lets_of_folds(body) and are_alike(body) else expand_folds(body, 1, wide=False)
    return side_by_side(replace(loop, body=wide), width)


def _launch(body: Statements) -> Launch:
    return Launch(widen(bind(body, lone_loops(body))))
