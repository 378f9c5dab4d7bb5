"""The main job: a model in, its fused twin and a report out."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.codegen import plan as codegen_plan
from noyau.errors import InputError
from noyau.hosts.onnxruntime import model_files
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.model_files import save
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import open_model, require_opening
from noyau.jobs.optimize import pipeline
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.onnx.cuda_kernels import split_target, with_ptx
from noyau.jobs.optimize.onnx.host import OnnxHost
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.options import DEFAULTS, DEVICES, Deadline, OptimizeOptions, check_options
from noyau.jobs.optimize.onnx.report import report_of
from noyau.jobs.optimize.pipeline import Say
from noyau.jobs.optimize.record import Report
from noyau.text import path_of
from noyau.timing.comparison import allowed_s
from noyau.timing.conditions import conditions
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
    home: tempfile.TemporaryDirectory[str] | None = None  # of a model that came without a file: where it is put

    def __repr__(self) -> str:
        count = sum(one.kept for one in self.candidates)
        return f"<{self.report.model} with {count} of {len(self.candidates)} kernels; .report tells of them>"

    def save(self, path: str | Path) -> None:
        """Write OUT.onnx, and OUT.so beside it where there are kernels, once both were opened; OutputError where that
        cannot be."""
        trial = partial(require_opening, before=self.folder / self.report.model)
        trials = (trial,) if self.report.is_changed else ()  # the model as it was may be one that opens nowhere
        save(self.model, self.library, path_of(path, "save() takes"), self.folder, *trials)

    def session(self, *, threads: int = 0) -> Any:
        """An onnxruntime session of the model with its kernels."""
        return open_session(self.model.SerializeToString(), self.library, threads=threads, folder=self.folder)

    def source(self, kernel: str) -> str:
        """The text of a kernel, kept or not, under its certificate; InputError where there is none of that name."""
        planned = codegen_plan.kernel_named(kernel, (one.planned for one in self.candidates))
        return planned.explained(next(one.evidence for one in self.candidates if one.planned is planned))


def optimize_proto(model: onnx.ModelProto, wishes: OptimizeOptions = DEFAULTS) -> OptimizedModel:
    """As `optimize`, of a model in memory, which is not changed; its external data has to be loaded."""
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    from noyau.frontends.onnx.reader import tensors_of
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
    """Fuse what can be fused, keep the kernels that are right and win.

    `say` is told of each step. ModelError for a file that is no model, or that onnxruntime does not run; InputError for
    wishes or inputs that do not fit; BuildError where there is no compiler; MissingExtraError without onnxruntime."""
    check_options(wishes)
    wishes = replace(wishes, budget_s=allowed_s(wishes.budget_s))
    deadline = Deadline(wishes.within_s)
    say(f"reading {Path(path).name}")
    original, calibration = open_model(Path(path), flat=True, sizes=wishes.fix_dims), []
    if wishes.calibration is not None:
        stored = frozenset(original.imported.initializers)
        samples = load_samples(Path(wishes.calibration), original.called.graph, without=stored)
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
    """Write what each kernel is, and its certificate, into the function that stands for it in the fused model, and
    where all of it comes from into the metadata."""
    texts = {one.planned.operator: one.planned.both_texts for one in candidates}
    model_files.sign(bench.fused, bench.original.path, target, texts, bench.library)
    fields = {one.planned.operator: codegen_plan.describe(one.planned, one.evidence) for one in candidates if one.kept}
    for function in bench.fused.functions:
        if is_own(function.domain) and function.name in fields:
            function.doc_string = fields[function.name]
