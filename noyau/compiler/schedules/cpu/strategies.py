"""The strategies columns, row and scan, for processors: reductions over a leading axis, in tiles of neighbouring cells;
reductions along a row, with a pass for each and one that writes, and costly values kept in memory of the thread; and a
state that is carried along an axis, whose loop stays serial."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.blocked_folds import in_two
from noyau.compiler.schedules.cpu.folds import are_alike, expand_folds, expand_together, lets_of_folds
from noyau.compiler.schedules.cpu.tiles import side_by_side
from noyau.compiler.schedules.primitives import COSTLY, Statements, is_costly, sink_loads
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.walk import flops_of, fold_of, folds_in, loads_of

SHORT = 16  # rounds of a loop that gcc unrolls
ROWS = 256  # rows of a block: fixed, so that bits do not depend on threads


def columns(kernel: ir.Kernel, *, width: int = 2048, rows: int = ROWS) -> ir.Kernel:
    """The innermost output loop in tiles of `width` lanes, the folds outside of them, in blocks of `rows`."""
    kernel = primitives.with_bodies(kernel, sink_loads)
    (launch,) = kernel.launches
    loops, body = primitives.chain(launch.body)
    is_small = all(primitives.is_small(statement, rows) for statement in body)
    if is_small or not lets_of_folds(body) or not are_alike(body):
        return replace(kernel, launches=(_launch(_innermost(launch.body, width)),))
    two = in_two(body, loops, rows, 1, every=True)
    first = primitives.nest([*loops[:-1], two.block], (_tile(loops[-1], two.first, width),))
    second = primitives.nest(loops[:-1], (_tile(loops[-1], two.second, width),))
    return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=(_launch(first), _launch(second)))


def _innermost(body: Statements, width: int) -> Statements:
    match body:
        case (*before, ir.Loop() as loop) if lets_of_folds(loop.body):
            return (*before, _tile(loop, loop.body, width))
        case (*before, ir.Loop() as loop):
            return (*before, replace(loop, body=_innermost(loop.body, width)))
        case _:
            return body


def _tile(loop: ir.Loop, body: Statements, width: int) -> ir.Loop:
    wide = expand_together(body) if lets_of_folds(body) and are_alike(body) else expand_folds(body, 1, wide=False)
    if primitives.is_small(replace(loop, body=()), width) and all(is_short(let) for let in lets_of_folds(body)):
        return replace(loop, body=wide, axis=ir.Axis.LANES)  # unrolled, the sums of a few cells are in registers
    return side_by_side(replace(loop, body=wide), width)


def is_short(let: ir.Let) -> bool:
    """Whether a fold is a loop over a few cells that are cheap."""
    return primitives.is_small(let, SHORT) and len(fold_of(let).loops) == 1 and not is_costly(fold_of(let).body)


def _launch(body: Statements) -> ir.Launch:
    return ir.Launch(primitives.widen(primitives.bind_all(body)))


def row(kernel: ir.Kernel, *, lanes: int = 32, kept: bool = True, rests: bool = True) -> ir.Kernel:
    """Outer loops on threads, folds over `lanes` states, other inner loops in lanes. `rests`: see `expand_folds`."""

    def scheduled(body: Statements) -> Statements:
        body = primitives.bind_all(sink_loads(body))
        return primitives.widen(expand_folds(keep_rows(body) if kept else body, lanes, rests=rests))

    return primitives.with_bodies(kernel, scheduled)


def keep_rows(body: Statements) -> Statements:
    """The statements of a row, or loops on threads over rows, with the last value that depends on a costly function,
    and has other uses, kept in memory of the thread."""
    for fold in folds_in(body):
        costly = [at for at, s in enumerate(fold.body) if isinstance(s, ir.Let) and flops_of(s.value) >= COSTLY]
        is_known = len(fold.loops) == 1 and not any(name.startswith("#") for name in fold.loops[0][1].names)
        for let in reversed(fold.body[costly[-1] :] if costly and is_known else ()):
            changed = _in_row(body, let, fold.loops[0][1]) if isinstance(let, ir.Let) else body
            if changed != body:
                return changed
    return body


def _in_row(body: Statements, let: ir.Let, extent: Dim) -> Statements:
    """The statements of a row, within the loops on threads, with the value of `let` kept."""
    match body:
        case (*before, ir.Loop(axis=ir.Axis.THREADS) as loop):
            return (*before, replace(loop, body=_in_row(loop.body, let, extent)))
        case _:
            name = f"kept.{let.name}"
            changed = primitives.keep(body, frozenset({let.origin[0]} if let.origin else ()), name)
            return body if changed == body else (ir.Alloc(name, let.value.dtype, (extent,), ir.Space.THREAD), *changed)


def scan(kernel: ir.Kernel, *, lanes: int = 32, width: int = 16) -> ir.Kernel:
    """Bind outer loops to threads; cells of the innermost run side by side through the scan, in tiles, if they can."""

    def scheduled(body: Statements) -> Statements:
        body = sink_loads(body)
        loops, _ = primitives.chain(body)
        with suppress(UnsupportedError):
            body = primitives.nest(loops[:-1], (side_by_side(loops[-1], width),)) if loops else body
        return primitives.widen(expand_folds(primitives.bind_all(body), lanes))

    return primitives.with_bodies(kernel, scheduled)


def map_(kernel: ir.Kernel) -> ir.Kernel:
    """Coalesce loops where possible; bind all loops of a chain but the last to threads."""
    return primitives.with_bodies(kernel, lambda body: thread_loops(along_reads(sink_loads(body))))


def along_reads(body: Statements) -> Statements:
    """Order the loops of a chain, except the innermost, as the largest input lies in memory, if that is known:
    contiguous reads are prefetched, and writes need not wait for memory."""
    loops, inner = primitives.chain(body)
    outer, last = (loops, []) if any(isinstance(s, ir.Loop) for s in inner) else (loops[:-1], loops[-1:])
    loads = [load for load in loads_of(body) if len(load.index) == 1]
    for load in sorted(loads, key=lambda load: -len(load.index[0].names)):
        order = _descending({loop.var: primitives.stride_of(load, loop.var) for loop in outer})
        if order is not None:
            same = order == [loop.var for loop in outer]
            return body if same else primitives.reorder(body, [*order, *(loop.var for loop in last)])
    return body


def _descending(steps: dict[str, Dim]) -> list[str] | None:
    """The variables by their strides, each a multiple of the next; None where one is 0, or no multiple."""
    order, zero = list[str](), Dim.of(0)
    for variable, step in steps.items():
        order.insert(next((k for k, other in enumerate(order) if step % steps[other] == zero), len(order)), variable)
    descends = all(steps[a] % steps[b] == zero and steps[a] != steps[b] for a, b in pairwise(order))
    return order if descends and zero not in steps.values() else None


def thread_loops(body: Statements) -> Statements:
    """Bind the loops of a chain to threads, except the last for the lanes if there are several."""
    loops, inner = primitives.chain(body)
    straight = len(loops) > 1 and not any(isinstance(s, ir.Loop) for s in inner)
    return primitives.widen(primitives.bind(body, len(loops) - straight))
