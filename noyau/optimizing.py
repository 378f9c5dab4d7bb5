"""The main job: a model in, its fused twin and a report out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau import planning
from noyau.builders import cc
from noyau.errors import InputError
from noyau.feeding import feeds_for
from noyau.judging import KEEPS, Bench, Judged, certified, compiled, right, timed, timed_whole
from noyau.original import open_model
from noyau.paths.choosing import chosen
from noyau.paths.enclosing import cut_of
from noyau.paths.ends import Between
from noyau.reporting import report_of
from noyau.reports.records import Report
from noyau.runtimes import provenance as origin
from noyau.runtimes.bodies import DOMAIN
from noyau.runtimes.onnxruntime import open_session, version
from noyau.runtimes.putting_back import fitting, library, put_back
from noyau.runtimes.saving import save
from noyau.seeing import look
from noyau.timing.onnxruntime_workers import Workers

if TYPE_CHECKING:
    import onnx

log = logging.getLogger("noyau")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked of `optimize`. `keep`: "faster", "not-slower" or "all"; `dims` are sizes to time with, `inputs` an
    .npz file of arrays instead; `only` and `drop` name kernels, or values that a kernel writes, for that place alone;
    `between` are the ends of the path to work on, (["A", "B"], ["C"]) or "A,B:C"; `budget_s` is for the clock, a
    kernel."""

    keep: str = "faster"
    dims: Mapping[str, int] = field(default_factory=dict)
    inputs: str | Path | None = None
    target: str = "native"
    threads: int = 1
    budget_s: float = 0.6
    seed: int = 0
    only: Sequence[str] = ()
    drop: Sequence[str] = ()
    between: Between | None = None


@dataclass(frozen=True, slots=True)
class Optimized:
    """A model with its winning kernels: what `optimize` returns. `judged` has every kernel with its evidence."""

    model: onnx.ModelProto
    library: Path | None
    folder: Path
    report: Report
    judged: tuple[Judged, ...]

    def save(self, path: str | Path) -> None:
        """Write OUT.onnx, and OUT.so beside it where there are kernels; OutputError where that cannot be."""
        save(self.model, self.library, Path(path), self.folder)

    def session(self, *, threads: int = 0) -> Any:
        """An onnxruntime session of the model with its kernels."""
        return open_session(self.model.SerializeToString(), self.library, threads=threads, folder=self.folder)

    def source(self, kernel: str) -> str:
        """The text of a kernel, kept or not, under its certificate; InputError where there is none of that name."""
        for one in self.judged:
            if one.planned.operator == kernel:
                return one.planned.explained(one.evidence)
        raise planning.no_such(kernel, (one.planned for one in self.judged))


def optimize(path: str | Path, wishes: Wishes = Wishes(), say: Say = log.info) -> Optimized:
    """Fuse what can be fused, keep the kernels that are right and win.

    `say` is told of each step. ModelError for a file that is no model, or that onnxruntime does not run; InputError for
    wishes or inputs that do not fit; BuildError where there is no compiler; MissingExtraError without onnxruntime."""
    check(wishes)
    say(f"reading {Path(path).name}")
    original = open_model(Path(path))
    cut = cut_of(original, wishes.between)
    options = cc.Options(target=cc.resolve_target(wishes.target), export=True)
    plan = planning.plan(cut.groups, original.operators, options.target)
    plan = chosen(fitting(plan, original.model, original.folder), wishes.only, wishes.drop)

    say(f"compiling {len(plan.kernels)} kernels for {sum(len(kernel.groups) for kernel in plan.kernels)} places")
    judged = compiled(plan.kernels, options)
    say("running the model on small inputs and on those asked for")
    graphs = [group.original for kernel in plan.kernels for group in kernel.groups[:1]]
    feeds = feeds_for(original.imported, graphs, wishes.dims, wishes.inputs, wishes.seed)
    small, asked = look(original, plan.kernels, feeds)
    judged = each("checking", judged, lambda one: certified(one, small, options, wishes.seed), say)

    fused, built = put_back(original.model, right(judged), original.folder), library(right(judged), options)
    with Workers() as workers:
        bench = Bench(original, fused, built, asked, workers, wishes.threads, wishes.budget_s)
        judged = each("timing", judged, lambda one: timed(one, bench, wishes.keep), say)

        kept = [one.planned for one in judged if one.kept]
        fused, built = put_back(original.model, kept, original.folder), library(kept, options)
        sign(fused, judged)
        origin.sign(fused, original.path, options.target, {one.operator: one.text for one in kept}, built)
        say("timing the whole model")
        bench = replace(bench, fused=fused, library=built, budget_s=3 * wishes.budget_s)
        whole = timed_whole(bench)
    report = report_of(bench, cut, plan, feeds, judged, whole, options)
    return Optimized(fused, built, original.folder, report, tuple(judged))


def each(doing: str, judged: Sequence[Judged], step: Callable[[Judged], Judged], say: Say) -> list[Judged]:
    """A step with each kernel that is still in the race, said aloud."""
    made = []
    for number, one in enumerate(judged, 1):
        say(f"{doing} {one.planned.operator}, {number} of {len(judged)}")
        made.append(one if one.reason else step(one))
    return made


def check(wishes: Wishes) -> None:
    """InputError for a wish that means nothing; MissingExtraError where onnxruntime is not there to fulfil it."""
    if wishes.keep not in KEEPS:
        raise InputError(f"keep={wishes.keep!r} is none of {', '.join(KEEPS)}")
    if wishes.threads < 0 or wishes.budget_s < 0:
        raise InputError(f"threads={wishes.threads} and budget_s={wishes.budget_s} must not be negative")
    version()


def sign(fused: onnx.ModelProto, judged: Sequence[Judged]) -> None:
    """Write what each kernel is, and its certificate, into the function that stands for it in the model."""
    told = {one.planned.operator: planning.describe(one.planned, one.evidence) for one in judged if one.kept}
    for function in fused.functions:
        if function.domain == DOMAIN and function.name in told:
            function.doc_string = told[function.name]
