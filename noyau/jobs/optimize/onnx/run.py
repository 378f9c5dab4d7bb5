"""The main job: from a model to its fused twin and a report, with remarks and the estimated gain of fusing."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.codegen import plan as codegen_plan
from noyau.errors import InputError
from noyau.frontends.onnx_messages import every_node, tensors_of
from noyau.hosts.onnxruntime import model_files, source_model
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.inputs import ModelInputs, model_names, spell
from noyau.hosts.onnxruntime.products import FEW_BITS
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import SourceModel, foreign_operators, fused_operators, open_model
from noyau.jobs.optimize import pipeline
from noyau.jobs.optimize.onnx.cuda_kernels import split_target, with_ptx
from noyau.jobs.optimize.onnx.host import OnnxHost, SizeSchedule
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.options import DEFAULTS, DEVICES, Deadline, OptimizeOptions, check_options
from noyau.jobs.optimize.onnx.whole_model import FinalModel, Whole
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, Optimization, Say, decisive
from noyau.jobs.optimize.record import EndToEnd, Evidence, Report, binding, not_fused, record, uncovered_nodes
from noyau.text import collect, path_of, printable
from noyau.timing import rates
from noyau.timing.comparison import allowed_s
from noyau.timing.conditions import Conditions, conditions
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Verdict
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.input_files import load_samples

if TYPE_CHECKING:
    import onnx

log = logging.getLogger("noyau")


@dataclass(frozen=True, slots=True)
class OptimizedModel:
    """A model with its winning kernels: what `optimize` returns. `candidates` has every kernel with its evidence."""

    model: onnx.ModelProto
    library: Path | None
    folder: Path
    report: Report
    candidates: tuple[Candidate, ...]
    home: tempfile.TemporaryDirectory[str] | None = None  # the folder of a model that came without a file

    def __repr__(self) -> str:
        count = sum(one.kept for one in self.candidates)
        return f"<{self.report.model} with {count} of {len(self.candidates)} kernels; .report tells of them>"

    def save(self, path: str | Path) -> None:
        """Write OUT.onnx, and OUT.so beside it if there are kernels, once both open; OutputError if that fails."""
        trial = partial(source_model.require_opening, before=self.folder / self.report.model)
        trials = (trial,) if self.report.is_changed else ()  # an unchanged model may be unable to open anywhere
        model_files.save(self.model, self.library, path_of(path, "save() takes"), self.folder, *trials)

    def session(self, *, threads: int = 0) -> Any:
        return open_session(self.model.SerializeToString(), self.library, threads=threads, folder=self.folder)

    def source(self, kernel: str) -> str:
        """The text of a kernel, kept or not, under its certificate; InputError if none has that name."""
        planned = codegen_plan.kernel_named(kernel, (one.planned for one in self.candidates))
        return planned.explain(next(one.evidence for one in self.candidates if one.planned is planned))


def optimize_proto(model: onnx.ModelProto, wishes: OptimizeOptions = DEFAULTS) -> OptimizedModel:
    """Do as `optimize`, with a model in memory, which is not changed; its external data has to be loaded."""
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    from noyau.frontends.onnx.tensors import is_external

    if any(map(is_external, tensors_of(model.graph))):
        remedy = "give its path, or onnx.load_external_data_for_model(model, FOLDER)"
        raise InputError(f"the model names weights in other files: {remedy}")
    home = tempfile.TemporaryDirectory(prefix="noyau-")
    path = Path(home.name) / "model.onnx"
    try:
        path.write_bytes(model.SerializeToString())
    except (ValueError, EncodeError) as error:
        raise InputError("the model has more than 2 GB: save it with external data, and give its path") from error
    return replace(optimize(path, wishes), home=home)


def optimize(path: str | Path, wishes: OptimizeOptions = DEFAULTS, say: Say = log.info) -> OptimizedModel:
    """Fuse what can be fused; keep the kernels that are right and win. `say` receives a line for each step.

    ModelError for a file that is no model, or that onnxruntime cannot run; InputError for invalid options or inputs
    that do not fit; BuildError without a compiler; MissingExtraError without onnxruntime."""
    check_options(wishes)
    wishes = replace(wishes, budget_s=allowed_s(wishes.budget_s))
    deadline = Deadline(wishes.within_s)
    say(f"reading {Path(path).name}")
    wide = not (wishes.ops or wishes.between or wishes.weights != "none" or wishes.device != DEVICES[0])
    original, calibration = open_model(Path(path), flat=True, sizes=wishes.fix_dims, wide=wide), []
    if wishes.calibration is not None:
        stored = frozenset(original.imported.initializers)
        samples = load_samples(Path(wishes.calibration), original.feed_model.graph, without=stored)
        calibration = [each.arrays for each in samples]
    level, named = split_target(wishes.target)
    architectures = with_ptx(named) if wishes.device != DEVICES[0] else ()
    options = c_compiler.CompilerOptions(target=c_compiler.resolve_target(level), export=True)
    with Workers() as workers:
        host = OnnxHost(original, wishes, options, workers, deadline, say, calibration, architectures)
        outcome = pipeline.optimize(host, wishes.keep, say)
    bench = outcome.installed.bench
    sign(bench, outcome.candidates, options.target)
    report = report_of(outcome, host.schedule, options, (host.start, conditions()))
    return OptimizedModel(bench.fused, bench.library, original.folder, report, outcome.candidates)


def sign(bench: OnnxBench, candidates: Sequence[Candidate], target: str) -> None:
    """Write each kept kernel's description and certificate into its function, the model's origin into the metadata."""
    texts = {one.planned.operator: one.planned.both_texts for one in candidates}
    model_files.sign(bench.fused, bench.original.path, target, texts, bench.library)
    fields = {one.planned.operator: codegen_plan.describe(one.planned, one.evidence) for one in candidates if one.kept}
    for function in bench.fused.functions:
        if is_own(function.domain) and function.name in fields:
            function.doc_string = fields[function.name]


def report_of(
    outcome: Optimization[FinalModel],
    schedule: SizeSchedule,
    options: c_compiler.CompilerOptions,
    meanwhile: tuple[Conditions, Conditions],
) -> Report:
    """The report of one run: the kernels, the whole model, and why the rest is unchanged."""
    bench, whole, candidates = outcome.installed.bench, outcome.installed.whole, outcome.candidates
    original, feeds, decider = bench.original, schedule.feeds, decisive(whole.timings)
    before, after = (len(list(every_node(model.graph.node))) for model in (original.runnable, bench.fused))
    gain = None if decider is None or not candidates else ceiling(candidates, decider)
    left = not_fused(uncovered_nodes(original.labels, outcome.partition, outcome.plan))
    notes = (*feeds.notes, *remarks(original, feeds, candidates, whole), *schedule.notes)
    evidence = Evidence(candidates, original, outcome.partition, outcome.plan, bench.fused)
    head = this_machine(options), original.name, before, after, gain, tuple(map(record, candidates))
    ends = end_to_end(whole, candidates), left, notes, meanwhile, outcome.installed.weights
    return Report(*head, *ends, evidence=evidence)


def remarks(original: SourceModel, feeds: ModelInputs, candidates: Sequence[Candidate], whole: Whole) -> Iterator[str]:
    """Yield further remarks for a reader: on the model, the inputs, the checks and the clock."""
    if original.conversion:
        yield original.conversion
    if feeds.made_up and feeds.small.sizes != feeds.full.sizes and candidates:
        yield f"kernels are checked on smaller ones, of {spell(model_names(original.imported, feeds.small.sizes))}"
    if feeds.searched:
        sizes = spell(model_names(original.imported, feeds.full.sizes))
        yield f"it does not run with the usual sizes: {sizes} were found by trying; --dim or --inputs gives others"
    yield from (f"{one.planned.operator}: {one.note}" for one in candidates if one.note)
    yield from joint_timings(candidates)
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


def joint_timings(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield a line on the kernels that were timed with calls before them, grouped by the calls."""
    calls = ((one, dict.fromkeys(call for timing in one.timings for call in timing.calls)) for one in candidates)
    kernels = collect((", ".join(map(printable, names)), one.planned.operator) for one, names in calls if names)
    for before, names in kernels.items():
        yield f"timed with the {before} before it, into which onnxruntime folds operators: {', '.join(names)}"


def missing_in_ceiling(candidates: Sequence[Candidate], whole: Whole) -> Iterator[str]:
    """Yield a line on kernels that the ceiling of a binding leaves out, because they were dropped before it."""
    without: dict[str, list[str]] = {}
    for timing in whole.timings if whole.timings and ceiling(candidates, whole.timings[0]) is not None else ():
        lost = [one for one in candidates if one.timings and all(each.sizes != timing.sizes for each in one.timings)]
        if names := ", ".join(one.planned.operator for one in lost):
            without.setdefault(names, []).append(spell(timing.sizes))
    for names, places in without.items():
        yield f"{names}: dropped before the times at {'; '.join(places)}, so not in what fusing could gain there"


def end_to_end(whole: Whole, candidates: Sequence[Candidate]) -> EndToEnd:
    """The record of the whole model; empty but for the reason if it was not timed."""
    if (comparison := whole.comparison) is None:
        return EndToEnd(reason=whole.refused or whole.untimed)
    each = tuple(replace(binding(timing), ceiling=ceiling(candidates, timing)) for timing in whole.timings)
    return EndToEnd(*comparison.medians_s, whole.verdict, comparison.speedup, whole.apart, each)


def ceiling(candidates: Iterable[Candidate], whole: BindingTiming) -> float | None:
    """An estimate of what fusing could gain at one binding (Amdahl): every place of every kernel at its floor. The time
    of a part that ran alone includes the overhead of an empty run, which the model has only once. It is no bound: other
    operators that onnxruntime no longer runs, such as copies between the parts, add to the gain. None if a kernel was
    timed with calls, and so not alone, and if no kernel has a floor, as on a GPU without rates."""
    if any(timing.calls for one in candidates for timing in one.timings):
        return None
    timed = [(len(one.planned.groups), at) for one in candidates for at in one.timings if at.sizes == whole.sizes]
    gains_s = [
        places * at.repeats * rates.gain_s(at.hot.before_median_s - at.idle_s, at.floor_s)
        for places, at in timed
        if at.floor_s is not None
    ]
    return rates.ceiling(whole.hot.before_median_s, gains_s) if gains_s or not timed else None
