"""Choice of the strategy for a lowered kernel, by its loops, its folds and the strides of its loads."""

from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.argument_bounds import keep_shares, note_signs
from noyau.compiler.schedules.cpu.blocked_folds import BLOCK, full, is_full, rows_before
from noyau.compiler.schedules.cpu.folds import MANY, are_alike, keep_folds, lets_of_folds
from noyau.compiler.schedules.cpu.memory_hints import in_lines, in_whole_tiles, insert_prefetches, write_nontemporal
from noyau.compiler.schedules.cpu.rows_in_lanes import folds_of_folds, has_loops, rows_across, runs_across, short_rows
from noyau.compiler.schedules.cpu.scatters import merges, scatter
from noyau.compiler.schedules.cpu.stages import cut_at_bounds, in_pairs, in_stages, split_by_steps
from noyau.compiler.schedules.cpu.strategies import columns, map_, row, scan
from noyau.compiler.schedules.cpu.transposes import reads_along, transpose
from noyau.compiler.schedules.cpu.turns import turn
from noyau.ir.loops import Expr, Fold, Kernel, Launch, Loop, Role, all_of, opposite, when
from noyau.ir.walk import every_statement, fold_of, folds_in, loads_of, rewrite


def is_columns(body: primitives.Statements) -> bool:
    """Whether the folds are in the innermost loop, alike, and their loads run along that loop, not along the folds."""
    inner, folds = body, folds_in(body)
    while inner and isinstance(inner[-1], Loop):
        variable, inner = inner[-1].var, inner[-1].body
    if inner is body or not folds or list(map(fold_of, lets_of_folds(inner))) != folds or not are_alike(inner):
        return False
    return not any(isinstance(s, Loop) for s in every_statement(inner)) and runs_across(inner, variable)


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of a schedule. `lanes`: partial states of a fold, 0 for as many as suit its length; `kept`: whether a row
    is kept; `around_bytes`: the least bytes of an output that is stored past the caches, 0 for never; `short`: whether
    rows that may be short have a launch of their own, and so rows with contiguous neighbours; `pairs`: whether a lane
    computes two cells of bfloat16; `stages`: whether long computations run in stages; `turned`: whether tiles are
    transposed in memory of the thread, "any" or those of 4-byte cells ("words"); `rests`: whether the rest of a row
    after whole blocks and lanes has loops of its own; `lines`: whether stores past the caches go a few lines at a
    time."""

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
    flat = nan_apart(note_signs(primitives.flatten(keep_folds(kernel))))
    kernel = primitives.each(flat, [launch.body for launch in flat.launches], partial(_one, options=options))
    kernel = insert_prefetches(kernel)
    kernel = in_whole_tiles(write_nontemporal(kernel, options.around_bytes) if options.around_bytes else kernel)
    kernel = cut_at_bounds(kernel)
    kernel = in_pairs(kernel) if options.pairs else kernel
    kernel = keep_shares(in_stages(kernel) if options.stages else kernel)
    kernel = in_lines(kernel) if options.lines else kernel
    kernel = primitives.with_bodies(kernel, lambda body: primitives.change_lanes(body, split_by_steps))
    kernel = primitives.with_bodies(kernel, primitives.sizes_outside)
    return primitives.quotients_outside(kernel)


def _one(kernel: Kernel, options: Options) -> Kernel:
    """A kernel of one launch, scheduled."""
    (launch,) = kernel.launches
    body, again = launch.body, partial(_one, options=options)
    if merges(body):
        return scatter(kernel, lanes=options.lanes or MANY)
    if is_full(body):
        if (first := rows_before(kernel)) is not None:
            return primitives.each(*first, again)
        done, rest = full(kernel, lanes=options.lanes or MANY, rests=options.rests)
        later = primitives.each(done, [rest] if rest else [], again)
        return replace(later, launches=(*done.launches, *later.launches))
    if len(blocks := primitives.apart(body)) > 1:
        return primitives.each(kernel, blocks, again)
    loops, inner = primitives.chain(body)
    pieces = [primitives.nest(loops, piece) for piece in primitives.apart(inner)]
    read = [buffer for piece in pieces for buffer in {load.buffer for load in loads_of(piece)}]
    again_read = len(read) > len(set(read)) and reads_along(body) is not None  # lines, by each piece
    if len(pieces) > 1 and _are_wide(inner) and not again_read:
        return primitives.each(kernel, pieces, again)
    if any(isinstance(s, Loop) and primitives.carries(s) for s in every_statement(body)):
        return scan(kernel, lanes=options.lanes or MANY)
    if not folds_in(body):
        ways = reads_along(body)
        if ways is None:
            return _or_beside(kernel, map_(kernel), short_rows(kernel) if options.short else None)
        words = all(buffer.dtype.bytes == WORD_BYTES for buffer in kernel.of(Role.INPUT))
        worth = options.turned == "any" or (options.turned == "words" and words)
        turned = turn(kernel, along=ways[0], across=ways[1]) if worth else None
        return turned or transpose(kernel, along=ways[0], across=ways[1])
    if all(is_columns(piece) for piece in pieces):
        return columns(kernel) if len(pieces) == 1 else primitives.each(kernel, pieces, again)
    if (of_folds := folds_of_folds(kernel)) is not None:
        return of_folds
    long = row(kernel, lanes=options.lanes, kept=options.kept, rests=options.rests)
    if not options.short:
        return long
    either = _or_beside(kernel, long, short_rows(kernel, kept=options.kept))
    return _or_beside(kernel, either, rows_across(kernel, kept=options.kept))


def _are_wide(pieces: primitives.Statements) -> bool:
    """Whether loops side by side contain loops and many cells, such as the parts of a concatenation of images: the
    loops around all of them may have but a few rounds, the items of a batch, for threads and lanes."""
    nests = [s for s in pieces if isinstance(s, Loop) and has_loops(s)]
    return bool(nests) and not all(primitives.is_small(nest, BLOCK) for nest in nests)


def _or_beside(kernel: Kernel, scheduled: Kernel, other: Launch | None) -> Kernel:
    """A kernel as scheduled for most rows, and beside it the launch for the other rows, if there is one."""
    if other is None:
        return scheduled
    if other.when is None:
        return replace(kernel, launches=(other,))
    rest = opposite(other.when)
    rests = (replace(each, when=when(all_of((rest, each.when or True)))) for each in scheduled.launches)
    return replace(scheduled, launches=(*rests, other))


def nan_apart(kernel: Kernel) -> Kernel:
    """Let folds for the max or min of floats track NaN in a value of its own."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Fold) and expr.monoid in ("max", "min") and expr.value.dtype.is_float:
            return replace(expr, monoid=f"{expr.monoid}_apart")
        return expr

    return primitives.with_bodies(kernel, lambda body: rewrite(body, change))
