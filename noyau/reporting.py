"""What is told of an optimised model: the record of each kernel, of the whole, and of what was left alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from noyau.builders import cc
from noyau.judging import Judged, Seen, sizes_of
from noyau.passes.costs import bytes_moved
from noyau.passes.partition import Partition
from noyau.planning import Plan
from noyau.reports.machine import this_machine
from noyau.reports.records import EndToEnd, KernelRecord, NotFused, Report
from noyau.timing.bandwidth import copy_rate, floor_ratio
from noyau.timing.comparing import Comparison


def report_of(
    model: str,
    nodes: tuple[int, int],
    left: Sequence[NotFused],
    judged: Sequence[Judged],
    whole: Comparison | None,
    seen: Seen,
    notes: Sequence[str],
    options: cc.Options,
    threads: int,
) -> Report:
    """The report of one run; `nodes` counts the model's before and after, `notes` say where the inputs came from."""
    return Report(
        this_machine(options),
        model,
        nodes[0],
        nodes[1],
        ceiling(judged, whole, seen, threads),
        tuple(record(one, seen, threads) for one in judged),
        EndToEnd() if whole is None else end_to_end(whole),
        tuple(left),
        tuple(notes),
    )


def record(judged: Judged, seen: Seen, threads: int) -> KernelRecord:
    """One kernel's line."""
    moved, comparison = moved_bytes(judged, seen), judged.comparison
    exact = judged.certificate
    made = KernelRecord(
        judged.planned.operator,
        len(judged.planned.groups),
        judged.planned.replaces,
        "c",
        bytes=moved,
        error=exact.kernel.worst_ulp,
        error_unfused=exact.unfused.worst_ulp,
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
        floor_ratio=floor_ratio(moved, comparison.after_median_s, threads),
        after_s=comparison.after_median_s,
    )


def moved_bytes(judged: Judged, seen: Seen) -> int:
    """The bytes that the kernel must move in its first place, for the sizes that it was timed with."""
    group = judged.planned.groups[0]
    return int(bytes_moved(group.kernel).evaluate(sizes_of(group, seen)))


def end_to_end(whole: Comparison) -> EndToEnd:
    return EndToEnd(whole.before_median_s, whole.after_median_s, whole.verdict, whole.speedup)


def ceiling(judged: Iterable[Judged], whole: Comparison | None, seen: Seen, threads: int) -> float | None:
    """The most that fusing could gain (Amdahl): every place of every kernel at the time of a copy of its bytes."""
    if whole is None:
        return None
    total_s = left_s = whole.before_median_s
    for one in judged:
        if one.comparison is not None:
            places, moved = len(one.planned.groups), moved_bytes(one, seen)
            floor_s = moved / copy_rate(moved, threads)
            left_s -= places * max(one.comparison.before_median_s - floor_s, 0.0)
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
