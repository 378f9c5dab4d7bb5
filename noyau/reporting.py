"""What is told of an optimised model: the record of each kernel, of the whole, and of what was left alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from noyau.builders import cc
from noyau.checking.inputs import printable
from noyau.feeding import Feeds
from noyau.judging.bindings import spell
from noyau.judging.deciding import Timing, deciding
from noyau.judging.kernels import Judged
from noyau.judging.telling import binding, record
from noyau.judging.whole import Settled, Whole
from noyau.original import Original, already_fused, foreign
from noyau.passes.partition import Partition
from noyau.planning import Plan
from noyau.profiling import ceilings
from noyau.reports.machine import this_machine
from noyau.reports.records import EndToEnd, NotFused, Report
from noyau.timing.comparing import Verdict
from noyau.timing.conditions import Conditions


def report_of(
    settled: Settled,
    cut: Partition,
    plan: Plan,
    feeds: Feeds,
    options: cc.Options,
    meanwhile: tuple[Conditions, Conditions],
    notes: Sequence[str] = (),
) -> Report:
    """The report of one run: what was settled on, and why the rest is as it is. `notes`: what else is to be said."""
    bench, judged, whole = settled.bench, settled.judged, settled.whole
    original, decider = bench.original, deciding(whole.timings)
    return Report(
        this_machine(options),
        original.name,
        len(original.model.graph.node),
        len(bench.fused.graph.node),
        None if decider is None else ceiling(judged, decider),
        tuple(record(one) for one in judged),
        end_to_end(whole, judged),
        tuple(not_fused(cut, plan, original.operators)),
        (*feeds.asked.notes, *remarks(original, feeds, judged, whole), *notes),
        meanwhile,
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
    yield from whole.notes
    yield from left_out(judged, whole)
    for timing in whole.timings:
        if timing.verdict is Verdict.AMBIGUOUS:
            yield f"the whole model, {timing}; {timing.comparison.advice}"
    timings = [*whole.timings, *(timing for one in judged for timing in one.timings)]
    days = sorted({timing.timed_on for timing in timings if timing.recalled})
    if days:
        some = "" if all(timing.recalled for timing in timings) else "some of the "
        yield f"{some}times are of earlier runs: timed on {', '.join(days)}; --fresh times anew"


def left_out(judged: Sequence[Judged], whole: Whole) -> Iterator[str]:
    """The kernels that are in no ceiling at some bindings, for they were dropped before they were timed there."""
    without: dict[str, list[str]] = {}
    for timing in whole.timings:
        lost = [one for one in judged if one.timings and all(each.sizes != timing.sizes for each in one.timings)]
        if lost:
            names = ", ".join(one.planned.operator for one in lost)
            without.setdefault(names, []).append(spell(timing.sizes))
    for names, places in without.items():
        yield f"{names}: dropped before the times at {'; '.join(places)}, so not in what fusing could gain there"


def end_to_end(whole: Whole, judged: Sequence[Judged]) -> EndToEnd:
    """The record of the whole model; empty where it was not timed."""
    found = whole.comparison
    if found is None:
        return EndToEnd()
    each = tuple(replace(binding(timing), ceiling=ceiling(judged, timing)) for timing in whole.timings)
    return EndToEnd(found.before_median_s, found.after_median_s, whole.verdict, found.speedup, whole.apart, each)


def ceiling(judged: Iterable[Judged], whole: Timing) -> float | None:
    """The most that fusing could gain at one binding (Amdahl): every place of every kernel at its floor. The time of a
    part that ran alone has in it what a run takes that does nothing; in the model that is there once."""
    gains_s = [
        len(one.planned.groups) * ceilings.gain_s(timing.hot.before_median_s - timing.idle_s, timing.floor_s)
        for one in judged
        for timing in one.timings
        if timing.sizes == whole.sizes and timing.floor_s is not None
    ]
    return ceilings.ceiling(whole.hot.before_median_s, gains_s)


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
