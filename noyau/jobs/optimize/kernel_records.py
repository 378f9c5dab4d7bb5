"""The records of candidates and timings, and of the nodes that no kernel replaces, with the reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.jobs.optimize.binding_timing import BindingTiming, decisive, overall
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.record import BindingRecord, KernelRecord, NotFused


def record(candidate: Candidate) -> KernelRecord:
    """One kernel's line; the numbers are of the binding that its verdict rests on."""
    exact, decider = candidate.certificate, decisive(candidate.timings)
    result = KernelRecord(
        candidate.planned.operator,
        len(candidate.planned.groups),
        candidate.planned.replaces,
        candidate.planned.language,
        error=None if exact is None else exact.kernel.worst_relative,
        error_unfused=None if exact is None else exact.unfused.worst_relative,
        kept=candidate.kept,
        reason=candidate.reason,
        bindings=tuple(binding(timing) for timing in candidate.timings),
    )
    if decider is None:
        return result
    comparison = decider.comparison
    return replace(
        result,
        bytes=None if decider.traffic is None else decider.traffic.bytes,
        verdict=overall(timing.verdict for timing in candidate.timings),
        speedup=comparison.speedup,
        speedup_low=comparison.low,
        speedup_high=comparison.high,
        floor_ratio=decider.floor_ratio,
        after_s=decider.hot.after_median_s,
    )


def binding(timing: BindingTiming) -> BindingRecord:
    """Record of one binding."""
    hot, cold = timing.hot, timing.cold
    return BindingRecord(
        timing.sizes,
        timing.verdict,
        hot.speedup,
        hot.low,
        hot.high,
        timing.floor_ratio,
        hot.before_median_s,
        hot.after_median_s,
        None if cold is None else (cold.speedup, cold.low, cold.high),
        timed_on=timing.timed_on,
        recalled=timing.recalled,
    )


def not_fused(nodes: Iterable[tuple[str, str]]) -> tuple[NotFused, ...]:
    """The nodes that no kernel replaces, given each with its reason, by reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for node, reason in nodes:
        reasons[reason].append(node)
    return tuple(NotFused(tuple(names), reason) for reason, names in reasons.items())


def left_alone(names: Sequence[str], partition: Partition, plan: Plan) -> Iterator[tuple[str, str]]:
    """The nodes that are in no kernel, by their names, with the reasons; none beyond `names`."""
    covered = {position for kernel in plan.kernels for group in kernel.groups for position in group.positions}
    reasons: dict[str, set[int]] = defaultdict(set)
    for cut in partition.cuts:
        if cut.consumer is None and cut.producer not in covered:
            reasons[cut.reason].add(cut.producer)
    for group, reason in plan.refused:
        reasons[reason].update(group.positions)
    for reason, positions in reasons.items():
        yield from ((names[position], reason) for position in sorted(positions) if position < len(names))
