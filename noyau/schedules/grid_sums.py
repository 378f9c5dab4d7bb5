"""Reductions of whole arrays, and over leading axes, on a GPU: states of fixed chunks in one launch, their merge in
another one; so bits never depend on the device."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Buffer, Fold, Kernel, Launch, Let, Load, Loop, Role, Store, Var
from noyau.schedules.grid_tiles import Tile, chunks_of, cut, on_grid, partial, renamed
from noyau.schedules.launches import is_light
from noyau.schedules.steps import Statements, chain, coalesce, drop_unused
from noyau.schedules.together import in_one_pass, parted

CHUNK = 1 << 15  # values of a whole array that one program takes in
FLAT = Tile("BLOCK", "is", 8192, 8), Tile("BLOCK", "fits", 4096, 8)
DEEP = 1024  # rows that one program takes in
ACROSS = Tile("COLUMNS", "fits", 128)
DOWN = Tile("ROWS", "shares", 8192, 4), Tile("ROWS", "fits", 64, 4)


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
        scratch, cell = Buffer(f"{let.name}.result", let.value.dtype, (Dim.of(1),), Role.SCRATCH), (Dim.of(0),)
        kernel = replace(kernel, buffers=(*kernel.buffers, scratch))
        rest = drop_unused((*before, replace(let, value=Load(scratch.name, cell, scratch.dtype)), *after))
        after = (Store((scratch.name,), cell, (Var(let.name, scratch.dtype),)),)
    step = CHUNK if len(let.value.loops) == 1 else 1
    chunks = chunks_of(let.value, let.name, step)
    made = partial(let.value, let.name, chunks, (), step, FLAT)
    one = Launch(on_grid([chunks], drop_unused((*before, *made.first.statements))))
    other = Launch(drop_unused((*before, *made.second.statements, *after)))
    return replace(kernel, buffers=(*kernel.buffers, *made.scratch), launches=(one, other)), rest


def columns(kernel: Kernel, body: Statements) -> Kernel:
    """Folds over leading axes, all in one pass: tiles of neighbouring columns, chunks of rows."""
    loops, inner = chain(body)
    found, last = parted(inner), loops[-1]
    folds = [let.value for let in found.lets if isinstance(let.value, Fold)]
    chunks = chunks_of(folds[0], found.lets[0].name, DEEP)
    parts = [
        partial(renamed(fold, folds[0]), let.name, chunks, loops, DEEP, DOWN)
        for let, fold in zip(found.lets, folds, strict=True)
    ]
    scratch = tuple(buffer for part in parts for buffer in part.scratch)
    launches = []
    for around, taken, after in (
        ([*loops[:-1], chunks], [part.first for part in parts], ()),
        (loops[:-1], [part.second for part in parts], found.after),
    ):
        passed = in_one_pass([(*one.before, one.passed) for one in taken])
        part = drop_unused((*found.before, *passed, *(s for one in taken for s in one.after), *after))
        launches.append(Launch(on_grid(around, (cut(replace(last, body=part), ACROSS, Axis.THREADS),))))
    return replace(kernel, buffers=(*kernel.buffers, *scratch), launches=tuple(launches))
