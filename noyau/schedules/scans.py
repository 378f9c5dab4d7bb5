"""Strategy scan: a state is carried along an axis, whose loop stays serial; the loops around it go to threads."""

from __future__ import annotations

from noyau.errors import UnsupportedError
from noyau.ir.loops import Kernel
from noyau.schedules.folds import expand_folds
from noyau.schedules.steps import Statements, bind, chain, coalesce, lone_loops, nested, sink, widen, with_bodies
from noyau.schedules.tiles import side_by_side


def scan(kernel: Kernel, *, lanes: int = 32, width: int = 16) -> Kernel:
    """Outer loops on threads; where the cells of the innermost one can run side by side through the scan, they do, in
    tiles of `width`."""

    def scheduled(body: Statements) -> Statements:
        body = _tiled(sink(coalesce(body)), width)
        return widen(expand_folds(bind(body, lone_loops(body)), lanes))

    return with_bodies(kernel, scheduled)


def _tiled(body: Statements, width: int) -> Statements:
    loops, _ = chain(body)
    if not loops:
        return body
    try:
        return nested(loops[:-1], (side_by_side(loops[-1], width),))
    except UnsupportedError:
        return body
