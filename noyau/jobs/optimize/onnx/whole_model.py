"""The whole model, before and after: timed at each binding, and never handed back slower than it was."""

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noyau.codegen.plan import PlannedKernel
from noyau.errors import CheckError, NoyauError, UnsupportedError
from noyau.hosts.onnxruntime.bodies import restore_bodies
from noyau.hosts.onnxruntime.inputs import spell
from noyau.hosts.onnxruntime.runs import BoundRun, PlainRun, ends_run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import fault_alone, foreign_operators, optimized_operators
from noyau.hosts.onnxruntime.write_back import library, put_back
from noyau.jobs.optimize.onnx.kernel_timing import Arrays, BenchmarkCase, OnnxBench, stamps
from noyau.jobs.optimize.pipeline import AS_FAST_FROM, BindingTiming, Candidate, Say, decisive, losing, overall
from noyau.jobs.optimize.record import WeightRecord
from noyau.jobs.optimize.weight_choice import distance
from noyau.kernels.certificates import timing_key
from noyau.text import printable
from noyau.timing.comparison import compare
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cache import today
from noyau.workers.array_files import read_arrays

_ROUNDING = 1e-3  # a distance that rounding explains; beyond it, the original is run twice to see if it is random


def models_apart(
    before: Path, after: Path, *, library: Path | None, inputs: Sequence[Mapping[str, Any]], **options: Any
) -> float | None:
    """In the worker: the distance of two models' outputs. CheckError if only the fused one fails to open or run."""
    arrays = read_arrays(inputs)
    run_before = ends_run(open_session(before.read_bytes(), **options), arrays)
    try:
        run_after = ends_run(open_session(after.read_bytes(), library, **options), arrays)
    except NoyauError as error:
        raise CheckError(f"with its kernels, {error}") from error
    return output_distance(run_before, run_after)


def output_distance(before: BoundRun | PlainRun, after: BoundRun | PlainRun) -> float | None:
    """The largest distance of the outputs of two callables, as `Whole.apart`."""
    before()
    after()
    first = {name: array.copy() for name, array in before.results().items()}
    largest = max((distance(first[name], array) for name, array in after.results().items()), default=None)
    if largest is None or largest < _ROUNDING:
        return largest
    before()  # a model that draws random numbers differs from itself
    again = max(distance(first[name], array) for name, array in before.results().items())
    return largest if again < _ROUNDING else None


def twin_distance(bench: OnnxBench, arrays: Arrays) -> float | None:
    """`Whole.apart` of the model and its fused twin, from a worker process or from the cache of an earlier run."""
    original, models = bench.original, (bench.original.before, bench.fused)
    contents = [model.SerializeToString() for model in models]
    values = (part for name, array in sorted(arrays.items()) for part in (name, array.tobytes()))
    parts = ("apart", bench.device, *contents, *stamps(original.model, original.folder), *values)
    key = timing_key(parts, arrays, bench.threads)
    known = cache.recall(key)
    if isinstance(known, dict) and "apart" in known:
        return known["apart"]  # type: ignore[no-any-return]
    with bench.workers.write(arrays) as (folder, inputs):
        for name, content in zip(("before", "after"), contents, strict=True):
            (folder / name).write_bytes(content)
        options: dict[str, Any] = {"folder": original.folder.absolute(), "prepacked": original.prepacked}
        options |= {"threads": bench.threads, "library": bench.library, "inputs": inputs, "device": bench.device}
        distance = bench.workers.workers[0].ask(models_apart, folder / "before", folder / "after", **options)
    cache.keep(key, {"apart": distance})
    return distance


log = logging.getLogger("noyau")
ATTEMPTS = 4  # at a model that is not slower, each with fewer kernels, before the original is handed back
FIRST_LOOK = 1 / 3  # share of a comparison's budget for the look at a file without its library
LIMIT_S = 30.0  # for all bindings that the user did not ask for
PATIENCE_S = 300.0  # the timeout of one answer: large models take long to open


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole model before and after, at each binding where it was timed; `notes` say why it was not at another.
    `apart`: the largest distance of their outputs over the largest output; inf if anything but floats differs, None if
    the original's outputs vary from run to run, or are not at hand. `untimed`: why it was not timed at all, `fault`:
    why the model does not run with its kernels. `refused`: why the original model was handed back, which this then
    describes."""

    timings: tuple[BindingTiming, ...] = ()
    apart: float | None = None
    notes: tuple[str, ...] = ()
    untimed: str = ""
    fault: str = ""
    refused: str = ""

    @property
    def comparison(self) -> Comparison | None:
        """The comparison that decides the verdict, or None if it was not timed."""
        decider = decisive(self.timings)
        return None if decider is None else decider.comparison

    @property
    def loser(self) -> BindingTiming | None:
        """The timing that speaks against the fused model: without a gain anywhere, one that may be slower."""
        gains = any(timing.verdict is Verdict.FASTER for timing in self.timings)
        return losing(self.timings, AS_FAST_FROM if gains else 1.0)

    @property
    def verdict(self) -> Verdict | None:
        return overall(timing.verdict for timing in self.timings) if self.timings else None


@dataclass(frozen=True, slots=True)
class FinalModel:
    """The model that is handed back with its library (`bench`), all kernels, the timings; and its weights in few
    bits."""

    bench: OnnxBench
    candidates: tuple[Candidate, ...]
    whole: Whole
    weights: WeightRecord | None = None


def settle(
    bench: OnnxBench,
    candidates: Sequence[Candidate],
    scenes: Sequence[BenchmarkCase],
    options: c_compiler.CompilerOptions,
    keep: str = "faster",
    limit_s: float = math.inf,
    say: Say = log.info,
) -> FinalModel:
    """Settle which kernels stay in the model, timed in the scenes. If it is slower in one, kernels are dropped, the
    worst there first, until it is not, or none is left; likewise if it does not run with them."""
    before, candidates = candidates, without_unopenable(bench, candidates)
    reason = next((now.reason for one, now in zip(before, candidates, strict=True) if one.kept and not now.kept), "")
    for worker in bench.workers.workers:
        worker.patience_s = max(worker.patience_s, PATIENCE_S)
    for attempt in itertools.count():
        bench = with_kernels(bench, [one.planned for one in candidates if one.kept], options)
        if bench.library is None:
            whole = Whole(refused=reason or (bench.activations.fault if candidates else ""))
            break
        say("timing the whole model" if not attempt else f"timing the whole model with fewer kernels, {attempt}")
        guilty, is_handed = [one for one in candidates if one.kept], keep == "all" or _untimed_reason(bench, scenes)
        reason, loser = ("", None) if is_handed else loss_alone(bench, scenes, limit_s)
        if reason:
            guilty = suspects_alone(bench, guilty) or guilty
        else:
            whole = time_whole(bench, scenes, limit_s)
            reason, loser = "" if keep == "all" else loss_of(whole), whole.loser
        if not reason:
            break
        count = 2**attempt if attempt < ATTEMPTS and loser else len(guilty)
        candidates = without_worst(candidates, count, loser, reason, guilty)
    return FinalModel(bench, candidates, whole)


def without_unopenable(bench: OnnxBench, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Drop the kernels, singly or all, with which the file would not open without its library."""

    def fault_of(those: Sequence[Candidate]) -> str:
        return fault_alone(bench.original, with_kernels(bench, [one.planned for one in those]).fused)

    kept = [one for one in candidates if one.kept]
    fault = fault_of(kept) if kept else ""
    faults = {one.planned.operator: fault_of([one]) for one in kept} if fault else {}
    if not any(faults.values()):
        faults = dict.fromkeys(faults, fault)
    return drop(candidates, {name: f"without its library {fault}" for name, fault in faults.items() if fault})


def drop(candidates: Sequence[Candidate], reasons: Mapping[str, str]) -> tuple[Candidate, ...]:
    """The candidates; those with an entry in `reasons`, by the name of the kernel, are not kept."""
    named = [(one, reasons.get(one.planned.operator)) for one in candidates]
    return tuple(replace(one, kept=False, reason=reason) if reason else one for one, reason in named)


def with_kernels(
    bench: OnnxBench, kernels: Sequence[PlannedKernel], options: c_compiler.CompilerOptions | None = None
) -> OnnxBench:
    """The bench of the model with these kernels, and with their library if there are options to link it; without
    kernels, of the original model."""
    original = bench.original
    flat = put_back(original.model, kernels, original.folder) if kernels else original.model
    fused = (restore_bodies(flat, original.bodies) if original.bodies else flat) if kernels else original.before
    built = None if options is None else library(kernels, options, fused)
    return replace(bench, flat=flat, fused=fused, library=built)


def loss_of(whole: Whole) -> str:
    """Why the fused model is not handed back, or an empty text: in doubt, the original is."""
    if whole.fault:
        return f"the whole model does not run with it: {whole.fault}"
    if not whole.timings:
        return f"the whole model was not timed: {whole.untimed}; --keep all keeps it all the same"
    return f"the whole model is {whole.loser}" if whole.loser else ""


def loss_alone(bench: OnnxBench, scenes: Sequence[BenchmarkCase], limit_s: float) -> tuple[str, BindingTiming | None]:
    """Why a file cannot be handed over because of its behaviour without its library, and the timing that shows it; or
    an empty text: onnxruntime optimizes it to other nodes than the original, and it is slower."""
    models = bench.original.before, bench.fused
    plain = replace(bench, library=None, enough=_is_clear_alone, budget_s=FIRST_LOOK * bench.budget_s)
    try:
        before, after = (optimized_operators(bench.original, model) for model in models)
        if before == after:
            return "", None
        loser = losing([*filter(None, plain.compare(*models, scenes, "alone", limit_s))], AS_FAST_FROM)
    except UnsupportedError:  # strings, or inputs that are no tensors
        return "", None
    except NoyauError as error:
        return f"without its library {error}", None
    return f"without its library the whole model is {loser}" if loser else "", loser


def _is_clear_alone(comparison: Comparison) -> bool:
    """Whether the comparison settles if the file is fast enough without its library, or is as narrow as it gets."""
    return comparison.low > AS_FAST_FROM or comparison.high < AS_FAST_FROM or comparison.is_narrow


def suspects_alone(bench: OnnxBench, kept: Sequence[Candidate]) -> list[Candidate]:
    """The kernels each of which alone makes onnxruntime optimize the file, without its library, to other nodes than the
    model in the opset that is written."""
    own = optimized_operators(bench.original, bench.original.runnable)
    twins = (with_kernels(bench, [one.planned]).fused for one in kept)
    return [one for one, twin in zip(kept, twins, strict=True) if optimized_operators(bench.original, twin) != own]


def without_worst(
    candidates: Sequence[Candidate], count: int, loser: BindingTiming | None, reason: str, guilty: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """Drop `count` of the guilty kernels: the ones that gain least at the binding where the model loses."""
    worst = sorted(guilty, key=lambda one: gain_s(one, loser.sizes if loser else {}))[:count]
    return drop(candidates, {one.planned.operator: reason for one in worst})


def gain_s(candidate: Candidate, sizes: Mapping[str, int]) -> float:
    """The seconds that a kernel saves in all its places at a binding; 0 if that is not known."""
    own_s = (each.hot.before_median_s - each.hot.after_median_s for each in candidate.timings if each.sizes == sizes)
    return len(candidate.planned.groups) * next(own_s, 0.0)


def time_whole(bench: OnnxBench, scenes: Sequence[BenchmarkCase], limit_s: float = math.inf) -> Whole:
    """Time the model before and after, as onnxruntime optimizes both; later scenes that take long are left out."""
    original, text = bench.original, "" if bench.library is None else bench.library.name
    if untimed := _untimed_reason(bench, scenes):
        return Whole(untimed=untimed)
    in_file = "the whole model is timed with its weights as they lie in the file, not copied"
    notes: tuple[str, ...] = () if original.prepacked else (in_file,)
    try:
        moved = twin_distance(bench, scenes[0].arrays)
        timings = bench.compare(original.before, bench.fused, scenes, text, limit_s)
    except UnsupportedError:  # strings, and values that are no tensors, cannot go to another process
        return replace(_time_here(bench, scenes[0]), notes=notes)
    except NoyauError as error:
        if isinstance(error, CheckError) or len(scenes) == 1:
            return Whole(notes=notes, untimed=str(error), fault=str(error) if isinstance(error, CheckError) else "")
        whole = time_whole(bench, scenes[:1])
        note = f"the whole model is timed at {spell(scenes[0].sizes)} alone, for it does not run at others: {error}"
        return replace(whole, notes=(*whole.notes, note))
    late = [spell(scene.sizes) for scene, timing in zip(scenes, timings, strict=True) if timing is None]
    notes += tuple(f"the whole model is not timed at {at}: it takes long; --dim asks for that" for at in late)
    return Whole(tuple(timing for timing in timings if timing is not None), moved, notes)


def _untimed_reason(bench: OnnxBench, scenes: Sequence[BenchmarkCase]) -> str:
    """Why the whole model cannot be timed, as far as is known beforehand, or an empty text."""
    if foreign := foreign_operators(bench.original.runnable):
        return f"{printable(next(iter(foreign.values())))} is no operator of plain onnxruntime"
    missing = "not all of its inputs can be made up: give --inputs F.npz"
    return bench.deadline.fault or bench.activations.fault or ("" if scenes else missing)


def _time_here(bench: OnnxBench, scene: BenchmarkCase) -> Whole:
    """Do as `time_whole`, in this process and in one scene."""
    original, arrays = bench.original, scene.arrays
    before = ends_run(original.session(original.before, threads=bench.threads), arrays)
    after = ends_run(original.session(bench.fused, bench.library, threads=bench.threads), arrays)
    moved, comparison = output_distance(before, after), compare(before, after, budget_s=bench.budget_s)
    return Whole((BindingTiming(scene.sizes, comparison, timed_on=today()),), moved)
