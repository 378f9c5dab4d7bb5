"""What is told of an optimised model: the record of each kernel, of the whole, and of what was left alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from noyau.builders import cc
from noyau.checking.inputs import printable
from noyau.errors import InputError
from noyau.feeding import Feeds
from noyau.judging import Bench, Judged, Whole
from noyau.original import Original, already_fused, foreign
from noyau.passes.costs import bytes_moved
from noyau.passes.partition import Partition
from noyau.planning import Plan
from noyau.reports.machine import this_machine
from noyau.reports.records import EndToEnd, KernelRecord, NotFused, Report
from noyau.seeing import Seen
from noyau.timing.bandwidth import copy_rate, floor_ratio


def report_of(
    bench: Bench, cut: Partition, plan: Plan, feeds: Feeds, judged: Sequence[Judged], whole: Whole, options: cc.Options
) -> Report:
    """The report of one run; the bench has the model as it was and as it came out."""
    original, seen, threads = bench.original, bench.seen, bench.threads
    return Report(
        this_machine(options),
        original.name,
        len(original.model.graph.node),
        len(bench.fused.graph.node),
        ceiling(judged, whole, seen, threads),
        tuple(record(one, seen, threads) for one in judged),
        end_to_end(whole),
        tuple(not_fused(cut, plan, original.operators)),
        (*feeds.asked.notes, *remarks(original, feeds, judged, whole)),
    )


def remarks(original: Original, feeds: Feeds, judged: Sequence[Judged], whole: Whole) -> Iterator[str]:
    """What else a reader has to know of the inputs, of the checks and of the clock."""
    if feeds.made_up and feeds.small.sizes != feeds.asked.sizes and judged:
        called = original.imported.sizes
        sizes = (f"{printable(called.get(name, name))}={size}" for name, size in feeds.small.sizes.items())
        yield f"kernels are checked on smaller ones, of {', '.join(sizes)}"
    yield from (f"{one.planned.operator}: {one.note}" for one in judged if one.note)
    found = already_fused(original.model)
    if found:
        names = ", ".join(printable(f"{count} {name}") for name, count in found.items())
        yield f"already fused by onnxruntime: {names}{'' if judged else '; nothing else is left to fuse'}"
    for operator in dict.fromkeys(foreign(original.model).values()):
        yield f"{printable(operator)} is no operator of plain onnxruntime: what needs it is neither captured nor timed"
    for name in feeds.missing:
        yield f"{printable(name)}: of a type that cannot be made up: what needs it is not timed; give --inputs F.npz"
    yield from filter(None, [whole.note])


def record(judged: Judged, seen: Seen, threads: int) -> KernelRecord:
    """One kernel's line."""
    moved, comparison, exact = moved_bytes(judged, seen), judged.comparison, judged.certificate
    made = KernelRecord(
        judged.planned.operator,
        len(judged.planned.groups),
        judged.planned.replaces,
        "c",
        bytes=moved,
        error=None if exact is None else exact.kernel.worst_relative,
        error_unfused=None if exact is None else exact.unfused.worst_relative,
        kept=judged.kept,
        reason=judged.reason,
    )
    if comparison is None:
        return made
    return replace(
        made,
        verdict=comparison.verdict,
        speedup=comparison.speedup,
        speedup_low=comparison.low,
        speedup_high=comparison.high,
        floor_ratio=None if moved is None else floor_ratio(moved, comparison.after_median_s, threads),
        after_s=comparison.after_median_s,
    )


def moved_bytes(judged: Judged, seen: Seen) -> int | None:
    """The bytes that the kernel must move in its first place, for the sizes that it was timed with; None where a size
    is not known."""
    group = judged.planned.groups[0]
    moved = bytes_moved(group.kernel)
    try:
        sizes = seen.sizes_of(group.original)
    except InputError:  # its inputs have not the shapes that the import gave them; it is dropped for that
        return None
    return int(moved.evaluate(sizes)) if moved.names <= sizes.keys() else None


def end_to_end(whole: Whole) -> EndToEnd:
    """The record of the whole model; empty where it was not timed."""
    found = whole.comparison
    if found is None:
        return EndToEnd()
    return EndToEnd(found.before_median_s, found.after_median_s, found.verdict, found.speedup, whole.apart)


def ceiling(judged: Iterable[Judged], whole: Whole, seen: Seen, threads: int) -> float | None:
    """The most that fusing could gain (Amdahl): every place of every kernel at the time of a copy of its bytes."""
    if whole.comparison is None:
        return None
    total_s = left_s = whole.comparison.before_median_s
    for one in judged:
        moved = moved_bytes(one, seen)
        if one.comparison is not None and moved is not None:
            floor_s = moved / copy_rate(moved, threads)
            left_s -= len(one.planned.groups) * max(one.comparison.before_median_s - floor_s, 0.0)
    return total_s / left_s if left_s > 0.05 * total_s else None


def not_fused(cut: Partition, plan: Plan, operators: Sequence[str]) -> list[NotFused]:
    """The operators that no kernel replaces, by reason."""
    reasons: dict[str, list[int]] = defaultdict(list)
    covered = {position for kernel in plan.kernels for group in kernel.groups for position in group.positions}
    for one in cut.cuts:
        if one.consumer is None and one.producer not in covered:
            reasons[one.reason].append(one.producer)
    for group, reason in plan.refused:
        reasons[reason] += group.positions
    return [
        NotFused(tuple(f"{operators[position]}#{position}" for position in sorted(set(positions))), reason)
        for reason, positions in reasons.items()
    ]
