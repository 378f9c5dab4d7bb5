"""The report of a run: the kernels, the whole model, remarks on inputs and clocks, and what fusing could gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from noyau.hosts.onnxruntime.function_bodies import every_node
from noyau.hosts.onnxruntime.inputs import ModelInputs, model_names, spell
from noyau.hosts.onnxruntime.products import FEW_BITS
from noyau.hosts.onnxruntime.source_model import SourceModel, foreign_operators, fused_operators
from noyau.jobs.optimize.candidate import BindingTiming, Candidate, decisive
from noyau.jobs.optimize.onnx.size_schedule import SizeSchedule
from noyau.jobs.optimize.onnx.whole_model import FinalModel, Whole
from noyau.jobs.optimize.pipeline import Optimization
from noyau.jobs.optimize.record import EndToEnd, Evidence, Report, binding, left_alone, not_fused, record
from noyau.text import printable
from noyau.timing import floors
from noyau.timing.conditions import Conditions
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Verdict
from noyau.toolchain.c import compiler as c_compiler


def report_of(
    outcome: Optimization[FinalModel],
    schedule: SizeSchedule,
    options: c_compiler.CompilerOptions,
    meanwhile: tuple[Conditions, Conditions],
) -> Report:
    """The report of one run: the kernels, the whole model, and why the rest is as it is."""
    bench, whole, candidates = outcome.installed.bench, outcome.installed.whole, outcome.candidates
    original, feeds, decider = bench.original, schedule.feeds, decisive(whole.timings)
    return Report(
        this_machine(options),
        original.name,
        len(list(every_node(original.runnable.graph.node))),
        len(list(every_node(bench.fused.graph.node))),
        None if decider is None or not candidates else ceiling(candidates, decider),
        tuple(record(one) for one in candidates),
        end_to_end(whole, candidates),
        not_fused(left_alone(original.labels, outcome.partition, outcome.plan)),
        (*feeds.notes, *remarks(original, feeds, candidates, whole), *schedule.notes),
        meanwhile,
        outcome.installed.weights,
        evidence=Evidence(candidates, original, outcome.partition, outcome.plan, bench.fused),
    )


def remarks(original: SourceModel, feeds: ModelInputs, candidates: Sequence[Candidate], whole: Whole) -> Iterator[str]:
    """Yield what else a reader has to know of the model, the inputs, the checks and the clock."""
    if original.conversion:
        yield original.conversion
    if feeds.made_up and feeds.small.sizes != feeds.full.sizes and candidates:
        yield f"kernels are checked on smaller ones, of {spell(model_names(original.imported, feeds.small.sizes))}"
    if feeds.searched:
        sizes = spell(model_names(original.imported, feeds.full.sizes))
        yield f"it does not run with the usual sizes: {sizes} were found by trying; --dim or --inputs gives others"
    yield from (f"{one.planned.operator}: {one.note}" for one in candidates if one.note)
    yield from timed_together(candidates)
    if fused := fused_operators(original.model):
        names = ", ".join(printable(f"{count} {name}") for name, count in fused.items())
        yield f"already fused by onnxruntime: {names}{'' if candidates else '; nothing else is left to fuse'}"
    for operator in dict.fromkeys(foreign_operators(original.runnable).values()):
        yield f"{printable(operator)} is no operator of plain onnxruntime: what needs it is neither captured nor timed"
    for name in feeds.missing:
        yield f"{printable(name)}: of a type that cannot be made up: what needs it is not timed; give --inputs F.npz"
    few = Counter(name for name in original.operators if name.startswith(FEW_BITS))
    yield from (f"in few bits already, and left as they are: {count} {printable(name)}" for name, count in few.items())
    yield from whole.notes
    yield from missing_in_ceiling(candidates, whole)
    for timing in whole.timings:
        if timing.verdict is Verdict.AMBIGUOUS:
            yield f"the whole model, {timing}; {timing.comparison.advice}"
    timings = [*whole.timings, *(timing for one in candidates for timing in one.timings)]
    if days := sorted({timing.timed_on for timing in timings if timing.recalled}):
        some = "" if all(timing.recalled for timing in timings) else "some of the "
        yield f"{some}times are of earlier runs: timed on {', '.join(days)}; --fresh times anew"


def timed_together(candidates: Sequence[Candidate]) -> Iterator[str]:
    """The kernels that were timed with calls before them, by the calls."""
    kernels: dict[str, list[str]] = {}
    for one in candidates:
        if calls := dict.fromkeys(call for timing in one.timings for call in timing.calls):
            kernels.setdefault(", ".join(map(printable, calls)), []).append(one.planned.operator)
    for before, names in kernels.items():
        yield f"timed with the {before} before it, into which onnxruntime folds operators: {', '.join(names)}"


def missing_in_ceiling(candidates: Sequence[Candidate], whole: Whole) -> Iterator[str]:
    """The kernels that are in no ceiling at some bindings, for they were dropped before they were timed there."""
    without: dict[str, list[str]] = {}
    for timing in whole.timings if whole.timings and ceiling(candidates, whole.timings[0]) is not None else ():
        lost = [one for one in candidates if one.timings and all(each.sizes != timing.sizes for each in one.timings)]
        if names := ", ".join(one.planned.operator for one in lost):
            without.setdefault(names, []).append(spell(timing.sizes))
    for names, places in without.items():
        yield f"{names}: dropped before the times at {'; '.join(places)}, so not in what fusing could gain there"


def end_to_end(whole: Whole, candidates: Sequence[Candidate]) -> EndToEnd:
    """The record of the whole model; empty where it was not timed."""
    if (comparison := whole.comparison) is None:
        return EndToEnd(reason=whole.refused or whole.untimed)
    each = tuple(replace(binding(timing), ceiling=ceiling(candidates, timing)) for timing in whole.timings)
    return EndToEnd(*comparison.medians_s, whole.verdict, comparison.speedup, whole.apart, each)


def ceiling(candidates: Iterable[Candidate], whole: BindingTiming) -> float | None:
    """About what fusing could gain at one binding (Amdahl): every place of every kernel at its floor. The time of a
    part that ran alone has in it what a run takes that does nothing; in the model that is there once. It is no bound:
    what else onnxruntime does not run any more, such as copies between the parts, comes on top. None where a kernel was
    timed with calls, and so not alone."""
    if any(timing.calls for one in candidates for timing in one.timings):
        return None
    gains_s = [
        len(one.planned.groups)
        * timing.repeats
        * floors.gain_s(timing.hot.before_median_s - timing.idle_s, timing.floor_s)
        for one in candidates
        for timing in one.timings
        if timing.sizes == whole.sizes and timing.floor_s is not None
    ]
    return floors.ceiling(whole.hot.before_median_s, gains_s)
