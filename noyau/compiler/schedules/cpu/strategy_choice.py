"""Choice of the strategy that a lowered kernel takes, by its loops, its folds and how its loads run through memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.argument_bounds import keep_shares, note_signs
from noyau.compiler.schedules.cpu.blocked_folds import BLOCK, full, rows_before
from noyau.compiler.schedules.cpu.folds import MANY, are_alike, is_ordered, lets_of_folds
from noyau.compiler.schedules.cpu.index_set_splitting import cut_at_bounds
from noyau.compiler.schedules.cpu.line_stores import in_lines, in_pairs
from noyau.compiler.schedules.cpu.nontemporal_stores import in_whole_tiles, write_nontemporal
from noyau.compiler.schedules.cpu.prefetches import insert_prefetches
from noyau.compiler.schedules.cpu.rows_in_lanes import folds_of_folds, short_rows
from noyau.compiler.schedules.cpu.scatters import merges, scatter
from noyau.compiler.schedules.cpu.stages import in_stages
from noyau.compiler.schedules.cpu.strategies import columns, map_, row, scan
from noyau.compiler.schedules.cpu.turns import transpose, turn
from noyau.ir.dims import Dim
from noyau.ir.loops import Expr, Fold, Kernel, Loop, Role, opposite, when
from noyau.ir.walk import every_statement, fold_of, folds_in, loads_of, rewrite


def is_columns(body: primitives.Statements) -> bool:
    """The folds are in the innermost loop, alike, and their loads run along that loop, not along the folds."""
    inner, folds = body, folds_in(body)
    while inner and isinstance(inner[-1], Loop):
        variable, inner = inner[-1].var, inner[-1].body
    if inner is body or not folds or list(map(fold_of, lets_of_folds(inner))) != folds or not are_alike(inner):
        return False
    if any(isinstance(s, Loop) for s in every_statement(inner)):
        return False
    loads = [(load, fold.loops[-1][0]) for fold in folds for load in loads_of(fold.body)]
    along = [primitives.stride_of(load, variable) for load, _ in loads]
    across = [primitives.stride_of(load, row) for load, row in loads]
    return along.count(Dim.of(1)) > across.count(Dim.of(1))


def reads_along(body: primitives.Statements, outer: tuple[str, ...] = ()) -> tuple[str, str] | None:
    """The loop, not the innermost one, that loads run along with stride 1 while the innermost one strides, and that
    innermost one; or None."""
    for loop in (s for s in body if isinstance(s, Loop)):
        if any(isinstance(s, Loop) for s in loop.body):
            ways = reads_along(loop.body, (*outer, loop.var))
        else:
            ways = _along(loop, outer)
        if ways is not None:
            return ways
    return None


def _along(innermost: Loop, outer: tuple[str, ...]) -> tuple[str, str] | None:
    for load in loads_of(innermost.body):
        if primitives.stride_of(load, innermost.var) not in (Dim.of(0), Dim.of(1)):
            for variable in outer:
                if primitives.stride_of(load, variable) == Dim.of(1):
                    return variable, innermost.var
    return None


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of a schedule: how many partial states a fold has, 0 for as many as suit its length, whether a row
    is kept, from how many bytes on an output is written around the caches, 0 for never, whether short rows, where
    it is not known that there are none, have a launch of their own, whether a lane does two cells of bfloat16,
    whether what goes through memory of the thread first is worth it: long computations in stages, and tiles of any
    cells or of those of 4 bytes alone ("words") turned, whether what is left of a row after whole blocks and lanes
    has loops of its own, and whether what goes around the caches does so a few lines at a time."""

    lanes: int = 0
    kept: bool = True
    around_bytes: int = 1 << 22
    short: bool = True
    pairs: bool = True
    stages: bool = False
    turned: str = ""
    rests: bool = True
    lines: bool = True


WORD_BYTES = 4
USUAL = Options(stages=True, turned="any")


def schedule(kernel: Kernel, options: Options = USUAL) -> Kernel:
    """The kernel, flat and with every loop bound, each launch by the strategy that fits it."""
    flat = nan_apart(note_signs(primitives.flatten(kernel)))
    kernel = insert_prefetches(
        primitives.each(flat, [launch.body for launch in flat.launches], partial(_one, options=options))
    )
    kernel = in_whole_tiles(write_nontemporal(kernel, options.around_bytes) if options.around_bytes else kernel)
    kernel = cut_at_bounds(kernel)
    kernel = in_pairs(kernel) if options.pairs else kernel
    kernel = keep_shares(in_stages(kernel) if options.stages else kernel)
    return in_lines(kernel) if options.lines else kernel


def _one(kernel: Kernel, options: Options) -> Kernel:
    """A kernel of one launch, scheduled."""
    (launch,) = kernel.launches
    body, again = launch.body, partial(_one, options=options)
    if merges(body):
        return scatter(kernel, lanes=options.lanes or MANY)
    if _is_full(body):
        if (first := rows_before(kernel)) is not None:
            return primitives.each(*first, again)
        done, rest = full(kernel, lanes=options.lanes or MANY, rests=options.rests)
        later = primitives.each(done, [rest] if rest else [], again)
        return replace(later, launches=(*done.launches, *later.launches))
    if len(blocks := primitives.apart(body)) > 1:
        return primitives.each(kernel, blocks, again)
    if any(isinstance(s, Loop) and primitives.carries(s) for s in every_statement(body)):
        return scan(kernel, lanes=options.lanes or MANY)
    if not folds_in(body):
        ways = reads_along(body)
        if ways is None:
            return _or_short(kernel, map_(kernel), options)
        words = all(buffer.dtype.bytes == WORD_BYTES for buffer in kernel.of(Role.INPUT))
        worth = options.turned == "any" or (options.turned == "words" and words)
        turned = turn(kernel, along=ways[0], across=ways[1]) if worth else None
        return turned or transpose(kernel, along=ways[0], across=ways[1])
    loops, inner = primitives.chain(body)
    pieces = [primitives.nested(loops, piece) for piece in primitives.apart(inner)]
    if all(is_columns(piece) for piece in pieces):
        return columns(kernel) if len(pieces) == 1 else primitives.each(kernel, pieces, again)
    return folds_of_folds(kernel) or _or_short(
        kernel, row(kernel, lanes=options.lanes, kept=options.kept, rests=options.rests), options
    )


def _or_short(kernel: Kernel, scheduled: Kernel, options: Options) -> Kernel:
    """A kernel as it is scheduled for long rows, and beside it for short ones, where it may have such."""
    short = short_rows(kernel, kept=options.kept) if options.short else None
    if short is None:
        return scheduled
    if short.when is None:
        return replace(kernel, launches=(short,))
    is_long = when(opposite(short.when))
    return replace(scheduled, launches=(*(replace(each, when=is_long) for each in scheduled.launches), short))


def nan_apart(kernel: Kernel) -> Kernel:
    """Folds for the max or min of floats note NaN apart."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Fold) and expr.monoid in ("max", "min") and expr.value.dtype.is_float:
            return replace(expr, monoid=f"{expr.monoid}_apart")
        return expr

    return primitives.with_bodies(kernel, lambda body: rewrite(body, change))


def _is_full(body: primitives.Statements) -> bool:
    """A fold at the root, where one thread would take long for it, or for what follows; blocks of it can be merged."""
    fold = any(not is_ordered(fold_of(let)) for let in lets_of_folds(body))
    return fold and not all(primitives.is_small(s, BLOCK) for s in body)
