"""The strategies for processors: full, columns, map, row, scan and scatter.

Strategy full: a reduction of a whole array in two launches: partial states of fixed blocks, then their merge.

Strategy columns: reductions over a leading axis. Tiles of neighbouring cells are reduced side by side; many rows in
two launches: partial states of fixed blocks of rows, then their merge in order. A tile is as wide as its states fit
into the nearest cache: long pieces of rows are read, and few pages are touched at a time.

Strategy map: no reductions. Outer loops on threads, the innermost one in lanes.

Strategy row: reductions along a row. Rows on threads; a row is passed over once a reduction, and once to write.

Streamed, each pass computes anew what it needs; kept, what is dear stays in memory of the thread.

Strategy scan: a state is carried along an axis, whose loop stays serial; the loops around it go to threads.

Strategy scatter: updates are merged at places that are looked up, each cell's in the order of the updates. Threads
share the cells, never the updates: each walks all updates and merges those parts that fall in its own cells. So bits
never depend on the number of threads, and no cell is met by two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from noyau.compiler.schedules.cpu.folds import (
    Parted,
    are_alike,
    asks,
    expand_folds,
    expand_together,
    first_fold,
    in_blocks,
    in_one_pass,
    lets_of_folds,
    parted,
    state_of,
    total_of,
)
from noyau.compiler.schedules.cpu.tiles import side_by_side
from noyau.compiler.schedules.cpu.transposes import hoist
from noyau.compiler.schedules.primitives import (
    COSTLY,
    Statements,
    around_fold,
    bind,
    bind_all,
    chain,
    change_each,
    coalesce,
    drop_unused,
    is_light,
    is_small,
    keep,
    nested,
    reorder,
    sink,
    stride_of,
    variables_of,
    widen,
    with_bodies,
)
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, strides_of
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import every_statement, flops_of, fold_of, folds_in, loads_of

ROWS = 256  # of a block: fixed, so that bits do not depend on threads


def columns(kernel: ir.Kernel, *, width: int = 2048, rows: int = ROWS) -> ir.Kernel:
    """The innermost output loop in tiles of `width` lanes, the folds outside of them, in blocks of `rows`."""
    kernel = with_bodies(kernel, lambda body: sink(coalesce(body)))
    (launch,) = kernel.launches
    loops, body = chain(launch.body)
    if not lets_of_folds(body) or not are_alike(body) or all(is_small(statement, rows) for statement in body):
        return replace(kernel, launches=(_launch(_innermost(launch.body, width)),))
    two = in_two(body, loops, rows, 1, wide=False, every=True)
    first = nested([*loops[:-1], two.block], (_tiled(loops[-1], two.first, width),))
    second = nested(loops[:-1], (_tiled(loops[-1], two.second, width),))
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=(_launch(first), _launch(second)))


def _innermost(body: Statements, width: int) -> Statements:
    match body:
        case (*before, ir.Loop() as loop) if lets_of_folds(loop.body):
            return (*before, _tiled(loop, loop.body, width))
        case (*before, ir.Loop() as loop):
            return (*before, replace(loop, body=_innermost(loop.body, width)))
        case _:
            return body


def _tiled(loop: ir.Loop, body: Statements, width: int) -> ir.Loop:
    wide = expand_together(body) if lets_of_folds(body) and are_alike(body) else expand_folds(body, 1, wide=False)
    return side_by_side(replace(loop, body=wide), width)


def _launch(body: Statements) -> ir.Launch:
    return ir.Launch(widen(bind_all(body)))


def map_(kernel: ir.Kernel) -> ir.Kernel:
    """Loops that can count as one do; all of the lone ones but the last go to threads."""
    return with_bodies(kernel, lambda body: threaded(along_reads(sink(coalesce(body)))))


def along_reads(body: Statements) -> Statements:
    """The lone loops around the innermost ones in the order in which the largest input lies in memory, where that is
    known: reads that follow each other are fetched ahead, and writes need not wait for memory."""
    loops, inner = chain(body)
    outer, last = (loops, []) if any(isinstance(s, ir.Loop) for s in inner) else (loops[:-1], loops[-1:])
    loads = [load for load in loads_of(body) if len(load.index) == 1]
    for load in sorted(loads, key=lambda load: -len(load.index[0].names)):
        order = _descending({loop.var: stride_of(load, loop.var) for loop in outer})
        if order is not None:
            same = order == [loop.var for loop in outer]
            return body if same else reorder(body, [*order, *(loop.var for loop in last)])
    return body


def _descending(steps: dict[str, Dim]) -> list[str] | None:
    """The variables by their steps, each a multiple of the next; None where one is 0, or no multiple."""
    order: list[str] = []
    zero = Dim.of(0)
    for variable, step in steps.items():
        order.insert(next((k for k, other in enumerate(order) if step % steps[other] == zero), len(order)), variable)
    descends = all(steps[a] % steps[b] == zero and steps[a] != steps[b] for a, b in pairwise(order))
    return order if descends and zero not in steps.values() else None


def threaded(body: Statements) -> Statements:
    """Lone loops on threads, but one for the lanes where there are several."""
    loops, inner = chain(body)
    straight = len(loops) > 1 and not any(isinstance(s, ir.Loop) for s in inner)
    return widen(bind(body, len(loops) - straight))


def row(kernel: ir.Kernel, *, lanes: int = 32, kept: bool = True, rests: bool = True) -> ir.Kernel:
    """Outer loops on threads, folds over `lanes` partial states, other innermost loops in lanes. `rests` is as in
    `expand_folds`."""

    def scheduled(body: Statements) -> Statements:
        body = bind_all(sink(coalesce(body)))
        return widen(expand_folds(keep_rows(body) if kept else body, lanes, rests=rests))

    return with_bodies(kernel, scheduled)


def keep_rows(body: Statements) -> Statements:
    """The statements of a row, or loops on threads over rows, with what is dear in memory of the thread."""
    folds = [fold for fold in folds_in(body) if len(fold.loops) == 1]
    dear = [s for s in folds[-1].body if isinstance(s, ir.Let) and flops_of(s.value) >= COSTLY] if folds else []
    if not dear or any(name.startswith("#") for name in folds[-1].loops[0][1].names):
        return body
    return _in_row(body, dear[-1], folds[-1].loops[0][1])


def _in_row(body: Statements, let: ir.Let, extent: Dim) -> Statements:
    """The statements of a row, within the loops on threads, with the value of `let` kept."""
    match body:
        case (*before, ir.Loop(axis=ir.Axis.THREADS) as loop):
            return (*before, replace(loop, body=_in_row(loop.body, let, extent)))
        case _:
            name = f"kept.{let.name}"
            changed = keep(body, frozenset({let.origin[0]} if let.origin else ()), name)
            return body if changed == body else (ir.Alloc(name, let.value.dtype, (extent,), ir.Space.THREAD), *changed)


BLOCK = 1 << 16  # values a block: fixed, so that bits do not depend on threads


def rows_before(kernel: ir.Kernel) -> tuple[ir.Kernel, list[Statements]] | None:
    """The first fold at the root, whose values each take folds of their own, in two blocks: one that leaves the values
    in scratch, so that it is scheduled as rows are, and one that folds those. None where its values take none."""
    body = kernel.launches[0].body
    let = first_fold(body)
    fold, at = fold_of(let), body.index(let)
    if not folds_in(fold.body):
        return None
    shape = tuple(extent for _, extent in fold.loops)
    scratch = ir.Buffer(f"{let.name}.values", fold.value.dtype, shape, ir.Role.SCRATCH)
    cell = (sum((Dim.of(var) * k for (var, _), k in zip(fold.loops, strides_of(shape), strict=True)), Dim.of(0)),)
    loops = [ir.Loop(variable, extent, ir.Axis.SERIAL, ()) for variable, extent in fold.loops]
    rows = nested(loops, (*fold.body, ir.Store((scratch.name,), cell, (fold.value,))))
    folded = replace(fold, body=(), value=ir.Load(scratch.name, cell, scratch.dtype))
    light = tuple(s for s in body[:at] if is_light(s) or asks(s))
    blocks = [drop_unused((*light, *rows)), (*body[:at], replace(let, value=folded), *body[at + 1 :])]
    return replace(kernel, buffers=(*kernel.buffers, scratch)), blocks


def full(kernel: ir.Kernel, *, lanes: int = 32, block: int = BLOCK, rests: bool = True) -> tuple[ir.Kernel, Statements]:
    """The first fold at the root, over blocks on threads, then their states merged in order. What follows is done at
    once where it is a few scalars; else it is given back, to be scheduled, and finds the result in scratch. `rests` is
    as in `expand_folds`."""
    kernel = with_bodies(kernel, coalesce)
    let = first_fold(kernel.launches[0].body)
    kernel, before, after, rest = around_fold(kernel, kernel.launches[0].body, let)
    two = in_two((*before, let, *after), (), block, lanes, rests=rests)
    first = replace(two.block, axis=ir.Axis.THREADS, body=two.first)
    launches = tuple(ir.Launch(widen(expand_folds(body, lanes, rests=rests))) for body in ((first,), two.second))
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches), rest


def scan(kernel: ir.Kernel, *, lanes: int = 32, width: int = 16) -> ir.Kernel:
    """Outer loops on threads; where the cells of the innermost one can run side by side through the scan, they do, in
    tiles of `width`."""

    def scheduled(body: Statements) -> Statements:
        body = _tiled_scan(sink(coalesce(body)), width)
        return widen(expand_folds(bind_all(body), lanes))

    return with_bodies(kernel, scheduled)


def _tiled_scan(body: Statements, width: int) -> Statements:
    loops, _ = chain(body)
    if not loops:
        return body
    try:
        return nested(loops[:-1], (side_by_side(loops[-1], width),))
    except UnsupportedError:
        return body


TILE = 1024  # cells of a row that one thread merges: some pages of a row of updates


def merges(body: Statements) -> bool:
    """Whether statements merge into cells, or store in cells that are looked up: then order matters."""
    bound = {s.name for s in every_statement(body) if isinstance(s, ir.Let)}
    return any(store.merge or variables_of(store) & bound for store in _stores(body))


def scatter(kernel: ir.Kernel, *, lanes: int, tile: int = TILE) -> ir.Kernel:
    """A kernel of one launch: loops whose every round has cells of its own on threads, the others in order."""

    def scheduled(body: Statements) -> Statements:
        body = coalesce(body)
        apart = cells_apart(body)
        body = expand_folds(_shared(written_out(body), apart, tile), lanes)
        return widen(body) if apart else body

    return with_bodies(kernel, scheduled)


def _shared(body: Statements, apart: frozenset[str], tile: int) -> Statements:
    """The outermost loop on threads, if its rounds have cells of their own; else the innermost in tiles on threads."""
    if len(body) != 1 or not isinstance(outer := body[0], ir.Loop):
        return body
    if outer.var in apart:
        return bind(body, 1)
    inner = _last_loop(outer)
    if inner is None or inner.var not in apart:
        return body
    hoisted = hoist(body, outer.var, inner.var, tile)
    return body if hoisted == body else bind(hoisted, 1)


def _last_loop(loop: ir.Loop) -> ir.Loop | None:
    """The loop that stores, within another one, if it is alone there."""
    inner = [s for s in loop.body if isinstance(s, ir.Loop)]
    if len(inner) != 1:
        return None
    return _last_loop(inner[0]) or inner[0]


def cells_apart(body: Statements) -> frozenset[str]:
    """The names of indices that no cell is met by two values of: those of which the offset of every Store is made as
    digits make a number. Empty where it is made otherwise."""
    loops = {s.var: s.extent for s in every_statement(body) if isinstance(s, ir.Loop)}
    looked_up = {str(s.index): s.extent for s in every_statement(body) if isinstance(s, ir.Require)}
    digits = [_digits(store, loops | looked_up) for store in _stores(body)]
    return frozenset.intersection(*digits) if digits else frozenset()


def _stores(body: Statements) -> list[ir.Store]:
    """The stores in buffers, not those in memory that statements have for themselves."""
    own = {s.name for s in every_statement(body) if isinstance(s, ir.Alloc)}
    return [s for s in every_statement(body) if isinstance(s, ir.Store) and not own.intersection(s.buffers)]


def _digits(store: ir.Store, extents: Mapping[str, Dim]) -> frozenset[str]:
    names = sorted(variables_of(store))
    if any(name not in extents for name in names):
        return frozenset()
    steps = {name: stride_of(store, name) for name in names}
    rest = store.index[0] - sum((Dim.of(name) * step for name, step in steps.items()), Dim.of(0))
    below, left = Dim.of(1), dict(steps)
    while left:
        digits = (name for name, step in left.items() if step % below == Dim.of(0) and _divides_all(step, left))
        lowest = next(digits, "")
        if not lowest:
            return frozenset()
        below = left.pop(lowest) * extents[lowest]
    return frozenset() if any(name.startswith("#") for name in rest.names) else frozenset(names)


def _divides_all(step: Dim, others: Mapping[str, Dim]) -> bool:
    known = not any(name.startswith("#") for name in step.names)
    return known and step != Dim.of(0) and all(other % step == Dim.of(0) for other in others.values())


def written_out(statements: Statements) -> Statements:
    """Merges as what they are in one thread: a cell is loaded, and stored again."""

    def change(statement: ir.Statement) -> Statements | None:
        match statement:
            case ir.Store(buffers, index, values, str() as monoid):
                old = tuple(ir.Load(name, index, value.dtype) for name, value in zip(buffers, values, strict=True))
                return (replace(statement, values=MONOIDS[monoid].merge(Symbolic(), old, values), merge=None),)
            case _:
                return None

    return change_each(statements, change)


@dataclass(frozen=True, slots=True)
class Two:
    """A block of statements in two: `first` runs in the empty loop `block` and leaves a state of the fold in `scratch`
    for each round; `second` merges them in order and goes on."""

    block: ir.Loop
    first: Statements
    second: Statements
    scratch: tuple[ir.Buffer, ...]


def in_two(
    body: Statements,
    around: Sequence[ir.Loop],
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
    parts, zero = parted(body) if every else _first(body), Dim.of(0)
    variable, scratch = f"#block_of_{parts.lets[0].name}", list[ir.Buffer]()
    passes, stores, merges, results = list[Statements](), list[ir.Store](), list[Statements](), list[ir.Let]()
    for let in parts.lets:
        blocks, length, fold = in_blocks(fold_of(let), size, variable)
        block = ir.Loop(variable, blocks, ir.Axis.SERIAL, ())
        loops, state = total_of(fold, let.name, lanes, wide=wide, rests=rests)
        axes = [*around[:-1], block, *around[-1:]]
        shape = tuple(loop.extent for loop in axes)
        where = sum((Dim.of(loop.var) * step for loop, step in zip(axes, strides_of(shape), strict=True)), zero)
        total, saved = state_of(fold_of(let), let.name, wide=True), state.beside("of_block")
        passes.append(loops)
        stores.append(saved.store(where, state.load(zero), merge=False))
        merge = replace(block, body=(total.store(zero, saved.load(where), merge=True),))
        merges.append((*total.memory(1), total.empty(zero), merge))
        results.append(ir.Let(let.name, total.result(zero, fold.dtype), let.origin))
        scratch += saved.buffers(shape)
    first = (*parts.before, *length, *in_one_pass(passes), *stores)
    second = (*parts.before, *in_one_pass(merges), *results, *parts.after)
    return Two(block, drop_unused(first), drop_unused(second), tuple(scratch))


def _first(body: Statements) -> Parted:
    """A block at its first fold."""
    let = first_fold(body)
    at = body.index(let)
    return Parted(body[:at], (let,), body[at + 1 :])
