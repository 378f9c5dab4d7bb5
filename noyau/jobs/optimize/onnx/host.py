"""onnxruntime as a host of the pipeline: a model, its activations, and processes that time it.

The sizes that kernels are timed at are one round each, by a schedule."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from noyau.codegen import plan as codegen_plan
from noyau.codegen.plan import Plan, PlannedKernel
from noyau.compiler.partition.cut import Partition
from noyau.errors import InputError, ModelError
from noyau.hosts.onnxruntime import activations as captures
from noyau.hosts.onnxruntime import inputs as onnx_inputs
from noyau.hosts.onnxruntime.activations import ActivationCapture, Activations, capture_at, capture_of, capture_twice
from noyau.hosts.onnxruntime.inputs import MOST_BYTES, Dims, ModelInputs, first_of, model_names, spell
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.hosts.onnxruntime.subgraph import cut_of
from noyau.hosts.onnxruntime.write_back import installable
from noyau.jobs.optimize.onnx.candidates import certify_candidate, compile_kernels
from noyau.jobs.optimize.onnx.kernel_timing import Arrays, BenchmarkCase, OnnxBench, recall_options, tune, with_idle
from noyau.jobs.optimize.onnx.options import Deadline, OptimizeOptions, choose_places
from noyau.jobs.optimize.onnx.user_kernels import try_isolated, user_kernels_of
from noyau.jobs.optimize.onnx.weights import WeightStage
from noyau.jobs.optimize.onnx.whole_model import LIMIT_S, FinalModel, settle, with_kernels
from noyau.jobs.optimize.pipeline import Candidate, Say, Sizes, announce, right
from noyau.kernels.certificates import MOST_AT_ONCE, Certifiers
from noyau.text import several
from noyau.timing.comparison import is_brief, is_narrow_or_lost
from noyau.timing.conditions import Conditions, conditions
from noyau.toolchain.c import compiler as c_compiler
from noyau.workers.resources import processors

# Limits in seconds for rounds at sizes that the user did not ask for: the time at which a round still begins, the time
# of one run of the model, and the end of a round, if it takes twice as long as the one before. They keep a model of
# less than 50 MB below a minute on two quiet cores.
ROUNDS_S, MOST_RUN_S, MODEL_S = 35.0, 4.0, 55.0


@dataclass(slots=True)
class OnnxHost:
    """An ONNX model in onnxruntime, on the CPU or on GPUs of some `architectures`. Once the kernels are certified,
    there are the `schedule` of sizes to time at, the machine's conditions before any timing (`start`), and the bench of
    the model with every right kernel (`base`)."""

    original: SourceModel
    wishes: OptimizeOptions
    options: c_compiler.CompilerOptions
    workers: Workers
    deadline: Deadline
    say: Say
    calibration: Sequence[Arrays] = ()
    architectures: tuple[str, ...] = ()
    schedule: SizeSchedule = field(init=False)
    start: Conditions = field(init=False)
    base: OnnxBench = field(init=False)
    scenes: list[BenchmarkCase] = field(default_factory=list)  # of the whole model, one for each round
    began_s: float = field(default_factory=time.monotonic)  # of the last round

    def plan(self) -> tuple[Partition, Plan]:
        """The groups of the model, and the kernels to try: the user's, then generated ones for the other operators."""
        original, wishes, target = self.original, self.wishes, self.options.target
        own = user_kernels_of(original, wishes.ops, target)
        replaced = frozenset(position for kernel in own for group in kernel.groups for position in group.positions)
        cut = cut_of(original, wishes.between, replaced)
        plan = codegen_plan.plan(cut.groups, original.operators, target)
        plan = codegen_plan.with_twins(plan, self.architectures) if self.architectures else plan
        plan = replace(plan, kernels=(*own, *plan.kernels))
        return cut, choose_places(installable(plan, original.model, original.folder), wishes.only, wishes.drop)

    def certify(self, kernels: Sequence[PlannedKernel]) -> list[Candidate]:
        """Compile the kernels, and certify them on the model's activations for small inputs."""
        original, wishes = self.original, self.wishes
        feeds = self._inputs_at(kernels, first_of(wishes.dims), wishes.inputs)
        capturing = capture_of(original) if original.prepacked else None  # no session of large weights is kept open
        kernels = self._running_first(kernels, feeds, capturing or capture_of(original))
        places = several(sum(len(kernel.groups) for kernel in kernels), "place")
        self.say(f"compiling {several(len(kernels), 'kernel')} for {places}")
        candidates = compile_kernels(kernels, self.options)
        feeds, (small, full) = self._feed(kernels, feeds, capturing)
        self.start = conditions()
        self.schedule = SizeSchedule(original, feeds, full, wishes.dims, wishes.seed, capturing)
        candidates = self._certify(candidates, self.schedule.with_samples(kernels, small))
        kernels = right(candidates)
        bench = OnnxBench(original, original.runnable, None, full, self.workers, wishes.threads, wishes.budget_s)
        bench = replace(bench, fresh=wishes.fresh, deadline=self.deadline, device=wishes.device)
        self.base = with_kernels(with_idle(bench) if kernels else bench, kernels, self.options)
        return candidates

    def _running_first(
        self, kernels: Sequence[PlannedKernel], feeds: ModelInputs, capturing: ActivationCapture
    ) -> list[PlannedKernel]:
        """The kernels, with a place that runs first: places in bodies that these inputs do not enter come last."""
        names = [group.outputs[0] for kernel in kernels for group in kernel.groups]
        faults: Mapping[str, str] = {}
        with suppress(InputError, ModelError):
            faults = capturing.entering(feeds.full.arrays, names)[1]
        idle = {name for name in names if captures.fault_at(name, faults)}
        groups = (sorted(each.groups, key=lambda group: group.outputs[0] in idle) for each in kernels)
        pairs = zip(kernels, map(tuple, groups), strict=True)
        return [self.original.locate(replace(kernel, groups=order)) for kernel, order in pairs]

    def _inputs_at(self, kernels: Sequence[PlannedKernel], sizes: Sizes, file: str | Path | None = None) -> ModelInputs:
        graphs = [group.original for kernel in kernels for group in kernel.groups[:1]]
        if self.wishes.weights != "none":  # weights in few bits need inputs even without kernels
            graphs = graphs or [self.original.feed_model.graph]
        return onnx_inputs.model_inputs(self.original.feed_model, graphs, sizes, file, self.wishes.seed)

    def _feed(
        self, kernels: Sequence[PlannedKernel], feeds: ModelInputs, capturing: ActivationCapture | None
    ) -> tuple[ModelInputs, tuple[Activations, Activations]]:
        """The inputs of the model, or others with which it runs, and the activations of its kernels for small inputs
        and for these.

        If the user gave neither sizes nor arrays, and the model runs with no synthetic inputs, its groups are judged
        alone: on the activations of a part of it that runs, or, with --keep all, on synthetic inputs of each group.
        InputError if no part of it runs."""
        original, wishes, first = self.original, self.wishes, first_of(self.wishes.dims)

        def inputs_of(sizes: Sizes) -> ModelInputs:
            self.say(f"trying {spell(sizes)}")
            return replace(self._inputs_at(kernels, sizes), searched=True)

        def run(feeds: ModelInputs) -> tuple[Activations, Activations]:
            return capture_twice(original, kernels, feeds, capturing, whole=feeds.made_up)

        self.say("running the model on small inputs and on those asked for")
        try:
            return onnx_inputs.first_that_runs(original.feed_model, feeds, inputs_of, run, first)
        except InputError as error:
            if first or not feeds.made_up:
                raise
            fault = str(error)
        try:
            small, full = capture_twice(original, kernels, feeds, capturing)  # part of the model may run
        except InputError:
            if wishes.keep != "all":
                raise InputError(f"{fault}; --keep all judges its groups by themselves") from None
            small = full = Activations({}, feeds.full.sizes, made_up=True)
        return feeds, (small, replace(full, fault=fault))

    def _certify(self, candidates: Sequence[Candidate], small: Activations) -> list[Candidate]:
        """The candidates with the options that suit this machine, and with their certificates: several at once in
        processes of their own, until the deadline. `small`: their activations for small inputs."""
        options, wishes = self.options, self.wishes
        with Certifiers(self.workers.workers, min(processors(), len(candidates), MOST_AT_ONCE)) as certifiers:

            def certify(candidate: Candidate) -> Candidate:
                if not candidate.reason and self.deadline.passed:
                    return replace(candidate, reason=f"not checked: {self.deadline.fault}")
                safe = try_isolated(candidate, small, options, wishes.seed)
                return certify_candidate(safe, small, options, wishes.seed, certifiers.certificate)

            if wishes.tune:
                self.say("trying other options of the schedules")
                flows = [self.schedule.activations(candidates, sizes) for sizes in self.schedule.bindings()]
                known = [each for each in flows if each is not None]
                candidates = list(tune(candidates, known, options, self.workers, certify, wishes.threads))
            elif wishes.tune is None and not self.architectures:
                candidates = recall_options(candidates, self.schedule.usual, options, wishes.threads)
            turn = announce("checking", len(candidates), self.say, certify)
            return list(certifiers.each(turn, enumerate(candidates, 1)))

    def bindings(self) -> list[dict[str, int]]:
        return self.schedule.bindings()

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> OnnxBench | None:
        """The clock at some sizes; in the first round with cold caches, too."""
        own_sizes = model_names(self.original.imported, sizes)
        if self.scenes:
            self.say(f"running the model at {spell(own_sizes)}")
        begin_s, first = time.monotonic(), not self.scenes
        last_s = 0.0 if first else begin_s - self.began_s
        late = not first and (self.deadline.passed or self._is_late(0.0, last_s))
        activations = None if late else self.schedule.activations(candidates, dict(sizes))
        if not first and not self.deadline.passed and self._is_late(time.monotonic() - begin_s, last_s):
            self.schedule.note(f"not timed at {spell(own_sizes)}: it takes long; --dim asks for that")
            return None
        if activations is None:
            return None
        self.began_s = begin_s
        bench = replace(self.base, activations=activations, sizes=own_sizes, cold=not self.scenes)
        stored = self.original.imported.initializers
        inputs = [each.name for each in self.original.model.graph.input if each.name not in stored]
        if activations.arrays.keys() >= set(inputs):  # otherwise an input is unknown
            self.scenes.append(BenchmarkCase(own_sizes, {name: activations.arrays[name] for name in inputs}))
        return bench

    def _is_late(self, run_s: float, round_s: float) -> bool:
        """Whether to skip sizes that the user did not ask for, where one run took `run_s` and the last round `round_s`:
        the time for a model is limited."""
        spent_s = time.monotonic() - self.deadline.start_s
        late = run_s > MOST_RUN_S or spent_s - run_s > ROUNDS_S or spent_s + 2 * round_s > MODEL_S
        return late and not (self.wishes.dims or self.wishes.inputs)

    def install(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], FinalModel]:
        """The model with the kernels that stay, timed as a whole, and never handed back slower than it was."""
        bench = replace(self.base, budget_s=3 * self.wishes.budget_s, whole=True, enough=is_narrow_or_lost)
        bench = replace(bench, until_lost=self.wishes.keep != "all")
        limit_s = math.inf if self.wishes.dims or self.wishes.inputs else LIMIT_S
        result = settle(bench, candidates, self.scenes, self.options, self.wishes.keep, limit_s, self.say)
        if self.wishes.weights != "none":
            capturing, feeds = self.schedule.capturing or capture_of(self.original), self.schedule.feeds
            stage = WeightStage(result, self.scenes, self.wishes, capturing, feeds, limit_s, self.say, self.calibration)
            result = stage.run()
        return result.candidates, result


@dataclass(frozen=True, slots=True)
class SizeSchedule:
    """The sizes of each round of a model, from `dims` or by default, with its inputs and activations at them. `usual`:
    the activations at the first sizes; `capturing`: an open session that captures those at others, if there is one."""

    original: SourceModel
    feeds: ModelInputs
    usual: Activations
    dims: Dims
    seed: int = 0
    capturing: ActivationCapture | None = None
    notes: list[str] = field(default_factory=list)

    def bindings(self) -> list[dict[str, int]]:
        """The sizes of each round; a user's arrays fix theirs, and a search for sizes that run fixes its result. The
        first sizes alone if clocks are brief."""
        fixed = not self.feeds.made_up or not self.feeds.full.arrays or self.feeds.searched or bool(self.usual.fault)
        own = [dict(each.sizes) for each in (self.feeds.full, *self.feeds.others)]
        own = [sizes for at, sizes in enumerate(own) if sizes not in own[:at]]
        first, *others = own if fixed else onnx_inputs.bindings(self.original.feed_model, self.dims)
        assert fixed or first == dict(self.feeds.full.sizes)
        return [first, *(sizes for sizes in others if not is_brief() and self._fits(sizes))]

    def _fits(self, sizes: dict[str, int]) -> bool:
        """Whether the largest value has room at sizes that the user did not ask for; notes it if not."""
        imported = self.original.feed_model
        largest = 0 if self.dims or self.feeds.others else onnx_inputs.largest_bytes(imported.graph, sizes)
        if largest > MOST_BYTES:
            at = spell(model_names(imported, sizes))
            self.note(f"not timed at {at}: a value takes {largest / 2**30:.1f} GiB; --dim asks for that")
        return largest <= MOST_BYTES

    def activations(self, candidates: Sequence[Candidate], sizes: dict[str, int]) -> Activations | None:
        """The values that right kernels read at some sizes; None, with a note, if the model does not run."""
        if sizes == dict(self.feeds.full.sizes):
            return self.usual
        try:
            inputs = next((each for each in self.feeds.others if each.sizes == sizes), None)
            inputs = inputs or onnx_inputs.inputs_at(self.original.feed_model, sizes, self.feeds.missing, self.seed)
            return capture_at(self.original, right(candidates), inputs, self.feeds.made_up, self.capturing)
        except (InputError, ModelError) as error:
            self.note(f"not timed at {spell(model_names(self.original.imported, sizes))}: {error}")
            return None

    def with_samples(self, kernels: Sequence[PlannedKernel], small: Activations) -> Activations:
        """Add the activations of the user's other samples to those of small inputs, up to MOST_BYTES."""
        flows, held_bytes = list[Activations](), 0
        for number, inputs in enumerate(self.feeds.others, 2):
            if held_bytes > MOST_BYTES:
                self.note(f"no kernel is checked on sample {number} and later ones: what flows takes over 1 GiB")
                break
            try:
                flows.append(capture_at(self.original, kernels, inputs, self.feeds.made_up, self.capturing))
            except (InputError, ModelError) as error:
                raise InputError(f"the model does not run with sample {number}: {error}") from error
            held_bytes += sum(array.nbytes for array in flows[-1].arrays.values())
        return replace(small, others=tuple(flows))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
