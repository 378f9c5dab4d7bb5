"""Models as people export them, through the whole job; writes results/real_exports.json.

    python examples/export_models.py FOLDER
    python benchmarks/real_exports.py FOLDER [NAME ...] [--budget 0.6] [-o FILE]

For each model: how many of its nodes give floats, before and after; which are left, and why; whether every kernel is
right and how far the whole model is from float64, with all kernels and without any, over the largest output; and, with
the kernels that win, how much faster it is and could be at most, at batch 1 and 128 tokens. Models that are named are
run anew, the others keep what the file has of them. The truth of a model that onnxruntime has optimized is that of the
model it was made from.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from record import write as write_record

from noyau.errors import NoyauError
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.hosts.onnxruntime.write_back import library, put_back
from noyau.ir.graph_interpreter import evaluate
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import OptimizedModel, optimize
from noyau.timing.machine import this_machine
from noyau.toolchain.c import compiler as c_compiler

RESULTS = Path(__file__).parent / "results" / "real_exports.json"
SIZES = {"batch": 1, "sequence": 128, "past": 128}
TIMES = 4  # how far the fused model may be from float64, over the unfused one
FEW = 1e-6


@dataclass(frozen=True, slots=True)
class Subject:
    """One exported model, opened, with the arrays that it is checked on."""

    path: Path
    original: SourceModel
    arrays: dict[str, np.ndarray]

    @staticmethod
    def of(path: Path) -> Subject:
        stored = np.load(path.with_suffix(".npz"))
        return Subject(path, open_model(path), {name: stored[name] for name in stored.files})

    @property
    def truth(self) -> list[np.ndarray]:
        """The outputs in float64."""
        base = self.path.with_name(self.path.name.partition("_ort-")[0].removesuffix(".onnx") + ".onnx")
        imported = (open_model(base) if base != self.path else self.original).imported
        tensors = {name: imported.load_initializer(name) for name in imported.initializers}
        made = evaluate(imported.graph, {**tensors, **self.arrays}, wide=True)
        return [np.asarray(made[name], np.float64) for name in imported.graph.outputs]

    @property
    def sizes(self) -> dict[str, int]:
        named = set(self.original.imported.sizes.values())
        return {name: size for name, size in SIZES.items() if name in named}

    def floats(self, model: onnx.ModelProto) -> Counter[str]:
        """The operators that give floats, the kernels of noyau as one."""
        graph = self.original.imported.graph.by_name
        nodes = [node for node in model.graph.node if node.op_type != "Constant"]
        found = [node for node in nodes if any(name in graph and graph[name].dtype.is_float for name in node.output)]
        return Counter("noyau" if node.domain == "noyau" else node.op_type for node in found)


@dataclass(frozen=True, slots=True)
class Whole:
    """The model with every kernel that is right, whether it wins or not."""

    model: onnx.ModelProto
    library: Path | None

    @staticmethod
    def of(subject: Subject, won: OptimizedModel) -> Whole:
        kernels = [one.planned for one in won.candidates if one.certificate is not None and one.certificate.ok]
        options = c_compiler.CompilerOptions(target=c_compiler.resolve_target("native"), export=True)
        original = subject.original
        fused = put_back(original.model, kernels, original.folder)
        return Whole(fused, library(kernels, options, fused))


def distance(outputs: list[np.ndarray], truth: list[np.ndarray]) -> float:
    """The largest distance from the truth over the largest value, of the worst output; inf where one is not finite."""
    worst = 0.0
    for got, want in zip(outputs, truth, strict=True):
        apart = np.abs(got.astype(np.float64) - want).max(initial=0.0) / np.abs(want).max(initial=FEW)
        worst = max(worst, float(apart) if np.isfinite(apart) else np.inf)
    return worst


def row(path: Path, budget_s: float) -> dict[str, Any]:
    """All that is recorded of one model."""
    exporter, opset = path.stem.partition("_ort-")[0].split("_")[-2:]
    found: dict[str, Any] = {"model": path.stem, "exporter": exporter, "opset": int(opset)}
    try:
        subject = Subject.of(path)
        won = optimize(path, OptimizeOptions(dims=subject.sizes, budget_s=budget_s), say=lambda step: None)
    except NoyauError as error:
        return {**found, "refused": str(error)}
    whole = Whole.of(subject, won)
    return {**found, **counts(subject, won, whole), **rightness(subject, won, whole), **speed(won)}


def counts(subject: Subject, won: OptimizedModel, whole: Whole) -> dict[str, Any]:
    before, after = subject.floats(subject.original.model), subject.floats(whole.model)
    folded = {subject.original.model.graph.node[place].output[0] for place in subject.original.imported.foldable}
    once = Counter(node.op_type for node in whole.model.graph.node if node.output and node.output[0] in folded)
    return {
        "nodes_before": won.report.nodes_before,
        "nodes_after": len(whole.model.graph.node),
        "floats_before": before.total(),
        "floats_after": (after - once).total(),
        "computed_once": once.total(),
        "left": dict((after - once).most_common()),
        "why": {each.reason: len(each.nodes) for each in won.report.not_fused},
        "already_fused": [note for note in won.report.inputs if note.startswith("already fused")],
        "kernels": len(won.candidates),
        "places": after["noyau"],
    }


def rightness(subject: Subject, won: OptimizedModel, whole: Whole) -> dict[str, Any]:
    """The kernels that a certificate refuses, and the errors of the whole model with all kernels and with none."""
    wrong = {
        one.planned.operator: one.reason for one in won.candidates if one.certificate is None or not one.certificate.ok
    }
    try:
        before = subject.original.session(subject.original.model).run(None, subject.arrays)
        after = subject.original.session(whole.model, whole.library).run(None, subject.arrays)
        truth = subject.truth
    except NoyauError as error:
        return {"wrong": wrong, "right": False if wrong else None, "not_run": str(error)}
    errors = distance(before, truth), distance(after, truth)
    return {
        "wrong": wrong,
        "right": not wrong and errors[1] <= TIMES * errors[0] + FEW,
        "error_unfused": errors[0],
        "error_fused": errors[1],
    }


def speed(won: OptimizedModel) -> dict[str, Any]:
    told = won.report.to_json()
    return {"kept": len(won.report.kept), "ceiling": told["ceiling"], "end_to_end": told["end_to_end"]}


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    if "refused" in found:
        return f"{found['model']:44} {found['refused'][:110]}"
    whole = found["end_to_end"]
    ratio = "-" if whole["speedup"] is None else f"{whole['speedup']:.2f}x {whole['verdict']}"
    ceiling = "-" if found["ceiling"] is None else f"{found['ceiling']:.2f}x"
    right = {True: "right", False: "WRONG", None: "not run"}[found["right"]]
    numbers = f"{found['floats_before']:4} -> {found['floats_after']:3}  {found['kept']:2}/{found['kernels']:2}"
    return f"{found['model']:44} {numbers}  {right:8} {ratio:18} {ceiling}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where examples/export_models.py left its files")
    parser.add_argument("names", nargs="*", help="these models alone; the others keep what was recorded of them")
    parser.add_argument("--budget", type=float, default=0.6, help="seconds of the clock for each kernel")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    paths = sorted(arguments.folder.glob("*.onnx"))
    rows = {}
    if arguments.names and arguments.output.exists():
        rows = {each["model"]: each for each in json.loads(arguments.output.read_text())["models"]}
    for path in paths:
        if not arguments.names or path.stem in arguments.names:
            rows[path.stem] = row(path, arguments.budget)
            print(line(rows[path.stem]), flush=True)
            record = {
                "machine": this_machine().to_json(),
                "sizes": SIZES,
                "models": [rows[name] for name in sorted(rows)],
            }
            write_record(record, arguments.output)
    return int(any(each.get("right") is False for each in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
