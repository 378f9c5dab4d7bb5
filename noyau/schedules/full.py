"""Strategy full: a reduction of a whole array in two launches: partial states of fixed blocks, then their merge."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Buffer, Fold, Kernel, Launch, Let, Load, Loop, Role, Store, Var
from noyau.schedules.folds import expand_folds
from noyau.schedules.launches import in_two, is_light
from noyau.schedules.steps import Statements, coalesce, drop_unused, widen, with_bodies

BLOCK = 1 << 16  # values a block: fixed, so that bits do not depend on threads


def full(kernel: Kernel, *, lanes: int = 32, block: int = BLOCK) -> tuple[Kernel, Statements]:
    """The first fold at the root, over blocks on threads, then their states merged in order. What follows is done at
    once where it is a few scalars; else it is given back, to be scheduled, and finds the result in scratch."""
    kernel = with_bodies(kernel, coalesce)
    (launch,) = kernel.launches
    at = next(k for k, s in enumerate(launch.body) if isinstance(s, Let) and isinstance(s.value, Fold))
    let = launch.body[at]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    before = tuple(s for s in launch.body[:at] if not isinstance(s, Loop | Store))
    after = (*(s for s in launch.body[:at] if isinstance(s, Loop | Store)), *launch.body[at + 1 :])
    rest: Statements = ()
    if not all(isinstance(s, Store) or is_light(s) for s in after):
        scratch, cell = Buffer(f"{let.name}_result", let.value.dtype, (Dim.of(1),), Role.SCRATCH), (Dim.of(0),)
        kernel = replace(kernel, buffers=(*kernel.buffers, scratch))
        rest = drop_unused((*before, replace(let, value=Load(scratch.name, cell, scratch.dtype)), *after))
        after = (Store((scratch.name,), cell, (Var(let.name, scratch.dtype),)),)
    two = in_two((*before, let, *after), (), block, lanes)
    first = replace(two.block, axis=Axis.THREADS, body=two.first)
    launches = tuple(Launch(widen(expand_folds(body, lanes))) for body in ((first,), two.second))
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches), rest
