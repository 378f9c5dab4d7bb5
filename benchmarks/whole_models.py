"""Whole models, each optimised once: is its one fused file ever slower, and how much of the ceiling is gained?

    python benchmarks/whole_models.py MODEL.onnx [--threads 1,2] [--dim batch=1,1,2,1 --dim sequence=1,128,128,1024]
    python benchmarks/whole_models.py MODEL.onnx --weights int8 --budget 1e-1 --dim batch=1,1 --dim sequence=1,128

Without a model, that of the demo. It is optimised as `noyau optimize` does it unless `--fused FILE.onnx` has what that
made of it before; then that one file is timed against plain onnxruntime at each of the sizes, and the file as it was is
profiled there for the ceiling. With `--weights` and `--budget`, as in `noyau optimize`, it is made for these sizes, and
has an entry of its own. Writes results/whole_models.json; rows of other sizes and numbers of threads that are of
the same fused file stay in it, so that a long run can be made in pieces.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from record import write as write_record

from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.inputs import inputs_at, spell
from noyau.hosts.onnxruntime.model_files import Provenance, library_path, provenance_of, sha256_of
from noyau.hosts.onnxruntime.session_workers import Feed, Job, Workers
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.jobs.command_line import sizes_of
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from noyau.jobs.profile import run as profile_run
from noyau.jobs.profile.run import ProfileOptions, bindings
from noyau.text import as_json
from noyau.timing.conditions import conditions
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Comparison, Verdict, spell_s

RESULTS = Path(__file__).parent / "results" / "whole_models.json"
DIMS = ("batch=1,1,2,1", "sequence=1,128,128,1024")
WEIGHT_FACTS = ("error", "rows", "flips", "margin", "rows_beyond", "flips_beyond", "reason")
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model as it was, and the one fused file that was made of it; `optimised_s`: in how long, where this run made
    it."""

    original: SourceModel
    fused: Path
    optimised_s: float | None = None
    weights: Mapping[str, Any] | None = None

    @property
    def record(self) -> dict[str, Any]:
        """What tells the fused file from others, and how much of the model is fused in it."""
        import onnx

        made = onnx.load(self.fused, load_external_data=False)
        # Without kernels nothing is signed: then it is of this run.
        signed = provenance_of(made) or (self.weights and Provenance("", "", sha256_of(self.original.path)))
        if signed is None or signed.source_sha256 != sha256_of(self.original.path):
            raise SystemExit(f"{self.fused} is not what noyau made of {self.original.path}: optimise it anew")
        return {
            "model": self.original.path.stem + (self.weights["entry"] if self.weights else ""),
            "bytes": self.original.path.stat().st_size,
            "library_sha256": signed.library_sha256,
            "target": signed.target,
            "nodes_before": len(self.original.operators),
            "nodes_after": len(made.graph.node),
            "fused_nodes": sum(is_own(node.domain) for node in made.graph.node),
            "kernels": sum(is_own(function.domain) for function in made.functions),
            "optimised_s": self.optimised_s,
            **({"weights": {k: each for k, each in self.weights.items() if k != "entry"}} if self.weights else {}),
        }


def optimised(path: Path, folder: Path, wishes: OptimizeOptions, entry: str = "") -> Subject:
    """A model optimised as the command does it, with nothing that an earlier run found out about its times; `entry` is
    what is asked for of its weights."""
    start_s = time.perf_counter()
    made = optimize(path, wishes, lambda step: None)
    if not made.report.is_changed:
        raise SystemExit(f"{path.stem}: nothing wins, and the fused file is the model itself")
    made.save(folder / "fused.onnx")
    found = made.report.weights
    weights = found and {
        "entry": entry,
        **{
            name: as_json(value)
            for name in WEIGHT_FACTS
            if (value := getattr(found, name)) or name in ("error", "flips")
        },
        "products": dict(Counter(each.variant or each.reason for each in found.products)),
    }
    return Subject(open_model(path), folder / "fused.onnx", round(time.perf_counter() - start_s, 1), weights)


def timed(subject: Subject, asked: Sequence[Sizes], threads: int, budget_s: float) -> list[Comparison]:
    """The fused file against plain onnxruntime: all optimizations, bound ends, pairs in processes that change sides."""
    original, missing = subject.original, tuple[str, ...]()
    first, *others = [inputs_at(original.imported, sizes, missing, seed=0).arrays for sizes in asked]
    before = Job(
        original.model.SerializeToString(), first, None, original.folder, threads, prepacked=original.prepacked
    )
    after = Job(
        subject.fused.read_bytes(),
        first,
        library if (library := library_path(subject.fused)).exists() else None,
        subject.fused.parent,
        threads,
        original.prepacked,
    )
    with Workers(patience_s=120.0) as workers:
        found = workers.compare_each(before, after, [Feed(arrays) for arrays in others], budget_s=budget_s)
    return [each for each in found if isinstance(each, Comparison)]  # without a limit all are


def rows(subject: Subject, dims: Mapping[str, list[int]], threads: int, budget_s: float) -> Iterator[dict[str, Any]]:
    """What came of each of the sizes: the gain, and the ceiling of the profile."""
    asked, start = bindings(dims), conditions()
    found = timed(subject, asked, threads, budget_s)
    wishes = ProfileOptions(dims, threads=threads, budget_s=budget_s)
    profile = profile_run.profile(subject.original.path, wishes, lambda step: None)
    load = [each.load for each in (start, conditions())]
    for sizes, comparison, at in zip(asked, found, profile.at, strict=True):
        yield {
            "sizes": dict(sizes),
            "threads": threads,
            "verdict": comparison.verdict.value,
            "gain": [round(each, 4) for each in (comparison.speedup, comparison.low, comparison.high)],
            "ceiling": None if at.ceiling is None else round(at.ceiling, 4),
            "before_s": comparison.before_median_s,
            "after_s": comparison.after_median_s,
            "pairs": comparison.pairs,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "load": load,
        }


def line(row: Mapping[str, Any]) -> str:
    """A row of the table."""
    speedup, low, high = row["gain"]
    ceiling = "over 20x" if row["ceiling"] is None else f"{row['ceiling']:.2f}x"
    times = f"{spell_s(row['before_s'])} -> {spell_s(row['after_s'])}"
    gain = f"{row['verdict']} {speedup:.2f}x [{low:.2f}, {high:.2f}]"
    return f"  {spell(row['sizes']):24} {row['threads']} threads  {times:22} {gain:32} ceiling {ceiling}"


def merged(path: Path, header: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was found, beside what a file written on the same machine has of other models, and of this fused file."""
    machine, others, kept = this_machine().to_json(), list[Any](), list[Any]()
    head = dict(header)
    if path.exists():
        old = json.loads(path.read_text("ascii"))
        models = old["models"] if old["machine"] == machine else []
        others = [each for each in models if each["model"] != head["model"]]
        file = (head["model"], head["library_sha256"])  # files of other weights may share a library
        for same in (each for each in models if (each["model"], each.get("library_sha256")) == file):
            kept = [row for row in same["rows"] if _place(row) not in set(map(_place, found))]
            head["optimised_s"] = head["optimised_s"] or same.get("optimised_s")
    made = {**head, "rows": sorted([*kept, *found], key=_place)}
    return {"machine": machine, "models": sorted([*others, made], key=lambda each: str(each["model"]))}


def _place(row: Mapping[str, Any]) -> tuple[int, tuple[tuple[str, int], ...]]:
    return row["threads"], tuple(row["sizes"].items())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?", help="(default: the model of the demo)")
    parser.add_argument("--fused", type=Path, metavar="FILE.onnx", help="what noyau optimize made of it before")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N[,N...]", help="as in noyau profile")
    parser.add_argument("--threads", default="1", metavar="COUNTS")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each comparison")
    parser.add_argument("--weights", default="none", help="as in noyau optimize")
    parser.add_argument("--budget", help="as in noyau optimize")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    dims, lost = sizes_of(arguments.dim or list(DIMS)), 0
    with (
        as_file(files("noyau.jobs.demo.models") / "llama_tiny_dynamo.onnx") as demo,
        tempfile.TemporaryDirectory() as folder,
    ):
        path = arguments.model or demo
        fused, weights = arguments.fused, arguments.weights
        wishes, entry = OptimizeOptions(fresh=True), ""
        if weights != "none":
            entry = f", {weights}, {arguments.budget or 'same-tokens'}, {' '.join(arguments.dim)}"
            each = {name: list(dict.fromkeys(sizes)) for name, sizes in dims.items()}
            wishes = OptimizeOptions(fresh=True, dims=each, weights=weights, budget=arguments.budget)
        subject = Subject(open_model(path), fused) if fused else optimised(path, Path(folder), wishes, entry)
        header = subject.record
        print(f"{path.stem}: {header['nodes_before']} nodes, {header['nodes_after']} with {header['kernels']} kernels")
        for threads in map(int, arguments.threads.split(",")):
            found = list(rows(subject, dims, threads, arguments.seconds))
            print("\n".join(map(line, found)), flush=True)
            record = merged(arguments.output, header, found)
            write_record(record, arguments.output)
            lost += sum(row["verdict"] == Verdict.SLOWER.value for row in found)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
