"""What is told of an optimised model: the record of each kernel, of the whole, and of what was left alone.

What a report tells of a kernel that was judged, whatever it was judged for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from noyau.codegen.plan import Plan, Planned
from noyau.compiler.partition.cut import Partition
from noyau.hosts.onnxruntime.inputs import Feeds
from noyau.hosts.onnxruntime.size_bindings import spell
from noyau.hosts.onnxruntime.source_model import Original, already_fused, foreign
from noyau.jobs.optimize.onnx.candidates import Judged
from noyau.jobs.optimize.onnx.decision import Timing, deciding, overall
from noyau.jobs.optimize.onnx.whole_model import Settled, Whole
from noyau.jobs.optimize.record import BindingRecord, EndToEnd, KernelRecord, NotFused, Report
from noyau.text import printable
from noyau.timing import amdahl
from noyau.timing.comparison import Verdict
from noyau.timing.conditions import Conditions
from noyau.timing.machine import this_machine
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.certificate import Certificate


class Evidence(Protocol):
    """A kernel with what was found: its certificate, its timings where it came to that, and whether it is kept."""

    @property
    def planned(self) -> Planned: ...
    @property
    def certificate(self) -> Certificate | None: ...
    @property
    def timings(self) -> tuple[Timing, ...]: ...
    @property
    def kept(self) -> bool: ...
    @property
    def reason(self) -> str: ...


def record(judged: Evidence, language: str = "c") -> KernelRecord:
    """One kernel's line; the numbers are of the binding that its verdict rests on."""
    exact, decider = judged.certificate, deciding(judged.timings)
    made = KernelRecord(
        judged.planned.operator,
        len(judged.planned.groups),
        judged.planned.replaces,
        language,
        error=None if exact is None else exact.kernel.worst_relative,
        error_unfused=None if exact is None else exact.unfused.worst_relative,
        kept=judged.kept,
        reason=judged.reason,
        bindings=tuple(binding(timing) for timing in judged.timings),
    )
    if decider is None:
        return made
    found = decider.comparison
    return replace(
        made,
        bytes=None if decider.traffic is None else decider.traffic.bytes,
        verdict=overall(timing.verdict for timing in judged.timings),
        speedup=found.speedup,
        speedup_low=found.low,
        speedup_high=found.high,
        floor_ratio=decider.floor_ratio,
        after_s=decider.hot.after_median_s,
    )


def binding(timing: Timing) -> BindingRecord:
    """What came of one binding."""
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


def report_of(
    settled: Settled,
    cut: Partition,
    plan: Plan,
    feeds: Feeds,
    options: c_compiler.Options,
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
        len(one.planned.groups) * amdahl.gain_s(timing.hot.before_median_s - timing.idle_s, timing.floor_s)
        for one in judged
        for timing in one.timings
        if timing.sizes == whole.sizes and timing.floor_s is not None
    ]
    return amdahl.ceiling(whole.hot.before_median_s, gains_s)


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
