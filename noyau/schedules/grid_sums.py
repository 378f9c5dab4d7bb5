"""Reductions of whole arrays, and over leading axes, on a GPU: states of fixed chunks in one launch, their merge in
another one; so bits never depend on the device."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Buffer, Fold, Kernel, Launch, Let, Load, Loop, Role, Store, Var
from noyau.schedules.grid_tiles import Tile, cut, on_grid, partial
from noyau.schedules.launches import is_light
from noyau.schedules.steps import Statements, chain, coalesce, drop_unused

CHUNK = 1 << 15  # values of a whole array that one program takes in
FLAT = Tile("BLOCK", "is", 8192, 8)
DEEP = 1024  # rows that one program takes in
ACROSS = Tile("COLUMNS", "fits", 128)
DOWN = Tile("ROWS", "shares", 8192, 4)


def full(kernel: Kernel, body: Statements) -> tuple[Kernel, Statements]:
    """The first fold at the root in two launches. What follows is done at once where it is a few scalars; else it is
    given back, to be scheduled, and finds the result in scratch."""
    body = coalesce(body)
    at = next(k for k, s in enumerate(body) if isinstance(s, Let) and isinstance(s.value, Fold))
    let = body[at]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    before = tuple(s for s in body[:at] if not isinstance(s, Loop | Store))
    after = (*(s for s in body[:at] if isinstance(s, Loop | Store)), *body[at + 1 :])
    rest: Statements = ()
    if not all(isinstance(s, Store) or is_light(s) for s in after):
        scratch, cell = Buffer(f"{let.name}_result", let.value.dtype, (Dim.of(1),), Role.SCRATCH), (Dim.of(0),)
        kernel = replace(kernel, buffers=(*kernel.buffers, scratch))
        rest = drop_unused((*before, replace(let, value=Load(scratch.name, cell, scratch.dtype)), *after))
        after = (Store((scratch.name,), cell, (Var(let.name, scratch.dtype),)),)
    step = CHUNK if len(let.value.loops) == 1 else 1
    chunks, first, second, buffers = partial(let.value, let.name, (), step, FLAT)
    one = Launch(on_grid([chunks], drop_unused((*before, *first))))
    other = Launch(drop_unused((*before, *second, *after)))
    return replace(kernel, buffers=(*kernel.buffers, *buffers), launches=(one, other)), rest


def columns(kernel: Kernel, body: Statements) -> Kernel:
    """A fold over leading axes: tiles of neighbouring columns, chunks of rows."""
    loops, inner = chain(body)
    at = next(k for k, s in enumerate(inner) if isinstance(s, Let) and isinstance(s.value, Fold))
    let, last = inner[at], loops[-1]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    chunks, first, second, buffers = partial(let.value, let.name, loops, DEEP, DOWN)
    before, after = inner[:at], inner[at + 1 :]
    launches = []
    for around, part in (
        ([*loops[:-1], chunks], drop_unused((*before, *first))),
        (loops[:-1], drop_unused((*before, *second, *after))),
    ):
        launches.append(Launch(on_grid(around, (cut(replace(last, body=part), ACROSS, Axis.THREADS),))))
    return replace(kernel, buffers=(*kernel.buffers, *buffers), launches=tuple(launches))
