"""The strategy full: a fold of many values as partial states of fixed blocks, which are then merged in order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.primitives import Statements
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, strides_of
from noyau.ir.walk import fold_of, folds_in

BLOCK = 1 << 16  # values of a block: fixed, so that bits do not depend on threads


def is_full(body: Statements) -> bool:
    """Whether a block has an unordered fold at the root, and is too much work for a single thread."""
    has_blocks = not all(folds.is_ordered(fold_of(let)) for let in folds.lets_of_folds(body))
    return has_blocks and not all(primitives.is_small(s, BLOCK) for s in body)


def rows_before(kernel: ir.Kernel) -> tuple[ir.Kernel, list[Statements]] | None:
    """Split the first fold at the root, if its values need folds of their own, into two blocks: one stores the values
    in scratch, and is scheduled as rows are; one folds them. None where its values need no folds."""
    body = kernel.launches[0].body
    let = folds.first_fold(body)
    fold, at = fold_of(let), body.index(let)
    if not folds_in(fold.body):
        return None
    shape = tuple(extent for _, extent in fold.loops)
    scratch = ir.Buffer(f"{let.name}.values", fold.value.dtype, shape, ir.Role.SCRATCH)
    cell = (sum((Dim.of(var) * k for (var, _), k in zip(fold.loops, strides_of(shape), strict=True)), Dim.of(0)),)
    loops = [ir.Loop(variable, extent, ir.Axis.SERIAL, ()) for variable, extent in fold.loops]
    rows = primitives.nest(loops, (*fold.body, ir.Store((scratch.name,), cell, (fold.value,))))
    folded = replace(fold, body=(), value=ir.Load(scratch.name, cell, scratch.dtype))
    light = tuple(s for s in body[:at] if primitives.is_light(s) or folds.asks(s))
    blocks = [primitives.drop_unused((*light, *rows)), (*body[:at], replace(let, value=folded), *body[at + 1 :])]
    return replace(kernel, buffers=(*kernel.buffers, scratch)), blocks


def full(kernel: ir.Kernel, *, lanes: int = 32, block: int = BLOCK, rests: bool = True) -> tuple[ir.Kernel, Statements]:
    """Schedule the first fold at the root over blocks on threads, then merge their states in order. A few scalars after
    it run at once; other statements are returned, and find the result in scratch. `rests`: as in `expand_folds`."""
    kernel = primitives.with_bodies(kernel, primitives.coalesce)
    let = folds.first_fold(kernel.launches[0].body)
    kernel, before, after, rest = primitives.around_fold(kernel, kernel.launches[0].body, let)
    two = in_two((*before, let, *after), (), block, lanes, rests=rests)
    first = replace(two.block, axis=ir.Axis.THREADS, body=two.first)
    bodies = (folds.expand_folds(body, lanes, rests=rests) for body in ((first,), two.second))
    launches = tuple(ir.Launch(primitives.widen(body)) for body in bodies)
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches), rest


@dataclass(frozen=True, slots=True)
class Two:
    """A block in two: `first` leaves a state for each round of `block` in `scratch`; `second` merges them in order."""

    block: ir.Loop
    first: Statements
    second: Statements
    scratch: tuple[ir.Buffer, ...]


def in_two(
    body: Statements, around: Sequence[ir.Loop], size: int, lanes: int, *, every: bool = False, rests: bool = True
) -> Two:
    """Split the first fold of a block within the loops `around` into blocks of about `size` values; with `every`, all
    folds, which are alike (`folds.are_alike`), in one pass, where sums of float32 stay in float32.

    Scratch is in the order of the loops, blocks outside the innermost. `rests`: see `expand_folds`."""
    let, zero = folds.first_fold(body), Dim.of(0)
    at = body.index(let)
    before, lets, after = folds.part_folds(body) if every else (body[:at], (let,), body[at + 1 :])
    variable, scratch = f"#block_of_{lets[0].name}", list[ir.Buffer]()
    passes, stores, merges, results = (list[Statements](), list[ir.Store](), list[Statements](), list[ir.Let]())
    for let in lets:
        blocks, length, fold = folds.in_blocks(fold_of(let), size, variable)
        block = ir.Loop(variable, blocks, ir.Axis.SERIAL, ())
        loops, state = folds.total_of(fold, let.name, lanes, wide=not every, rests=rests)
        axes = [*around[:-1], block, *around[-1:]]
        shape = tuple(loop.extent for loop in axes)
        where = sum((Dim.of(loop.var) * step for loop, step in zip(axes, strides_of(shape), strict=True)), zero)
        total, saved = folds.state_of(fold_of(let), let.name, wide=True), state.beside("of_block")
        passes.append(loops)
        stores.append(saved.store(where, state.load(zero), merge=False))
        merge = replace(block, body=(total.store(zero, saved.load(where), merge=True),))
        merges.append((*total.memory(1), total.empty(zero), merge))
        results.append(ir.Let(let.name, total.result(zero, fold.dtype), let.origin))
        scratch += saved.buffers(shape)
    first = (*before, *length, *folds.in_one_pass(passes), *stores)
    second = (*before, *folds.in_one_pass(merges), *results, *after)
    return Two(block, primitives.drop_unused(first), primitives.drop_unused(second), tuple(scratch))
