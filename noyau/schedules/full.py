"""Strategy full: a reduction of a whole array in two launches: partial states of fixed blocks, then their merge."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim, strides_of
from noyau.ir.loops import Axis, Buffer, Fold, Kernel, Launch, Let, Load, Loop, Role, Store, Var
from noyau.schedules.folds import expand_folds
from noyau.schedules.launches import in_two, is_light
from noyau.schedules.rows import folds_of
from noyau.schedules.steps import Statements, coalesce, drop_unused, nested, widen, with_bodies
from noyau.schedules.together import asks, first_fold

BLOCK = 1 << 16  # values a block: fixed, so that bits do not depend on threads


def rows_before(kernel: Kernel) -> tuple[Kernel, list[Statements]] | None:
    """The first fold at the root, whose values each take folds of their own, in two blocks: one that leaves the values
    in scratch, so that it is scheduled as rows are, and one that folds those. None where its values take none."""
    (launch,) = kernel.launches
    body = launch.body
    at = body.index(first_fold(body))
    let = body[at]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    fold = let.value
    if not folds_of(fold.body):
        return None
    shape = tuple(extent for _, extent in fold.loops)
    scratch = Buffer(f"{let.name}.values", fold.value.dtype, shape, Role.SCRATCH)
    cell = (sum((Dim.of(var) * k for (var, _), k in zip(fold.loops, strides_of(shape), strict=True)), Dim.of(0)),)
    loops = [Loop(variable, extent, Axis.SERIAL, ()) for variable, extent in fold.loops]
    rows = nested(loops, (*fold.body, Store((scratch.name,), cell, (fold.value,))))
    folded = replace(fold, body=(), value=Load(scratch.name, cell, scratch.dtype))
    light = tuple(s for s in body[:at] if is_light(s) or asks(s))
    blocks = [drop_unused((*light, *rows)), (*body[:at], replace(let, value=folded), *body[at + 1 :])]
    return replace(kernel, buffers=(*kernel.buffers, scratch)), blocks


def full(kernel: Kernel, *, lanes: int = 32, block: int = BLOCK, rests: bool = True) -> tuple[Kernel, Statements]:
    """The first fold at the root, over blocks on threads, then their states merged in order. What follows is done at
    once where it is a few scalars; else it is given back, to be scheduled, and finds the result in scratch. `rests` is
    as in `expand_folds`."""
    kernel = with_bodies(kernel, coalesce)
    (launch,) = kernel.launches
    at = launch.body.index(first_fold(launch.body))
    let = launch.body[at]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    before = tuple(s for s in launch.body[:at] if not isinstance(s, Loop | Store))
    after = (*(s for s in launch.body[:at] if isinstance(s, Loop | Store)), *launch.body[at + 1 :])
    rest: Statements = ()
    if not all(isinstance(s, Store) or is_light(s) for s in after):
        scratch, cell = Buffer(f"{let.name}.result", let.value.dtype, (Dim.of(1),), Role.SCRATCH), (Dim.of(0),)
        kernel = replace(kernel, buffers=(*kernel.buffers, scratch))
        rest = drop_unused((*before, replace(let, value=Load(scratch.name, cell, scratch.dtype)), *after))
        after = (Store((scratch.name,), cell, (Var(let.name, scratch.dtype),)),)
    two = in_two((*before, let, *after), (), block, lanes, rests=rests)
    first = replace(two.block, axis=Axis.THREADS, body=two.first)
    launches = tuple(Launch(widen(expand_folds(body, lanes, rests=rests))) for body in ((first,), two.second))
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches), rest
