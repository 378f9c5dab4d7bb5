"""Kernels of several launches: what one leaves in scratch, the next one reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from noyau.ir.dims import Dim, product, strides_of
from noyau.ir.loops import Axis, Buffer, Fold, Kernel, Launch, Let, Loop, Role, Statement
from noyau.schedules.folds import State, in_blocks, is_ordered, state_of, total_of
from noyau.schedules.steps import Statements, drop_unused


@dataclass(frozen=True, slots=True)
class Two:
    """A block of statements in two: `first` runs in the empty loop `block` and leaves a state of the fold in `scratch`
    for each round; `second` merges them in order and goes on."""

    block: Loop
    first: Statements
    second: Statements
    scratch: tuple[Buffer, ...]


def in_two(body: Statements, around: Sequence[Loop], size: int, lanes: int, *, wide: bool = True) -> Two:
    """The first fold of a block, `around` which loops stand, in blocks of about `size` values.

    The cells of scratch lie in the order of the loops, the blocks outside the innermost one. `wide` is as in
    `expand_folds`."""
    at = next(k for k, s in enumerate(body) if isinstance(s, Let) and isinstance(s.value, Fold))
    let, before, after = body[at], body[:at], body[at + 1 :]
    assert isinstance(let, Let) and isinstance(let.value, Fold) and not is_ordered(let.value)
    variable = f"#block_of_{let.name}"
    blocks, length, fold = in_blocks(let.value, size, variable)
    block = Loop(variable, blocks, Axis.SERIAL, ())
    loops, left = total_of(fold, let.name, lanes, wide=wide)
    axes = [*around[:-1], block, *around[-1:]]
    shape = tuple(loop.extent for loop in axes)
    scratch = State(left.monoid, tuple(f"{name}_of_block" for name in left.names), left.dtypes)
    where = sum((Dim.of(loop.var) * step for loop, step in zip(axes, strides_of(shape), strict=True)), Dim.of(0))
    first = (*before, *length, *loops, scratch.store(where, left.load(Dim.of(0)), merge=False))
    total, zero = state_of(let.value, let.name, wide=True), Dim.of(0)
    merge = replace(block, body=(total.store(zero, scratch.load(where), merge=True),))
    result = Let(let.name, total.result(zero, fold.dtype), let.origin)
    second = (*before, *total.memory(1), total.empty(zero), merge, result, *after)
    buffers = tuple(Buffer(n, d, shape, Role.SCRATCH) for n, d in zip(scratch.names, scratch.dtypes, strict=True))
    return Two(block, drop_unused(first), drop_unused(second), buffers)


def apart(body: Statements) -> list[Statements]:
    """A block for each loop of a block, with the Lets before it: loops side by side can then all use threads. The block
    itself where anything else stands in it."""
    loops = [s for s in body if isinstance(s, Loop)]
    lets = tuple(s for s in body if is_light(s))
    if len(loops) < 2 or len(loops) + len(lets) != len(body):
        return [body]
    return [drop_unused((*lets, loop)) for loop in loops]


def is_light(statement: Statement) -> bool:
    """Whether it may stand in several launches."""
    return isinstance(statement, Let) and not isinstance(statement.value, Fold)


def each(kernel: Kernel, bodies: Sequence[Statements], strategy: Callable[[Kernel], Kernel]) -> Kernel:
    """Blocks as launches, one after the other, each by the strategy that it takes as a kernel of its own."""
    launches: list[Launch] = []
    for body in bodies:
        kernel = strategy(replace(kernel, launches=(Launch(body),)))
        launches += kernel.launches
    return replace(kernel, launches=tuple(launches))


def is_small(statement: Statement, most: int) -> bool:
    """Whether a loop or a fold surely runs `most` times or less; any other statement is small."""
    match statement:
        case Loop(_, extent, _, body):
            count = extent.constant
            inner = [s for s in body if isinstance(s, Loop)]
            return count is not None and all(is_small(s, most // max(count, 1)) for s in inner) and count <= most
        case Let(_, Fold(_, loops)):
            count = product(extent for _, extent in loops).constant
            return count is not None and count <= most
        case _:
            return True
