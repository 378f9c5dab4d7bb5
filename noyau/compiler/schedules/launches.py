"""Kernels of several launches: what one leaves in scratch, the next one reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules.cpu.folds import (
    Parted,
    State,
    first_fold,
    in_blocks,
    in_one_pass,
    is_ordered,
    parted,
    state_of,
    total_of,
)
from noyau.compiler.schedules.primitives import Statements, drop_unused, loads_of
from noyau.ir.dims import Dim, product, strides_of
from noyau.ir.loops import Axis, Buffer, Fold, Kernel, Launch, Let, Loop, Role, Statement, Store
from noyau.ir.walk import every_statement


@dataclass(frozen=True, slots=True)
class Two:
    """A block of statements in two: `first` runs in the empty loop `block` and leaves a state of the fold in `scratch`
    for each round; `second` merges them in order and goes on."""

    block: Loop
    first: Statements
    second: Statements
    scratch: tuple[Buffer, ...]


def in_two(
    body: Statements,
    around: Sequence[Loop],
    size: int,
    lanes: int,
    *,
    wide: bool = True,
    every: bool = False,
    rests: bool = True,
) -> Two:
    """The first fold of a block, `around` which loops stand, in blocks of about `size` values; with `every`, all of
    them, which are alike (`together.are_alike`), in one pass.

    The cells of scratch lie in the order of the loops, the blocks outside the innermost one. `wide` and
    `rests` are as in `expand_folds`."""
    found = parted(body) if every else _first(body)
    variable = f"#block_of_{found.lets[0].name}"
    halves = [_half(let, around, size, lanes, variable, wide=wide, rests=rests) for let in found.lets]
    length = halves[0].length
    first = (*found.before, *length, *in_one_pass([half.loops for half in halves]), *(half.left for half in halves))
    merged = in_one_pass([half.merge for half in halves])
    second = (*found.before, *merged, *(half.result for half in halves), *found.after)
    scratch = tuple(buffer for half in halves for buffer in half.scratch)
    return Two(halves[0].block, drop_unused(first), drop_unused(second), scratch)


def _first(body: Statements) -> Parted:
    """A block at its first fold."""
    let = first_fold(body)
    at = body.index(let)
    return Parted(body[:at], (let,), body[at + 1 :])


@dataclass(frozen=True, slots=True)
class _Half:
    """One fold in two: `loops` over a block of `length`, what they leave in scratch, and the merge of that."""

    block: Loop
    length: Statements
    loops: Statements
    left: Statement
    merge: Statements
    result: Statement
    scratch: tuple[Buffer, ...]


def _half(let: Let, around: Sequence[Loop], size: int, lanes: int, variable: str, *, wide: bool, rests: bool) -> _Half:
    assert isinstance(let.value, Fold) and not is_ordered(let.value)
    blocks, length, fold = in_blocks(let.value, size, variable)
    block = Loop(variable, blocks, Axis.SERIAL, ())
    loops, left = total_of(fold, let.name, lanes, wide=wide, rests=rests)
    axes = [*around[:-1], block, *around[-1:]]
    shape = tuple(loop.extent for loop in axes)
    scratch = State(left.monoid, tuple(f"{name}.of_block" for name in left.names), left.dtypes)
    where = sum((Dim.of(loop.var) * step for loop, step in zip(axes, strides_of(shape), strict=True)), Dim.of(0))
    total, zero = state_of(let.value, let.name, wide=True), Dim.of(0)
    merge = replace(block, body=(total.store(zero, scratch.load(where), merge=True),))
    return _Half(
        block,
        length,
        loops,
        scratch.store(where, left.load(zero), merge=False),
        (*total.memory(1), total.empty(zero), merge),
        Let(let.name, total.result(zero, fold.dtype), let.origin),
        tuple(Buffer(n, d, shape, Role.SCRATCH) for n, d in zip(scratch.names, scratch.dtypes, strict=True)),
    )


def apart(body: Statements) -> list[Statements]:
    """A block for each loop of a block, and one for what is stored beside them, with the Lets before it: loops side by
    side can then all use threads. The block itself where anything else stands in it."""
    blocks: list[Statements] = [(s,) for s in body if isinstance(s, Loop)]
    stores = tuple(s for s in body if isinstance(s, Store) and s.merge is None)
    lets = tuple(s for s in body if is_light(s))
    inner = [s for block in blocks for s in every_statement(block)]
    used = {name for s in inner if isinstance(s, Store) for name in s.buffers} | {
        load.buffer for load in loads_of(body)
    }
    if len(blocks) + len(stores) + len(lets) != len(body) or any(used & set(store.buffers) for store in stores):
        return [body]
    blocks += [stores] if stores else []
    return [body] if len(blocks) < 2 else [drop_unused((*lets, *block)) for block in blocks]


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
