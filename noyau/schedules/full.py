"""Strategy full: one result of a whole array, in two launches: partial states of fixed blocks, then their merge in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import (
    Axis,
    Buffer,
    Expr,
    Fold,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Role,
    Statement,
    Store,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import substitute
from noyau.schedules.folds import expand_folds, lanes_of, parts, position, result_of, start
from noyau.schedules.steps import Statements, coalesce, minimum, widen, with_bodies

BLOCK = 1 << 16  # values a block: fixed, so that bits do not depend on threads


def full(kernel: Kernel, *, lanes: int = 32) -> Kernel:
    """The one fold at the root over blocks on threads, then its states merged, then what follows."""
    kernel = with_bodies(kernel, coalesce)
    (launch,) = kernel.launches
    at = next(k for k, s in enumerate(launch.body) if isinstance(s, Let) and isinstance(s.value, Fold))
    let, before, after = launch.body[at], launch.body[:at], launch.body[at + 1 :]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    fold, extent = let.value, let.value.loops[-1][1]
    dtypes, blocks = MONOIDS[fold.monoid].states(fold.value.dtype), (extent + (BLOCK - 1)) // BLOCK
    names = [f"{let.name}_of_block_{part}" for part in parts(fold)]
    scratch = [Buffer(name, dtype, (blocks,), Role.SCRATCH) for name, dtype in zip(names, dtypes, strict=True)]
    first = Launch(widen((_blocks(before, let.name, fold, names, blocks, lanes),)))
    second = Launch(widen((*before, *_merged(let, fold, names, blocks), *expand_folds(after, lanes))))
    return replace(kernel, buffers=(*kernel.buffers, *scratch), launches=(first, second))


def _blocks(before: Statements, name: str, fold: Fold, names: Sequence[str], blocks: Dim, lanes: int) -> Loop:
    """The launch over blocks: each leaves its state in scratch."""
    (variable, extent), block = fold.loops[-1], "#block"
    begin = Dim.of(block) * BLOCK
    fold = replace(fold, at=position(fold))
    inside = substitute((Let("#fold", fold),), {variable: Dim.of(variable) + begin})[0]
    assert isinstance(inside, Let) and isinstance(inside.value, Fold)
    shorter = replace(inside.value, loops=((variable, minimum(Dim.of(BLOCK), extent - begin)),))
    states = [f"{name}_{part}" for part in parts(fold)]
    body: Statements = (*before, *lanes_of(shorter, states, lanes, name))
    dtypes = MONOIDS[fold.monoid].states(fold.value.dtype)
    values: tuple[Expr, ...] = tuple(Load(s, (Dim.of(0),), d) for s, d in zip(states, dtypes, strict=True))
    return Loop(block, blocks, Axis.THREADS, (*body, Store(tuple(names), (Dim.of(block),), values)))


def _merged(let: Let, fold: Fold, names: Sequence[str], blocks: Dim) -> list[Statement]:
    """The states of all blocks merged in order, and the result."""
    states = [f"{let.name}_{part}" for part in parts(fold)]
    dtypes = MONOIDS[fold.monoid].states(fold.value.dtype)
    values: tuple[Expr, ...] = tuple(Load(n, (Dim.of("#block"),), d) for n, d in zip(names, dtypes, strict=True))
    merge = Store(tuple(states), (Dim.of(0),), values, fold.monoid)
    loop = Loop("#block", blocks, Axis.SERIAL, (merge,))
    return [*start(fold, states, 1, "#one"), loop, Let(let.name, result_of(fold, states, Dim.of(0)), let.origin)]

