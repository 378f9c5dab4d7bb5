"""The main job: a model in, its fused twin and a report out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau import planning
from noyau.builders import cc
from noyau.checking.inputs import Inputs
from noyau.errors import InputError
from noyau.feeding import inputs_for
from noyau.frontends import onnx as frontend
from noyau.judging import Judged, Seen, certified, timed, timed_whole
from noyau.passes.partition import partition
from noyau.reporting import not_fused, report_of
from noyau.reports.records import Report
from noyau.runtimes.capturing import capture
from noyau.runtimes.onnxruntime import open_session
from noyau.runtimes.putting_back import library as build_library
from noyau.runtimes.putting_back import put_back
from noyau.runtimes.saving import save

if TYPE_CHECKING:
    import onnx

log = logging.getLogger("noyau")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Optimized:
    """A model with its winning kernels: what `optimize` returns."""

    model: onnx.ModelProto
    library: Path | None
    folder: Path
    report: Report

    def save(self, path: str | Path) -> None:
        """Write OUT.onnx, and OUT.so beside it where there are kernels; OutputError where that cannot be."""
        save(self.model, self.library, Path(path), self.folder)

    def session(self, *, threads: int = 0) -> Any:
        """An onnxruntime session of the model with its kernels."""
        return open_session(self.model.SerializeToString(), self.library, threads=threads, folder=self.folder)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked of `optimize`. `keep`: "faster", "not-slower" or "all"; `only` and `drop` name kernels."""

    keep: str = "faster"
    dims: Mapping[str, int] | None = None
    inputs: Path | None = None
    target: str = "native"
    threads: int = 1
    budget_s: float = 0.6
    seed: int = 0
    only: Sequence[str] = ()
    drop: Sequence[str] = ()


def optimize(path: str | Path, wishes: Wishes = Wishes(), say: Say = log.info) -> Optimized:
    """Fuse what can be fused, keep the kernels that are right and win.

    `say` is told of each step. ModelError for a file that is no model, InputError for inputs that do not fit,
    BuildError where there is no compiler."""
    path = Path(path)
    say(f"reading {path.name}")
    model = frontend.read(path)
    imported = frontend.import_model(model, path.parent)
    cut = partition(frontend.wired(model, imported))
    options = cc.Options(target=cc.resolve_target(wishes.target))
    operators = [node.op_type for node in model.graph.node]
    plan = planning.plan(cut.groups, operators, options.target)
    plan = chosen(plan, wishes)
    say(f"{len(plan.kernels)} kernels for {sum(len(k.groups) for k in plan.kernels)} places")
    inputs = inputs_for(imported, model, wishes.dims, wishes.inputs, np.random.default_rng(wishes.seed))
    seen = look(model, imported, plan, inputs, path.parent, made_up=wishes.inputs is None)
    judged = [judge(kernel, model, path.parent, seen, options, wishes, say) for kernel in plan.kernels]
    kept = [one.planned for one in judged if one.kept]
    fused, library = put_back(model, kept, path.parent), build_library(kept, options)
    say("timing the whole model")
    whole = timed_whole(model, fused, library, path.parent, inputs.arrays, wishes.threads, wishes.budget_s * 3)
    nodes = len(model.graph.node), len(fused.graph.node)
    left = not_fused(cut, plan, operators)
    report = report_of(path.name, nodes, left, judged, whole, seen, inputs.notes, options, wishes.threads)
    return Optimized(fused, library, path.parent, report)


def judge(
    kernel: planning.Planned,
    model: onnx.ModelProto,
    folder: Path,
    seen: Seen,
    options: cc.Options,
    wishes: Wishes,
    say: Say,
) -> Judged:
    """Whether a kernel is right, and whether it wins."""
    say(f"checking {kernel.operator}")
    right = certified(kernel, seen, options, wishes.seed)
    say(f"timing {kernel.operator}")
    return timed(right, model, folder, seen, options, wishes.keep, wishes.threads, wishes.budget_s)


def chosen(plan: planning.Plan, wishes: Wishes) -> planning.Plan:
    """The plan with the kernels that are asked for; InputError for a name that no kernel has."""
    known = {kernel.operator for kernel in plan.kernels}
    for name in (*wishes.only, *wishes.drop):
        if name not in known:
            raise InputError(f"the model has no kernel {name}; its kernels are: {', '.join(sorted(known)) or 'none'}")
    wanted = set(wishes.only or known) - set(wishes.drop)
    return replace(plan, kernels=tuple(kernel for kernel in plan.kernels if kernel.operator in wanted))


def look(
    model: onnx.ModelProto, imported: frontend.Imported, plan: planning.Plan, inputs: Inputs, folder: Path, *, made_up: bool
) -> Seen:
    """What the first and the last place of each kernel read: captured in a run, or loaded from the model."""
    places = [group for kernel in plan.kernels for group in (kernel.groups[0], kernel.groups[-1])]
    wanted = {name for group in places for position in group.positions for name in model.graph.node[position].input}
    wanted |= {name for group in places for name in group.inputs}
    captured = capture(model, folder, inputs.arrays, sorted(wanted))
    stored = {name: imported.load_initializer(name) for name in wanted if name in imported.initializers}
    return Seen({**stored, **inputs.arrays, **captured}, inputs.sizes, made_up)
