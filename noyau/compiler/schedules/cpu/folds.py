"""Folds into loops: a language without a construct for them gets lanes of partial states, merged in a fixed order.

So the result never depends on the number of threads, and the loops vectorise without flags that change arithmetic. A
sum of floats accumulates in float64 from block to block. Folds over the same loops share one pass; a fold that several
passes over a row need, such as the norm of pooled values, gets a launch before the row's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.primitives import Statements, change_each, drop_unused, is_costly, minimum, variables_of
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, DimLike, Shape, product
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import all_dims, fold_of, folds_in, is_fold, loads_of, rewrite
from noyau.text import free_name

BLOCK = 512  # values of lanes before a merge into the total: each lane adds few, as in NumPy's pairwise sum
LONG = 512  # values of a row from which on MANY lanes save more time than their merge takes
# gcc 12 fully unrolls a loop over 16 lanes, and then does not vectorise selects between values: the max of a row
# takes 12 cycles for 8 values with 16 lanes, and 2 with 32.
FEW, MANY = 16, 32


@dataclass(frozen=True, slots=True)
class State:
    """States of a monoid in memory: one buffer for each part; each cell holds a state."""

    monoid: str
    names: tuple[str, ...]
    dtypes: tuple[DType, ...]

    def memory(self, cells: DimLike, space: ir.Space = ir.Space.REGISTER) -> Statements:
        return tuple(ir.Alloc(n, d, (Dim.of(cells),), space) for n, d in zip(self.names, self.dtypes, strict=True))

    def buffers(self, shape: Shape) -> tuple[ir.Buffer, ...]:
        """Scratch for a state in each of its cells."""
        return tuple(ir.Buffer(n, d, shape, ir.Role.SCRATCH) for n, d in zip(self.names, self.dtypes, strict=True))

    def beside(self, suffix: str) -> State:
        """Another state of the same kind, under other names."""
        return replace(self, names=tuple(f"{name}.{suffix}" for name in self.names))

    def empty(self, at: Dim) -> ir.Store:
        """Store the monoid's empty state in a cell."""
        return ir.Store(self.names, (at,), tuple(map(ir.Const, MONOIDS[self.monoid].init(self.dtypes[0]), self.dtypes)))

    def load(self, at: Dim) -> tuple[ir.Expr, ...]:
        return tuple(ir.Load(name, (at,), dtype) for name, dtype in zip(self.names, self.dtypes, strict=True))

    def store(self, at: Dim, values: Sequence[ir.Expr], *, merge: bool) -> ir.Store:
        """Store a state in a cell, or merge it after the state there."""
        return ir.Store(self.names, (at,), self.cast(values), self.monoid if merge else None)

    def cast(self, values: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        return tuple(_cast(value, dtype) for value, dtype in zip(values, self.dtypes, strict=True))

    def result(self, at: Dim, dtype: DType) -> ir.Expr:
        finished: ir.Expr = MONOIDS[self.monoid].finish(Symbolic(), self.load(at))
        return _cast(finished, dtype)


def _cast(value: ir.Expr, dtype: DType) -> ir.Expr:
    return value if value.dtype is dtype else ir.Call("cast", (value,), dtype)


def state_of(fold: ir.Fold, name: str, *, wide: bool) -> State:
    """The state of a fold whose result is called `name`; `wide`: float64 for a sum of float32."""
    dtypes = MONOIDS[fold.monoid].states(fold.value.dtype)
    if wide and (fold.monoid, dtypes) == ("sum", (DType.F32,)):
        dtypes = (DType.F64,)
    return State(fold.monoid, tuple(f"{name}.{part}" for part in MONOIDS[fold.monoid].parts or (fold.monoid,)), dtypes)


def expand_folds(statements: Statements, lanes: int, *, wide: bool = True, rests: bool = True) -> Statements:
    """Every Fold as loops over `lanes` partial states, a tail, and a merge by halves. Not `wide`: sums of float32 with
    one lane stay in float32. Not `rests`: the remainder of whole blocks runs through the loop of the blocks, one text
    with the same result, and so does the remainder of whole lanes, except where values are selected or much is
    computed: there LLVM's code for an unknown number of lanes takes 1.2 to 1.8 times as long."""

    def change(statement: ir.Statement) -> Statements | None:
        if not isinstance(statement, ir.Let) or not isinstance(fold := statement.value, ir.Fold):
            return None
        loops, state = total_of(fold, statement.name, lanes, wide=wide, rests=rests)
        return (*loops, replace(statement, value=state.result(Dim.of(0), fold.dtype)))

    return change_each(statements, change)


def total_of(fold: ir.Fold, name: str, lanes: int, *, wide: bool, rests: bool = True) -> tuple[Statements, State]:
    """The loops of a fold, and their state in cell 0; 0 lanes: as many as suit its length. `rests`: `expand_folds`."""
    lanes = lanes or (MANY if MONOIDS[fold.monoid].wants_lanes or _power_below(fold.loops[-1][1]) >= LONG else FEW)
    lanes = 1 if is_ordered(fold) else min(lanes, _power_below(fold.loops[-1][1]) or lanes)
    apart = rests or _is_short(fold) or MONOIDS[fold.monoid].wants_lanes or is_costly(fold.body)
    if lanes == 1 or _is_short(fold):
        state = state_of(fold, name, wide=wide and lanes == 1)
        return lanes_of(fold, state, lanes, name, rests=apart), state
    total, part, zero = state_of(fold, name, wide=True), state_of(fold, f"{name}.lanes", wide=False), Dim.of(0)
    extent, step, block = fold.loops[0][1], _step(fold, BLOCK), f"#block_{name}"

    def piece(placed: ir.Fold) -> Statements:
        return (*lanes_of(placed, part, lanes, name, rests=apart), total.store(zero, part.load(zero), merge=True))

    if rests:
        whole = piece(move_fold(fold, Dim.of(block) * step, Dim.of(step)))
        loops: Statements = (ir.Loop(block, extent // step, ir.Axis.SERIAL, whole),)
        left = extent % step
        loops += piece(move_fold(fold, extent // step * step, left)) if left != zero else ()
    else:
        blocks, length, placed = in_blocks(fold, BLOCK, block)
        loops = (ir.Loop(block, blocks, ir.Axis.SERIAL, (*length, *piece(placed))),)
    return (*total.memory(1), total.empty(zero), *loops), total


def is_ordered(fold: ir.Fold) -> bool:
    """Whether a fold takes values in one by one, so that it has no partial states."""
    return MONOIDS[fold.monoid].ordered


def _power_below(extent: Dim) -> int:
    """The largest power of two not above a constant extent; 0 for any other."""
    known = extent.constant
    return 0 if not known else 1 << (known.bit_length() - 1)


def _is_short(fold: ir.Fold) -> bool:
    """Whether one block takes in all of a fold, or blocks would not change the result."""
    count = product(extent for _, extent in fold.loops).constant
    return MONOIDS[fold.monoid].exact or not fold.value.dtype.is_float or (count is not None and count <= BLOCK)


def in_blocks(fold: ir.Fold, size: int, variable: str) -> tuple[Dim, Statements, ir.Fold]:
    """A fold in blocks of about `size` values: their number, the length of block `variable` if it varies, the fold."""
    extent, step = fold.loops[0][1], _step(fold, size)
    begin = Dim.of(variable) * step
    length, known = f"{variable}_length", extent % step == Dim.of(0)
    before = () if known else (ir.Let(length, ir.Index(minimum(Dim.of(step), extent - begin))),)
    return (extent + (step - 1)) // step, before, move_fold(fold, begin, Dim.of(step) if known else Dim.of(length))


def _step(fold: ir.Fold, size: int) -> int:
    """The rounds of the outermost loop that take in about `size` values."""
    inner = product(count for _, count in fold.loops[1:])
    return size if len(fold.loops) == 1 else max(1, size // (inner.constant or 64))


def move_fold(fold: ir.Fold, start: Dim, count: Dim) -> ir.Fold:
    """The fold over `count` rounds of its outermost loop, from `start` on."""
    outer = fold.loops[0][0]
    moved = walk.substitute_in(replace(fold, at=position(fold)), {outer: Dim.of(outer) + start})
    return replace(moved, loops=((outer, count), *moved.loops[1:]))


def position(fold: ir.Fold) -> Dim:
    """The position of a value in the fold: `at`, or its flat index over the loops."""
    if fold.at is not None:
        return fold.at
    flat = Dim.of(0)
    for variable, extent in fold.loops:
        flat = flat * extent + Dim.of(variable)
    return flat


def step(fold: ir.Fold, state: State, at: Dim) -> Statements:
    """The body of a fold, and the merge of its value into the state in a cell."""
    return (*expand_folds(fold.body, 1), merge_into(fold, state, at))


def merge_into(fold: ir.Fold, state: State, at: Dim) -> ir.Store:
    """The merge of the value of a fold into the state in a cell."""
    return state.store(at, MONOIDS[fold.monoid].lift(Symbolic(), fold.value, ir.Index(position(fold))), merge=True)


def lanes_of(fold: ir.Fold, state: State, lanes: int, name: str, *, rests: bool) -> Statements:
    """The loops of a fold over lanes, up to the merged state in cell 0; `rests`: as in `expand_folds`."""
    lane, (variable, extent) = f"#lane_{name}", fold.loops[-1]
    steps = step(fold, state, Dim.of(lane) if lanes > 1 else Dim.of(0))
    loops: list[ir.Statement] = [ir.Loop(variable, extent, ir.Axis.SERIAL, steps)]
    if lanes > 1:
        whole, tail, begin = extent // lanes, extent % lanes, Dim.of(variable) * lanes
        strip = walk.substitute(steps, {variable: begin + Dim.of(lane)})
        if tail == Dim.of(0) or rests:
            loops = [ir.Loop(variable, whole, ir.Axis.SERIAL, (ir.Loop(lane, Dim.of(lanes), ir.Axis.LANES, strip),))]
        else:
            length = ir.Let(f"{variable}_length", ir.Index(minimum(Dim.of(lanes), extent - begin)))
            body = (length, ir.Loop(lane, Dim.of(length.name), ir.Axis.LANES, strip))
            loops = [ir.Loop(variable, (extent + (lanes - 1)) // lanes, ir.Axis.SERIAL, body)]
        if tail != Dim.of(0) and rests:
            rest = walk.substitute(steps, {variable: whole * lanes + Dim.of(lane)})
            loops.append(ir.Loop(lane, tail, ir.Axis.LANES, rest))
    for outer, count in reversed(fold.loops[:-1]):
        loops = [ir.Loop(outer, count, ir.Axis.SERIAL, tuple(loops))]
    return (*state.memory(lanes), over(lane, lanes, state.empty(Dim.of(lane))), *loops, *halves(state, lanes, lane))


def over(lane: str, lanes: int, store: ir.Store) -> ir.Statement:
    """A Store of constants for each lane."""
    if lanes > 1:
        return fill(lane, Dim.of(lanes), store)
    (alone,) = walk.substitute((store,), {lane: Dim.of(0)})
    return alone


def fill(variable: str, extent: Dim, store: ir.Store) -> ir.Statement:
    """A Store of constants into each cell of memory."""
    match store:
        case ir.Store((name,), _, (ir.Const(value, dtype),), None) if value == 0 and math.copysign(1, value) == 1:
            return ir.Zero(name, dtype, extent, variable)
        case _:
            return ir.Loop(variable, extent, ir.Axis.LANES, (store,))


def halves(state: State, lanes: int, lane: str) -> Statements:
    """Merge the lanes into lane 0."""
    return (ir.MergeLanes(state.monoid, state.names, state.dtypes, lanes, lane),) if lanes > 1 else ()


def lets_of_folds(body: Statements) -> list[ir.Let]:
    """The folds directly in a block, each with its name."""
    return [s for s in body if isinstance(s, ir.Let) and walk.is_fold(s)]


def first_fold(body: Statements) -> ir.Let:
    """The first unordered fold directly in a block."""
    return next(let for let in lets_of_folds(body) if not is_ordered(walk.fold_of(let)))


def part_folds(body: Statements) -> tuple[Statements, tuple[ir.Let, ...], Statements]:
    """A block in three, its folds moved together: the statements that need no fold, the folds, and the statements that
    need them. Stores, which it does not read, may move behind; checks of indices may not."""
    lets = lets_of_folds(body)
    waits = {let.name for let in lets}
    before, after = list[ir.Statement](), list[ir.Statement]()
    for statement in body:
        if statement in lets:
            continue
        if (isinstance(statement, ir.Let) or asks(statement)) and not waits & names_in((statement,)):
            before.append(statement)
        else:
            after.append(statement)
            waits |= {s.name for s in walk.every_statement((statement,)) if isinstance(s, ir.Let)}
    return tuple(before), tuple(lets), tuple(after)


def are_alike(body: Statements) -> bool:
    """Whether the folds of a block run over the same loops, and none depends on another."""
    _, lets, after = part_folds(body)
    folds = list(map(walk.fold_of, lets))
    if len({tuple(extent for _, extent in fold.loops) for fold in folds}) != 1 or any(map(is_ordered, folds)):
        return False
    late = {s.name for s in walk.every_statement((*lets, *after)) if isinstance(s, ir.Let)}
    own = {let.name: {s.name for s in walk.every_statement((let,)) if isinstance(s, ir.Let)} for let in lets}
    return not any((late - own[let.name] | {let.name}) & names_in((let,)) for let in lets)


def levels(body: Statements) -> Statements:
    """Reorder a block so that independent folds are neighbours. It reads nothing that it stores, so that stores and
    loops may move behind; checks of an index stay before the loads there."""
    level, pending = list[ir.Statement](), list(body)
    while lets_of_folds(tuple(pending)):
        waits, folds, later = set[str](), list[ir.Statement](), list[ir.Statement]()
        for statement in pending:
            if (isinstance(statement, ir.Let) or asks(statement)) and not waits & names_in((statement,)):
                (folds if walk.is_fold(statement) else level).append(statement)
                waits |= {s.name for s in folds[-1:] if isinstance(s, ir.Let)}
            else:
                later.append(statement)
                waits |= {s.name for s in walk.every_statement((statement,)) if isinstance(s, ir.Let)}
        level += folds
        pending = later
    return (*level, *pending)


def asks(statement: ir.Statement) -> bool:
    """Whether a statement only checks that an index is inside, which precedes loads there in each launch."""
    return isinstance(statement, ir.Require) or (isinstance(statement, ir.If) and all(map(asks, statement.body)))


def are_apart(lets: Iterable[ir.Statement], other: ir.Statement) -> bool:
    """Whether a statement reads no name that the Lets bind."""
    return not names_in((other,)) & {let.name for let in lets if isinstance(let, ir.Let)}


def names_in(statements: Sequence[ir.Statement]) -> set[str]:
    """The names of values, and of indices, that statements read."""
    values = {each.name for each in walk.every_expression(statements) if isinstance(each, ir.Var)}
    return values.union(*(dim.names for dim in walk.all_dims(statements)))


def expand_together(body: Statements) -> Statements:
    """A block whose folds are alike, each with one partial state, as one pass."""
    (before, lets, after), passes, results = part_folds(body), [], []
    for let in lets:
        loops, state = total_of(walk.fold_of(let), let.name, 1, wide=False)
        passes.append(loops)
        results.append(ir.Let(let.name, state.result(Dim.of(0), let.value.dtype), let.origin))
    return (*before, *in_one_pass(passes), *results, *after)


def in_one_pass(parts: Sequence[Statements]) -> Statements:
    """Blocks that end in a serial loop of the same extents each: first all that precedes these, then one loop."""
    loops = [part[-1] for part in parts]
    if len(parts) == 1 or not all(isinstance(s, ir.Loop) for s in loops):
        return tuple(s for part in parts for s in part)
    return (*(s for part in parts for s in part[:-1]), _join_loops([s for s in loops if isinstance(s, ir.Loop)]))


def _join_loops(loops: Sequence[ir.Loop]) -> ir.Loop:
    """Merge loops of one extent."""
    first = loops[0]
    assert all(loop.extent == first.extent and loop.axis is first.axis for loop in loops)
    bodies = [walk.substitute(loop.body, {loop.var: Dim.of(first.var)}) for loop in loops]
    inner = [body[0] for body in bodies if len(body) == 1 and isinstance(body[0], ir.Loop)]
    if len(inner) == len(bodies) and len({(loop.extent, loop.tile) for loop in inner}) == 1:
        return replace(first, body=(_join_loops(inner),))
    return replace(first, body=fuse(bodies))


def fuse(bodies: Sequence[Statements]) -> Statements:
    """Concatenate blocks without duplicate values; each name has one value."""
    once, names = list[ir.Statement](), dict[ir.Expr, str]()
    for body in bodies:
        own = dict[str, str]()  # a new name of one value may be the old one of the next: all are renamed at once
        for each in body:
            places: dict[str, DimLike] = {name: Dim.of(new) for name, new in own.items() if name.startswith("#")}
            (statement,) = walk.rewrite(walk.substitute((each,), places), partial(_rename_variable, names=own))
            if not isinstance(statement, ir.Let):
                once.append(statement)
                continue
            value = walk.rewrite_expression(statement.value, _normal_names)
            own[statement.name] = names.get(value) or free_name(statement.name, names.values())
            if value not in names:
                names[value] = own[statement.name]
                once.append(replace(statement, name=names[value]))
    return tuple(once)


def _normal_names(expr: ir.Expr) -> ir.Expr:
    """Rename the loops and values of a fold by position: folds that compute the same are then equal."""
    if not isinstance(expr, ir.Fold):
        return expr
    within = sum(isinstance(each, ir.Fold) for each in walk.every_expression(expr.body))
    old = [*(name for name, _ in expr.loops), *(s.name for s in expr.body if isinstance(s, ir.Let))]
    names = {name: f"{'#' * name.startswith('#')}{within}.{at}" for at, name in enumerate(old)}
    body = [replace(s, name=names[s.name], origin=None) if isinstance(s, ir.Let) else s for s in expr.body]
    loops = tuple((names[name], extent) for name, extent in expr.loops)
    whole = ir.Let("", replace(expr, body=tuple(body), loops=loops))
    (other,) = walk.rewrite((whole,), partial(_rename_variable, names=names))
    return walk.substitute_in(walk.fold_of(other), {name: Dim.of(new) for name, new in names.items()})


def _rename_variable(expr: ir.Expr, names: Mapping[str, str]) -> ir.Expr:
    return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, ir.Var) else expr


@dataclass(frozen=True, slots=True)
class _Place:
    """An occurrence of a fold: the extents of the loops around it, the Lets before it, whether in another fold."""

    let: ir.Let
    extents: Mapping[str, Dim]
    before: Statements
    inside: bool

    @property
    def index(self) -> Shape:
        return self.let.origin[1] if self.let.origin else ()

    @property
    def shape(self) -> Shape | None:
        """The extents of its index; None unless that is one loop, or the first cell, along each axis."""
        names = [str(dim) for dim in self.index if dim != Dim.of(0)]
        plain = names and len(set(names)) == len(names) and self.extents.keys() >= set(names)
        return tuple(self.extents.get(str(dim), Dim.of(1)) for dim in self.index) if plain else None


def keep_folds(kernel: ir.Kernel) -> ir.Kernel:
    """Compute each fold that several passes over a row need in a launch of its own before the kernel's."""
    if len(kernel.launches) != 1:
        return kernel
    first, (last,) = list[ir.Launch](), kernel.launches
    while (places := _share_places(last.body)) is not None:
        place, shape, dtype = places[0], places[0].shape, places[0].let.value.dtype
        assert shape is not None, "as the places that are shared have"
        scratch = ir.Buffer(f"{place.let.name}.once", dtype, shape, ir.Role.SCRATCH)
        loads: dict[ir.Expr, ir.Expr] = {fold_of(each.let): ir.Load(scratch.name, each.index, dtype) for each in places}
        first.append(ir.Launch(_alone(place, scratch.name)))
        last = replace(last, body=rewrite(last.body, partial(_load_fold, loads)))
        kernel = replace(kernel, buffers=(*kernel.buffers, scratch))
    return replace(kernel, launches=(*first, last))


def _load_fold(loads: Mapping[ir.Expr, ir.Expr], expr: ir.Expr) -> ir.Expr:
    return loads.get(expr, expr) if isinstance(expr, ir.Fold) else expr


def _share_places(body: Statements) -> list[_Place] | None:
    """The occurrences of a fold that occurs several times, once in another fold, and can be computed by itself."""
    by_value = defaultdict[str, list[_Place]](list)
    for place in _places(body, {}, (), inside=False):
        if place.let.origin:
            by_value[place.let.origin[0]].append(place)
    for places in by_value.values():
        shapes = {place.shape for place in places}
        if len(places) > 1 and any(place.inside for place in places) and len(shapes) == 1 and _stands_alone(places[0]):
            return places
    return None


def _places(body: Statements, extents: Mapping[str, Dim], before: Statements, *, inside: bool) -> Iterator[_Place]:
    """Every fold with its surroundings, inner ones first."""
    for statement in body:
        match statement:
            case ir.Loop(var, extent, _, inner):
                yield from _places(inner, {**extents, var: extent}, before, inside=inside)
            case ir.Let(_, ir.Fold(_, loops, inner)):
                yield from _places(inner, {**extents, **dict(loops)}, before, inside=True)
                yield _Place(statement, extents, before, inside)
            case _:
                pass
        before = (*before, statement) if isinstance(statement, ir.Let) else before


def _alone(place: _Place, buffer: str) -> Statements:
    """The loops that store the results of a fold in a buffer."""
    store = ir.Store((buffer,), place.index, (ir.Var(place.let.name, place.let.value.dtype),))
    loops = (ir.Loop(str(dim), place.extents[str(dim)], ir.Axis.SERIAL, ()) for dim in place.index if dim.names)
    return primitives.nest(loops, drop_unused((*place.before, place.let, store)))


def _stands_alone(place: _Place) -> bool:
    """Whether a fold needs no other fold, and reads an array that varies along every loop around it."""
    if place.shape is None:
        return False
    loops, body = primitives.chain(_alone(place, ""))
    around = {loop.var for loop in loops}
    bound = around | {name for fold in folds_in(body) for name, _ in fold.loops}
    read = {name for dim in all_dims(body) for name in dim.names if name.startswith("#")}
    whole = any(around <= variables_of(load) for load in loads_of(body))
    return whole and read <= bound and sum(map(is_fold, body)) == 1
