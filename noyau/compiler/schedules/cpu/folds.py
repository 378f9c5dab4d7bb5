"""Folds into loops: a language without a word for them gets lanes of partial states, merged in a fixed order.

So the result never depends on the number of threads, and the loops vectorise without flags that change arithmetic. A
sum of floats goes through float64 from block to block, so that its error does not grow with its length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules.cpu.cache_hints import computes
from noyau.compiler.schedules.primitives import minimum
from noyau.dtypes import DType
from noyau.ir.dims import Dim, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Call,
    Const,
    Expr,
    Fold,
    If,
    Index,
    Let,
    Load,
    Loop,
    MergeLanes,
    Space,
    Statement,
    Store,
    Zero,
)
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import substitute

Statements = tuple[Statement, ...]

BLOCK = 512  # values that lanes take in before they join the total: each lane adds few, as NumPy's pairwise sum does
LONG = 512  # values of a row from which more lanes than FEW take less time than their merge
# gcc 12 unrolls a loop over 16 lanes whole, and vectorises no more what then chooses between values: the max of a row
# takes 12 cycles for 8 values with 16 lanes, and 2 with 32.
FEW, MANY = 16, 32


@dataclass(frozen=True, slots=True)
class State:
    """States of a monoid in memory: one buffer for each part, which hold a state in each of their cells."""

    monoid: str
    names: tuple[str, ...]
    dtypes: tuple[DType, ...]

    def memory(self, cells: int) -> Statements:
        return tuple(
            Alloc(name, dtype, (Dim.of(cells),), Space.REGISTER)
            for name, dtype in zip(self.names, self.dtypes, strict=True)
        )

    def empty(self, at: Dim) -> Store:
        """The state of nothing, in a cell."""
        values = MONOIDS[self.monoid].init(self.dtypes[0])
        return Store(self.names, (at,), tuple(map(Const, values, self.dtypes)))

    def load(self, at: Dim) -> tuple[Expr, ...]:
        return tuple(Load(name, (at,), dtype) for name, dtype in zip(self.names, self.dtypes, strict=True))

    def store(self, at: Dim, values: Sequence[Expr], *, merge: bool) -> Store:
        """A state into a cell; or merged, after what is there."""
        cast = tuple(_cast(value, dtype) for value, dtype in zip(values, self.dtypes, strict=True))
        return Store(self.names, (at,), cast, self.monoid if merge else None)

    def result(self, at: Dim, dtype: DType) -> Expr:
        finished: Expr = MONOIDS[self.monoid].finish(Symbolic(), self.load(at))
        return _cast(finished, dtype)


def _cast(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype is dtype else Call("cast", (value,), dtype)


def state_of(fold: Fold, name: str, *, wide: bool) -> State:
    """The state of a fold whose result is called `name`; `wide`: float64 for a sum of float32."""
    dtypes = MONOIDS[fold.monoid].states(fold.value.dtype)
    if wide and (fold.monoid, dtypes) == ("sum", (DType.F32,)):
        dtypes = (DType.F64,)
    return State(fold.monoid, tuple(f"{name}.{part}" for part in MONOIDS[fold.monoid].parts or (fold.monoid,)), dtypes)


def expand_folds(statements: Statements, lanes: int, *, wide: bool = True, rests: bool = True) -> Statements:
    """Every Fold as loops over `lanes` partial states, a tail, and a merge by halves. Not `wide`: sums of float32 that
    have one lane stay in float32. Not `rests`: what is left of whole blocks goes through the loop that these go
    through, one text with the same result, and so does what is left of whole lanes; but not this where values are
    chosen or much is computed, which takes LLVM 1.2 to 1.8 times as long where it does not know how many there are."""
    made: list[Statement] = []
    for statement in statements:
        match statement:
            case Let(name, Fold() as fold, origin):
                loops, state = total_of(fold, name, lanes, wide=wide, rests=rests)
                made += [*loops, Let(name, state.result(Dim.of(0), fold.dtype), origin)]
            case Loop() | If():
                made.append(replace(statement, body=expand_folds(statement.body, lanes, wide=wide, rests=rests)))
            case _:
                made.append(statement)
    return tuple(made)


def total_of(fold: Fold, name: str, lanes: int, *, wide: bool = True, rests: bool = True) -> tuple[Statements, State]:
    """The loops of a fold, and the state that they leave in cell 0; with 0 lanes as many as suit its length. `wide` and
    `rests` are as in `expand_folds`."""
    lanes = lanes or (MANY if MONOIDS[fold.monoid].wants_lanes or _known(fold.loops[-1][1]) >= LONG else FEW)
    lanes = 1 if is_ordered(fold) else min(lanes, _known(fold.loops[-1][1]) or lanes)
    apart = rests or _is_short(fold) or MONOIDS[fold.monoid].wants_lanes or computes(fold.body)
    if lanes == 1 or _is_short(fold):
        state = state_of(fold, name, wide=wide and lanes == 1)
        return lanes_of(fold, state, lanes, name, rests=apart), state
    total, part, zero = state_of(fold, name, wide=True), state_of(fold, f"{name}.lanes", wide=False), Dim.of(0)
    extent, step, block = fold.loops[0][1], _step(fold, BLOCK), f"#block_{name}"

    def piece(placed: Fold) -> Statements:
        loops = lanes_of(placed, part, lanes, name, rests=apart)
        return (*loops, total.store(zero, part.load(zero), merge=True))

    if rests:
        whole = piece(_moved(fold, Dim.of(block) * step, Dim.of(step)))
        loops: Statements = (Loop(block, extent // step, Axis.SERIAL, whole),)
        left = extent % step
        loops += piece(_moved(fold, extent // step * step, left)) if left != zero else ()
    else:
        blocks, length, placed = in_blocks(fold, BLOCK, block)
        loops = (Loop(block, blocks, Axis.SERIAL, (*length, *piece(placed))),)
    return (*total.memory(1), total.empty(zero), *loops), total


def is_ordered(fold: Fold) -> bool:
    """Whether its values are taken in one by one, so that it has no partial states."""
    return MONOIDS[fold.monoid].ordered


def _known(extent: Dim) -> int:
    """The largest power of two not above an extent that is known now; 0 where it is not."""
    known = extent.constant
    return 0 if not known else 1 << (known.bit_length() - 1)


def _is_short(fold: Fold) -> bool:
    """Whether one block takes in all of a fold, or blocks would change nothing."""
    count = product(extent for _, extent in fold.loops).constant
    return MONOIDS[fold.monoid].exact or not fold.value.dtype.is_float or (count is not None and count <= BLOCK)


def in_blocks(fold: Fold, size: int, variable: str) -> tuple[Dim, Statements, Fold]:
    """A fold cut in blocks of about `size` values: their number, the length of the block `variable` where it has to be
    computed, and the fold over that block."""
    extent, step = fold.loops[0][1], _step(fold, size)
    begin = Dim.of(variable) * step
    length, known = f"{variable}_length", extent % step == Dim.of(0)
    before = () if known else (Let(length, Index(minimum(Dim.of(step), extent - begin))),)
    return (extent + (step - 1)) // step, before, _moved(fold, begin, Dim.of(step) if known else Dim.of(length))


def _step(fold: Fold, size: int) -> int:
    """The rounds of the outermost loop that take in about `size` values."""
    inner = product(count for _, count in fold.loops[1:])
    return size if len(fold.loops) == 1 else max(1, size // (inner.constant or 64))


def _moved(fold: Fold, start: Dim, count: Dim) -> Fold:
    """The fold over `count` rounds of its outermost loop, from `start` on."""
    outer, placed = fold.loops[0][0], Let("", replace(fold, at=position(fold)))
    (moved,) = substitute((placed,), {outer: Dim.of(outer) + start})
    assert isinstance(moved, Let) and isinstance(moved.value, Fold)
    return replace(moved.value, loops=((outer, count), *moved.value.loops[1:]))


def position(fold: Fold) -> Dim:
    """The position of a value in the fold: where it says, or its flat index over the loops."""
    if fold.at is not None:
        return fold.at
    flat = Dim.of(0)
    for variable, extent in fold.loops:
        flat = flat * extent + Dim.of(variable)
    return flat


def step(fold: Fold, state: State, at: Dim) -> Statements:
    """The body of a fold, and the merge of its value into the state in a cell."""
    return (*expand_folds(fold.body, 1), taken(fold, state, at))


def taken(fold: Fold, state: State, at: Dim) -> Store:
    """The merge of the value of a fold into the state in a cell."""
    lifted = MONOIDS[fold.monoid].lift(Symbolic(), fold.value, Index(position(fold)))
    return state.store(at, lifted, merge=True)


def lanes_of(fold: Fold, state: State, lanes: int, name: str, *, rests: bool) -> Statements:
    """The loops of a fold over lanes, up to the merged state in cell 0; `rests` is as in `expand_folds`."""
    lane, (variable, extent) = f"#lane_{name}", fold.loops[-1]
    steps = step(fold, state, Dim.of(lane) if lanes > 1 else Dim.of(0))
    loops: list[Statement] = []
    if lanes == 1:
        loops = [Loop(variable, extent, Axis.SERIAL, steps)]
    else:
        whole, tail, begin = extent // lanes, extent % lanes, Dim.of(variable) * lanes
        strip = substitute(steps, {variable: begin + Dim.of(lane)})
        if tail == Dim.of(0) or rests:
            loops.append(Loop(variable, whole, Axis.SERIAL, (Loop(lane, Dim.of(lanes), Axis.LANES, strip),)))
        else:
            length = Let(f"{variable}_length", Index(minimum(Dim.of(lanes), extent - begin)))
            body = (length, Loop(lane, Dim.of(length.name), Axis.LANES, strip))
            loops.append(Loop(variable, (extent + (lanes - 1)) // lanes, Axis.SERIAL, body))
        if tail != Dim.of(0) and rests:
            rest = substitute(steps, {variable: whole * lanes + Dim.of(lane)})
            loops.append(Loop(lane, tail, Axis.LANES, rest))
    for outer, count in reversed(fold.loops[:-1]):
        loops = [Loop(outer, count, Axis.SERIAL, tuple(loops))]
    return (*state.memory(lanes), over(lane, lanes, state.empty(Dim.of(lane))), *loops, *halves(state, lanes, lane))


def over(lane: str, lanes: int, store: Store) -> Statement:
    """A Store of constants for each lane."""
    if lanes > 1:
        return filled(lane, Dim.of(lanes), store)
    (alone,) = substitute((store,), {lane: Dim.of(0)})
    return alone


def filled(variable: str, extent: Dim, store: Store) -> Statement:
    """A Store of constants into each cell of memory."""
    match store:
        case Store((name,), _, (Const(value, dtype),), None) if value == 0 and math.copysign(1, value) == 1:
            return Zero(name, dtype, extent, variable)
        case _:
            return Loop(variable, extent, Axis.LANES, (store,))


def halves(state: State, lanes: int, lane: str) -> Statements:
    """The lanes merged into lane 0."""
    return (MergeLanes(state.monoid, state.names, state.dtypes, lanes, lane),) if lanes > 1 else ()
