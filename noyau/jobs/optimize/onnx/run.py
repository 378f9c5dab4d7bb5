"""The main job: a model in, its fused twin and a report out."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.codegen import plan as codegen_plan
from noyau.compiler.partition.cut import Partition
from noyau.errors import InputError
from noyau.hosts.onnxruntime import provenance
from noyau.hosts.onnxruntime.custom_ops import open_session, version
from noyau.hosts.onnxruntime.function_bodies import DOMAIN
from noyau.hosts.onnxruntime.inputs import Seen, capturing_of, feeds_for, look
from noyau.hosts.onnxruntime.install import fitting
from noyau.hosts.onnxruntime.model_files import save
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.size_bindings import Dims, first_of
from noyau.hosts.onnxruntime.source_model import Original, open_model
from noyau.hosts.onnxruntime.subgraph import Between, cut_of
from noyau.jobs.optimize.onnx.candidates import Judged, certified, compiled, right
from noyau.jobs.optimize.onnx.decision import KEEPS, chosen
from noyau.jobs.optimize.onnx.kernel_timing import Bench, with_idle
from noyau.jobs.optimize.onnx.record_builder import report_of
from noyau.jobs.optimize.onnx.rounds import Course, Deadline, aloud, raced
from noyau.jobs.optimize.onnx.schedule_tuning import recalled, tuned
from noyau.jobs.optimize.onnx.user_kernels import own_kernels, tried
from noyau.jobs.optimize.onnx.whole_model import LIMIT_S, settled, with_kernels
from noyau.jobs.optimize.record import Report
from noyau.kernels.certificates import MOST_AT_ONCE, Certifiers
from noyau.ops.op import Op
from noyau.text import path_of, several
from noyau.timing.conditions import allowed_s, conditions
from noyau.timing.machine import usable_cores
from noyau.toolchain.c import compiler as c_compiler

if TYPE_CHECKING:
    import onnx

log = logging.getLogger("noyau")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked of `optimize`. `keep`: "faster", "not-slower" or "all"; `dims` are sizes to time with, one number
    each or several, `inputs` an .npz file of arrays instead; `only` and `drop` name kernels, or values that a kernel
    writes, for that place alone; `between` are the ends of the path to work on, (["A", "B"], ["C"]) or "A,B:C"; `ops`
    have kernels of one's own, which go where their files say: "path.py::op", or the ops themselves;
    `budget_s` is for the clock, a kernel and binding, `within_s` for everything; `fresh`: no timing of an earlier run
    is taken; `tune`: whether options of the schedules are tried, None for those found best before."""

    keep: str = "faster"
    dims: Dims = field(default_factory=dict)
    inputs: str | Path | None = None
    target: str = "native"
    threads: int = 1
    budget_s: float = 0.6
    within_s: float = math.inf
    fresh: bool = False
    tune: bool | None = None
    seed: int = 0
    only: Sequence[str] = ()
    drop: Sequence[str] = ()
    between: Between | None = None
    ops: Sequence[str | Op[Any, Any]] = ()


@dataclass(frozen=True, slots=True)
class Optimized:
    """A model with its winning kernels: what `optimize` returns. `judged` has every kernel with its evidence."""

    model: onnx.ModelProto
    library: Path | None
    folder: Path
    report: Report
    judged: tuple[Judged, ...]

    def __repr__(self) -> str:
        kept = sum(one.kept for one in self.judged)
        return f"<{self.report.model} with {kept} of {len(self.judged)} kernels; .report tells of them>"

    def save(self, path: str | Path) -> None:
        """Write OUT.onnx, and OUT.so beside it where there are kernels; OutputError where that cannot be."""
        save(self.model, self.library, path_of(path, "save() takes"), self.folder)

    def session(self, *, threads: int = 0) -> Any:
        """An onnxruntime session of the model with its kernels."""
        return open_session(self.model.SerializeToString(), self.library, threads=threads, folder=self.folder)

    def source(self, kernel: str) -> str:
        """The text of a kernel, kept or not, under its certificate; InputError where there is none of that name."""
        for one in self.judged:
            if one.planned.operator == kernel:
                return one.planned.explained(one.evidence)
        raise codegen_plan.no_such(kernel, (one.planned for one in self.judged))


def optimize(path: str | Path, wishes: Wishes = Wishes(), say: Say = log.info) -> Optimized:
    """Fuse what can be fused, keep the kernels that are right and win.

    `say` is told of each step. ModelError for a file that is no model, or that onnxruntime does not run; InputError for
    wishes or inputs that do not fit; BuildError where there is no compiler; MissingExtraError without onnxruntime."""
    check(wishes)
    wishes = replace(wishes, budget_s=allowed_s(wishes.budget_s))
    deadline = Deadline(wishes.within_s)
    say(f"reading {Path(path).name}")
    original = open_model(Path(path))
    options = c_compiler.Options(target=c_compiler.resolve_target(wishes.target), export=True)
    cut, plan = planned(original, wishes, options.target)
    graphs = [group.original for kernel in plan.kernels for group in kernel.groups[:1]]
    feeds = feeds_for(original.imported, graphs, first_of(wishes.dims), wishes.inputs, wishes.seed)

    places = several(sum(len(kernel.groups) for kernel in plan.kernels), "place")
    say(f"compiling {several(len(plan.kernels), 'kernel')} for {places}")
    judged = compiled(plan.kernels, options)
    say("running the model on small inputs and on those asked for")
    capturing = capturing_of(original) if original.prepacked else None  # a session of large weights is not kept
    small, asked = look(original, plan.kernels, feeds, capturing)
    start, course = conditions(), Course(original, feeds, asked, wishes.dims, wishes.seed, capturing)
    with Workers() as workers:
        judged = checked(judged, small, course, options, wishes, deadline, workers, say)
        bench = Bench(
            original, original.model, None, asked, workers, wishes.threads, wishes.budget_s, fresh=wishes.fresh
        )
        if right(judged):
            bench = with_idle(bench)
        found = raced(with_kernels(bench, right(judged), options), judged, course, deadline, wishes.keep, say)
        bench = replace(bench, budget_s=3 * wishes.budget_s, whole=True)
        limit_s = math.inf if wishes.dims else LIMIT_S
        made = settled(bench, found.judged, found.scenes, options, wishes.keep, limit_s, say)
    sign(made.bench, made.judged, options.target)
    report = report_of(made, cut, plan, feeds, options, (start, conditions()), course.notes)
    return Optimized(made.bench.fused, made.bench.library, original.folder, report, made.judged)


def planned(original: Original, wishes: Wishes, target: str) -> tuple[Partition, codegen_plan.Plan]:
    """The groups of the model, and the kernels that are asked for: one's own, then those of the groups around them."""
    own = own_kernels(original, wishes.ops, target)
    cut = cut_of(original, wishes.between, own.positions)
    plan = codegen_plan.plan(cut.groups, original.operators, target)
    plan = replace(plan, kernels=(*own.kernels, *plan.kernels))
    return cut, chosen(fitting(plan, original.model, original.folder), wishes.only, wishes.drop)


def checked(
    judged: Sequence[Judged],
    small: Seen,
    course: Course,
    options: c_compiler.Options,
    wishes: Wishes,
    deadline: Deadline,
    workers: Workers,
    say: Say,
) -> list[Judged]:
    """The kernels, with the options that suit this machine, and with their certificates: several at once in processes
    of their own, while there is time. `small`: what they read with small inputs."""
    with Certifiers(workers.workers, min(usable_cores(), len(judged), MOST_AT_ONCE)) as certifiers:

        def check_one(one: Judged) -> Judged:
            if not one.reason and deadline.passed:
                return replace(one, reason=f"not checked: {deadline.fault}")
            safe = tried(one, small, options, wishes.seed)
            return certified(safe, small, options, wishes.seed, certifiers.certificate)

        if wishes.tune:
            say("trying other options of the schedules")
            seens = [seen for sizes in course.bindings() if (seen := course.seen(judged, sizes)) is not None]
            judged = list(tuned(judged, seens, options, workers, check_one, wishes.threads))
        elif wishes.tune is None:
            judged = recalled(judged, course.asked, options, wishes.threads)
        turn = aloud("checking", len(judged), say, check_one)
        return list(certifiers.each(turn, enumerate(judged, 1)))


def check(wishes: Wishes) -> None:
    """InputError for a wish that means nothing; MissingExtraError where onnxruntime is not there to fulfil it."""
    if wishes.keep not in KEEPS:
        raise InputError(f"keep={wishes.keep!r} is none of {', '.join(KEEPS)}")
    for name in ("threads", "budget_s", "within_s"):
        if getattr(wishes, name) < 0:
            raise InputError(f"{name}={getattr(wishes, name)} must not be negative")
    version()


def sign(bench: Bench, judged: Sequence[Judged], target: str) -> None:
    """Write what each kernel is, and its certificate, into the function that stands for it in the fused model, and
    where all of it comes from into the metadata."""
    texts = {one.planned.operator: one.planned.text for one in judged}
    provenance.sign(bench.fused, bench.original.path, target, texts, bench.library)
    told = {one.planned.operator: codegen_plan.describe(one.planned, one.evidence) for one in judged if one.kept}
    for function in bench.fused.functions:
        if function.domain == DOMAIN and function.name in told:
            function.doc_string = told[function.name]
