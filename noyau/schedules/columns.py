"""Strategy columns: a sum over a leading axis. Tiles of neighbouring cells are summed side by side."""

from __future__ import annotations

from noyau.ir.loops import Kernel, Let, Loop
from noyau.schedules.folds import across, expand_folds
from noyau.schedules.rows import folds_of
from noyau.schedules.steps import Statements, bind, coalesce, lone_loops, sink, widen, with_bodies


def columns(kernel: Kernel, *, width: int = 64) -> Kernel:
    """The innermost output loop in tiles of `width` lanes, the fold outside of them."""
    kernel = with_bodies(kernel, lambda body: sink(coalesce(body)))
    kernel = with_bodies(kernel, lambda body: _tiled(body, width))
    return with_bodies(kernel, lambda body: widen(expand_folds(bind(body, lone_loops(body)), 1)))


def _tiled(body: Statements, width: int) -> Statements:
    match body:
        case (*before, Loop() as loop) if loop.body and any(isinstance(s, Let) and folds_of((s,)) for s in loop.body):
            return (*before, across(loop, width))
        case (*before, Loop(var, extent, axis, inner)):
            return (*before, Loop(var, extent, axis, _tiled(inner, width)))
        case _:
            return body
