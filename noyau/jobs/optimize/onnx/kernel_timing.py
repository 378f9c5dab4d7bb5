"""Kernels timed in onnxruntime, in place of the operators that they replace, at one binding of the sizes; and the
search among options of their schedules, in turns: the best right one is cached by kernel, machine and shape class.

Without a tuning, the usual options are taken; so a text follows from the options in its digest, and from nothing
else."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.codegen.c import printer as c_printer
from noyau.codegen.plan import PlannedKernel
from noyau.codegen.plan import digest as kernel_digest
from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition.cut import Group
from noyau.compiler.partition.traffic import traffic
from noyau.compiler.passes.rewrite import nameless
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options, schedule
from noyau.dtypes import DType
from noyau.errors import InputError, NoyauError, UnsupportedError
from noyau.frontends.onnx_messages import tensors_of
from noyau.hosts.onnxruntime.activations import Activations, folding_calls
from noyau.hosts.onnxruntime.function_bodies import ModelValues, recompute
from noyau.hosts.onnxruntime.runs import FEW_BINDINGS, MOST_BINDINGS, self_timed
from noyau.hosts.onnxruntime.session_workers import Feed, Job, Workers
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.hosts.onnxruntime.submodel import extract, types_of
from noyau.hosts.onnxruntime.write_back import value_type
from noyau.ir.graph import Constant, names_of
from noyau.jobs.optimize.onnx.candidates import compile_kernels
from noyau.jobs.optimize.onnx.options import Deadline
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate
from noyau.kernels.certificates import keep_late, keep_timing, recall_late, recall_timing, timing_key
from noyau.timing.comparison import DECIDED, compare_swapped, join
from noyau.timing.conditions import last_level_bytes
from noyau.timing.machine import this_machine
from noyau.timing.rates import floor_s, mistake
from noyau.timing.rounds import Enough
from noyau.timing.sides import ArraySequence, SelfTimedSide, WorkerSide, hot_sets
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.toolchain.cache import digest, today
from noyau.workers.array_files import read_arrays
from noyau.workers.tamper_detection import seconds
from noyau.workers.worker import pin

if TYPE_CHECKING:
    import onnx

Arrays = Mapping[str, np.ndarray]
MORE_SESSIONS, SESSION_S, MORE_S = 4, 0.6, 8.0  # further sessions of unsure whole models; seconds of one, and of all
Measured = list[BindingTiming | float]  # timings, or the estimated seconds of a scene that would take too long


@dataclass(frozen=True, slots=True)
class BenchmarkCase:
    """Inputs of one timing: arrays by name, and the sizes that they have; `cold`: with cold caches too."""

    sizes: Mapping[str, int]
    arrays: Arrays
    cold: bool = False

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return (Feed(self.arrays), Feed(self.arrays, cold=True))[: 1 + self.cold]


@dataclass(frozen=True, slots=True)
class OnnxBench:
    """Bench of a model: the original and the model with every right kernel, its activations, and their sizes, by the
    model's own names. `flat`: the fused model with its bodies behind its main graph, if it has any. `workers` are the
    processes that time it, on a `device`. `fresh`: timings of earlier runs are not used. `whole`: the whole model is
    timed; AMBIGUOUS timings of earlier runs count, and unsure ones get more sessions. `cold`: kernels are timed with
    cold caches too, where that matters. `idle_s`: the seconds of a run that does nothing. `enough`: how sure a
    comparison has to be; `until_lost`: once a scene is surely slower, or with warm caches, the rest is not timed."""

    original: SourceModel
    fused: onnx.ModelProto
    library: Path | None
    activations: Activations
    workers: Workers
    threads: int = 1
    budget_s: float = 0.6
    sizes: Mapping[str, int] = field(default_factory=dict)
    fresh: bool = False
    whole: bool = False
    enough: Enough = DECIDED
    until_lost: bool = True
    cold: bool = False
    idle_s: float = 0.0
    new_keys: set[str] = field(default_factory=set)  # the cache keys of this run's timings
    deadline: Deadline = field(default_factory=lambda: Deadline(math.inf))
    flat: onnx.ModelProto | None = None
    device: str = "cpu"

    def timing(self, candidate: Candidate) -> BindingTiming:
        """Time the kernel in its first place against the operators there; both with the calls into which onnxruntime
        may fold some of these. InputError if an input is unknown, or time is up; otherwise as `compare`."""
        if self.deadline.passed:
            raise InputError(self.deadline.fault)
        kernel = candidate.planned
        group = kernel.groups[0]
        if fault := self.activations.fault_of(group):
            raise InputError(fault)
        calls = folding_calls(self.original.model, group)
        before, after, read = parts(group, self.original, self.flat or self.fused, self.activations.arrays, calls)
        sizes = self.activations.sizes_of(group.original)
        moved = traffic(group.graph, sizes) if names_of(group.graph) <= sizes.keys() else None
        on_cpu = self.device == "cpu"  # whose caches and memory are known
        cold = self.cold and on_cpu and moved is not None and matters(moved.bytes)
        (timing,) = self.compare(before, after, [BenchmarkCase(self.sizes, read, cold)], kernel.both_texts)
        assert timing is not None
        if moved is None or calls or not on_cpu:  # the floor is that of the kernel alone
            return replace(timing, calls=tuple(self.original.operators[call] for call in calls))
        least = traffic(group.graph, sizes, repeated=True)  # as if every lookup hit the same row
        fault = mistake(timing.hot.after_median_s, least.read_bytes, least.written_bytes, self.threads)
        least_s = floor_s(moved.read_bytes, moved.written_bytes, self.threads)
        repeats = self.activations.repeats(group, self.original.bodies)
        return replace(timing, traffic=moved, floor_s=least_s, idle_s=self.idle_s, repeats=repeats, mistake=fault)

    def compare(
        self,
        before: onnx.ModelProto,
        after: onnx.ModelProto,
        scenes: Sequence[BenchmarkCase],
        text: str,
        limit_s: float = math.inf,
    ) -> list[BindingTiming | None]:
        """Compare `after`, with the library, against `before`, each in a process of its own, in some scenes; or recall
        an earlier run with the same `text` of kernels. A narrowly SLOWER timing is repeated, and only the repetition
        counts. None for a scene after the first that would end after `limit_s`, or that follows a surely slower one.
        UnsupportedError for strings, CheckError for a session that crashes, hangs or gives other results."""
        contents = tuple(model.SerializeToString() for model in (before, after))
        wishes = (str(self.original.prepacked), str(self.budget_s), str(self.whole), self.device)
        parts = (digest(*contents), text, *wishes, *stamps(before, self.original.folder))
        keys = [[timing_key((str(feed.cold), *parts), feed.arrays, self.threads) for feed in s.feeds] for s in scenes]
        timings = [self._recall(scene, each) for scene, each in zip(scenes, keys, strict=True)]
        late = [not self.fresh and recall_late(each[0], limit_s) for each in keys]
        is_lost = self.until_lost and any(each is not None and each.comparison.is_lost for each in timings)
        new = [at for at, timing in enumerate(timings) if timing is None and not late[at] and not is_lost]
        results = self._surely_measured(contents, [scenes[number] for number in new], limit_s)
        for number, timing in zip(new, results, strict=True):
            if isinstance(timing, float):
                if timing < math.inf:
                    keep_late(keys[number][0], timing)
                continue
            timings[number] = timing
            for key, comparison in zip(keys[number], filter(None, (timing.hot, timing.cold)), strict=False):
                keep_timing(key, comparison)
                self.new_keys.add(key)
        return timings

    def _recall(self, scene: BenchmarkCase, keys: Sequence[str]) -> BindingTiming | None:
        """The timing of an earlier run, or of this one, if there is one at each temperature that would be timed."""
        if self.fresh and not self.new_keys.issuperset(keys):
            return None
        known = itertools.takewhile(bool, (recall_timing(key, ambiguous=self.whole) for key in keys))
        results = [each for each in known if each]
        if not results or not (len(results) == len(keys) or (self.until_lost and results[0].comparison.is_lost)):
            return None
        hot, *cold = (each.comparison for each in results)
        day, earlier = min(each.timed_on for each in results), not self.new_keys.issuperset(keys[: len(results)])
        return BindingTiming(scene.sizes, hot, cold[0] if cold else None, timed_on=day, recalled=earlier)

    def _surely_measured(self, contents: Sequence[bytes], scenes: Sequence[BenchmarkCase], limit_s: float) -> Measured:
        """Timings of some scenes, or the seconds of one that would take too long. Kernels' borderline timings are
        replaced by a second measurement, since one in fifty may be chance; unsure whole models get more sessions."""
        timings = self._measure(contents, scenes, limit_s)
        if self.whole:
            return self._of_more_sessions(contents, scenes, timings)
        near = [at for at, each in enumerate(timings) if isinstance(each, BindingTiming) and each.is_borderline]
        again = replace(self, until_lost=False)._measure(contents, [scenes[at] for at in near], math.inf)
        for at, timing in zip(near, again, strict=True):
            timings[at] = timing
        return timings

    def _of_more_sessions(
        self, contents: Sequence[bytes], scenes: Sequence[BenchmarkCase], timings: Measured
    ) -> Measured:
        """Repeat unsure timings in further sessions of at most SESSION_S, while MORE_S is not spent."""
        bench = replace(self, until_lost=False, budget_s=min(self.budget_s, SESSION_S))
        start_s, took_s, results = time.monotonic(), 0.0, list(timings)
        for _ in range(MORE_SESSIONS):
            unsure = {at: each for at, each in enumerate(results) if isinstance(each, BindingTiming) and each.is_unsure}
            began_s = time.monotonic()
            if not unsure or began_s - start_s + took_s > MORE_S:
                break
            again = bench._measure(contents, [scenes[at] for at in unsure], math.inf)
            for (at, before), more in zip(unsure.items(), again, strict=True):
                assert isinstance(more, BindingTiming)
                results[at] = replace(before, hot=join((before.hot, more.hot)))
            took_s = time.monotonic() - began_s
        return results

    def _measure(self, contents: Sequence[bytes], scenes: Sequence[BenchmarkCase], limit_s: float) -> Measured:
        if not scenes:
            return []
        first, *rest = [feed for scene in scenes for feed in scene.feeds]
        model, device = self.original, self.device
        before = Job(contents[0], first.arrays, None, model.folder, self.threads, model.prepacked, device=device)
        before = replace(before, whole=self.whole and device == "cpu")
        after = replace(before, content=contents[1], library=self.library)
        options: dict[str, Any] = {"limit_s": limit_s, "until_lost": self.until_lost, "enough": self.enough}
        results = self.workers.compare_each(before, after, rest, budget_s=self.budget_s, **options)
        comparisons, timings = iter(results), Measured()
        for scene in scenes:
            hot, *cold_ones = [next(comparisons) for _ in scene.feeds]
            cold = next((each for each in cold_ones if not isinstance(each, float)), None)
            timings.append(hot if isinstance(hot, float) else BindingTiming(scene.sizes, hot, cold, timed_on=today()))
        return timings


def with_idle(bench: OnnxBench) -> OnnxBench:
    """The bench with `idle_s`, the time of a run that does nothing: the time of a kernel alone includes it, that of a
    kernel in a model does not. 0 if it cannot be timed."""
    model, arrays = _idle_model(bench.original.model), {"x": np.zeros(1, np.float32)}
    try:
        (timing,) = replace(bench, library=None).compare(model, model, [BenchmarkCase({}, arrays)], "idle")
    except NoyauError:
        return bench
    return bench if timing is None else replace(bench, idle_s=timing.hot.before_median_s)


def matters(moved_bytes: int) -> bool:
    """Whether cold caches may change a verdict: fewer bytes never leave the caches, more never stay in one."""
    cache = 2 * last_level_bytes()
    return cache / MOST_BINDINGS <= moved_bytes < cache


def stamps(model: onnx.ModelProto, folder: Path) -> Iterator[str]:
    """The files of a model's external data, also of its bodies, with their sizes and modification times."""
    tensors = itertools.chain.from_iterable(map(tensors_of, (model.graph, *model.functions)))
    entries = itertools.chain.from_iterable(tensor.external_data for tensor in tensors)
    for name in sorted({entry.value for entry in entries if entry.key == "location"}):
        try:
            status = (folder / name).stat()
        except (OSError, ValueError):
            continue
        yield f"{name} {status.st_size} {status.st_mtime_ns}"


def _idle_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that copies one number, with the versions of `model`."""
    from onnx import helper

    x, y = (helper.make_tensor_value_info(name, DType.F32.onnx, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "idle", [x], [y])
    opsets = [each for each in model.opset_import if not each.domain]
    return helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)


def parts(
    group: Group, original: SourceModel, fused: onnx.ModelProto, arrays: Arrays, calls: Sequence[int] = ()
) -> tuple[onnx.ModelProto, onnx.ModelProto, Arrays]:
    """A group's operators as a model, its kernel as a model, and the inputs of both; `calls`: operators before it, in
    both."""
    places = {name: k for k, node in enumerate(fused.graph.node) for name in node.output}
    nodes, position = original.model.graph.node, places[group.outputs[0]]
    operators, tensors = [*calls, *group.positions], original.imported.initializers
    results = {name for at in operators for name in nodes[at].output}
    names = dict.fromkeys((*fused.graph.node[position].input, *(name for at in calls for name in nodes[at].input)))
    # The operators' other operands, except those that shape arithmetic recomputes from the rest.
    values, rest = ModelValues.of(original.model), (name for at in group.positions for name in nodes[at].input if name)
    names |= dict.fromkeys(name for name in rest if recompute(name, values, {*names, *results}) is None)
    # Values computed from initializers alone are no inputs: the runtime folds them into the calls that read them.
    names = {name: None for name in names if name not in results and recompute(name, values, tensors, math.inf) is None}
    read = {name: arrays[name] for name in names if name in arrays and name not in tensors}
    types = types_of(read) | {node.output: value_type(node) for node in group.graph.nodes}
    called = [places[nodes[call].output[0]] for call in calls]
    before = extract(original.model, operators, tuple(read), group.outputs, types)
    return before, extract(fused, [*called, position], tuple(read), group.outputs, types), read


SEARCHED = (
    replace(USUAL, kept=False),
    *(replace(USUAL, lanes=lanes) for lanes in (16, 32, 64)),
    replace(USUAL, around_bytes=0),
    replace(USUAL, stages=False),
)
WINS_FROM = 1.03  # the least sure speed-up that is worth another text
LOSES_BELOW = 0.97
BUDGET_S = 15.0  # for all kernels of a model
_COMPARISON_S = 0.2


def variants(kernel: PlannedKernel, target: str) -> dict[Options, PlannedKernel]:
    """The kernels of the other options, each text once; options that the language refuses are left out."""
    entries: dict[str, tuple[Options, PlannedKernel]] = {}
    for options in SEARCHED:
        with contextlib.suppress(UnsupportedError):
            result = variant(kernel, options, target)
            entries.setdefault(result.operator, (options, result))
    entries.pop(kernel.operator, None)
    return dict(entries.values())


def tune(
    candidates: Sequence[Candidate],
    seens: Sequence[Activations],
    options: c_compiler.CompilerOptions,
    workers: Workers,
    certify: Callable[[Candidate], Candidate],
    threads: int = 1,
    budget_s: float = BUDGET_S,
) -> Iterator[Candidate]:
    """Yield each kernel with its fastest right options: over all the activations in `seens`, slower on none, and with a
    certificate.

    Variants are called directly, in turns with the original kernel, in processes of their own; results are cached. No
    further kernel is tuned once `budget_s` is spent. `certify` gives a kernel its certificate, or a reason."""
    end_s = seconds() + budget_s
    pin(workers.workers, 1)
    for one in candidates:
        shapes = [arrays for arrays in (arrays_of(one, activations) for activations in seens) if arrays is not None]
        if not shapes or seconds() > end_s:
            yield one
            continue
        speedup, best, winner = Tuning(options, workers, certify).best(one, shapes)
        fields = {"options": dataclasses.asdict(best), "speedup": speedup, "tuned_on": today()}
        toolchain_cache.keep(tuning_key(one.planned, shapes[0], options.target, threads), fields)
        yield winner


@dataclass(frozen=True, slots=True)
class Tuning:
    """The compiler, the clock and the judge of variants."""

    options: c_compiler.CompilerOptions
    workers: Workers
    certify: Callable[[Candidate], Candidate]

    def best(self, candidate: Candidate, shapes: Sequence[ArraySequence]) -> tuple[float, Options, Candidate]:
        """The speed-up of the fastest right variant, its options, and itself; 1 and the kernel as it was if none
        wins."""
        each = variants(candidate.planned, self.options.target)
        others = zip(each, compile_kernels(list(each.values()), self.options), strict=True)
        timings = [(self.over_all(candidate, other, shapes), options, other) for options, other in others]
        for speedup, options, other in sorted(timings, key=lambda timing: -timing[0]):
            if speedup < WINS_FROM:
                break
            if not self.certify(other).reason:
                return speedup, options, other
        return 1.0, USUAL, candidate

    def over_all(self, candidate: Candidate, other: Candidate, shapes: Sequence[ArraySequence]) -> float:
        """The geometric mean over shapes of the speed-up of another kernel; 0 if it is slower for one."""
        results = list[float]()
        for arrays in shapes:
            results.append(surely_faster(candidate, other, arrays, self.options, self.workers))
            if results[-1] < LOSES_BELOW:
                return 0.0
        return statistics.geometric_mean(results)


def surely_faster(
    candidate: Candidate, other: Candidate, arrays: ArraySequence, options: c_compiler.CompilerOptions, workers: Workers
) -> float:
    """The lower bound of the speed-up of another kernel; 0 if that cannot be measured."""
    if other.reason:  # it does not build
        return 0.0
    libraries = [c_compiler.compile_library([one.planned.text], options) for one in (candidate, other)]
    symbols = [f"{one.planned.operator}_kernel" for one in (candidate, other)]
    by_number = {str(number): array for number, array in enumerate(arrays)}

    def places(swapped: bool) -> tuple[SelfTimedSide, SelfTimedSide]:
        pair = workers.workers[::-1] if swapped else workers.workers
        with workers.write(by_number) as (_, inputs):
            for worker, library, symbol in zip(pair, libraries, symbols, strict=True):
                worker.open(open_kernel, library, symbol, inputs)
        return WorkerSide(pair[0]), WorkerSide(pair[1])

    try:
        return compare_swapped(places, budget_s=_COMPARISON_S).low
    except NoyauError:  # it crashes, hangs, or refuses the model's activations
        return 0.0


@dataclass(slots=True)
class DirectCalls:
    """In the worker: a kernel bound to several copies of its inputs, called in turn."""

    runs: Sequence[Callable[[], object]]
    turn: int = 0

    def lasts(self, calls: int) -> float:
        order = [self.runs[(self.turn + number) % len(self.runs)] for number in range(calls)]
        self.turn += calls
        return self_timed(order)

    def tell(self) -> dict[str, int]:
        return {"bindings": len(self.runs)}


def open_kernel(library: Path, symbol: str, inputs: Sequence[Mapping[str, Any]]) -> DirectCalls:
    """In the worker: the kernel, bound to memory that nothing else uses."""
    kernel, arrays = Native(library, symbol), list(read_arrays(inputs).values())
    count = min(hot_sets(sum(array.nbytes for array in arrays)), FEW_BINDINGS)
    runs = [kernel.bound(*(array.copy() for array in arrays)) for _ in range(count)]
    for run in runs:
        run()
    return DirectCalls(runs)


def variant(planned: PlannedKernel, options: Options, target: str) -> PlannedKernel:
    """The same kernel with other options of its schedule, with the name of its new text."""
    key = kernel_digest(schedule(lower(nameless(planned.graph), "kernel"), options), target)
    stem = planned.operator.rpartition("_")[0]
    kernel = replace(schedule(planned.groups[0].kernel, options), name=f"{stem}_{key[:8]}")
    return replace(planned, operator=kernel.name, kernel=kernel, text=c_printer.source(kernel))


def tuning_key(kernel: PlannedKernel, arrays: ArraySequence, target: str, threads: int) -> str:
    """Cache key of a tuning: kernel with usual options, machine, and shapes, extents rounded up to powers of two."""
    usual, machine = kernel.operator.rpartition("_")[2], this_machine()  # a digest, made for its name
    shapes = (str([max(extent - 1, 0).bit_length() for extent in array.shape]) for array in arrays)
    where = (machine.cpu, str(machine.cores), machine.compiler, target, str(threads))
    return toolchain_cache.digest("tuned", usual, *where, *shapes)


def recall(key: str) -> Options | None:
    """The best options of an earlier tuning on this machine, or None."""
    return toolchain_cache.recall_as(key, lambda entry: Options(**entry["options"]))


def recall_options(
    candidates: Sequence[Candidate], activations: Activations, options: c_compiler.CompilerOptions, threads: int
) -> list[Candidate]:
    """The kernels with the best options of earlier tunings; without a tuning, unchanged."""

    def recall_one(candidate: Candidate) -> Candidate:
        arrays = arrays_of(candidate, activations)
        best = None if arrays is None else recall(tuning_key(candidate.planned, arrays, options.target, threads))
        if best is None or best == USUAL:
            return candidate
        (result,) = compile_kernels([variant(candidate.planned, best, options.target)], options)
        return candidate if result.reason else result

    return [recall_one(each) for each in candidates]


def arrays_of(candidate: Candidate, activations: Activations) -> tuple[np.ndarray, ...] | None:
    """The arrays that a generated kernel reads; None if it cannot be tuned."""
    if candidate.reason or candidate.planned.by_hand:
        return None
    group = candidate.planned.groups[0]
    constants = {node.output: node.kind.value for node in group.original.nodes if isinstance(node.kind, Constant)}
    values = {**activations.arrays, **constants}
    return tuple(values[name] for name in group.inputs) if values.keys() >= set(group.inputs) else None
