"""The six paths of every transformer, fused by noyau, against onnxruntime and against a copy of the same memory.

    python benchmarks/six_paths.py [--paths rmsnorm,...] [--threads 1,2] [--budget 2] [-o FILE]

Each path is spelt as PyTorch exports it. Before: onnxruntime with all optimizations. After: the same model with noyau's
kernel in it. Both have bound outputs and processes of their own, and are timed in pairs by noyau's clock, hot (the same
few buffers) and cold (buffers that go through twice the last-level cache). The kernel alone is also timed in pairs with
a plain copy that moves as many bytes, on memory laid out alike. Writes results/six_paths.json.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from record import write as write_record

from noyau.codegen import plan as codegen_plan
from noyau.compiler.partition.costs import bytes_moved
from noyau.hosts.onnxruntime.session_workers import Job, Workers
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.hosts.onnxruntime.write_back import installable, library, put_back
from noyau.ir.graph import Constant
from noyau.text import as_json
from noyau.timing.comparison import compare
from noyau.timing.conditions import conditions
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Comparison
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native

RESULTS = Path(__file__).parent / "results" / "six_paths.json"
SEQUENCE = 1024

RMSNORM = """
<ir_version: 10, opset_import: ["" : 18]>
rmsnorm (float[rows, 2048] x, float[2048] weight) => (float[rows, 2048] y)
<float two = {2}, float eps = {1e-6}, int64[1] last = {-1}>
{
    square = Pow(x, two)
    mean = ReduceMean(square, last)
    moved = Add(mean, eps)
    root = Sqrt(moved)
    scale = Reciprocal(root)
    normal = Mul(x, scale)
    y = Mul(weight, normal)
}
"""

RMSNORM_OF_ONNXRUNTIME = """
<ir_version: 10, opset_import: ["" : 18]>
rmsnorm (float[rows, n] x, float[n] weight) => (float[rows, n] y)
{
    y = SimplifiedLayerNormalization<axis = -1, epsilon = 1e-6>(x, weight)
}
"""

LAYERNORM = """
<ir_version: 10, opset_import: ["" : 18]>
layernorm (float[rows, 2048] x, float[2048] weight, float[2048] bias) => (float[rows, 2048] y)
<float two = {2}, float eps = {1e-5}, int64[1] last = {-1}>
{
    mean = ReduceMean(x, last)
    centred = Sub(x, mean)
    square = Pow(centred, two)
    variance = ReduceMean(square, last)
    moved = Add(variance, eps)
    root = Sqrt(moved)
    scale = Reciprocal(root)
    normal = Mul(centred, scale)
    weighted = Mul(normal, weight)
    y = Add(weighted, bias)
}
"""

SOFTMAX = """
<ir_version: 10, opset_import: ["" : 18]>
softmax (float[heads, queries, keys] scores, float[queries, keys] mask) => (float[heads, queries, keys] y)
<float scale = {0.125}>
{
    scaled = Mul(scores, scale)
    masked = Add(scaled, mask)
    y = Softmax<axis = -1>(masked)
}
"""

ROTARY = """
<ir_version: 10, opset_import: ["" : 18]>
rotary (float[1, sequence, heads, 64] x, float[1, 1, sequence, 64] cos, float[1, 1, sequence, 64] sin)
    => (float[1, heads, sequence, 64] y)
<int64[1] zero = {0}, int64[1] half = {32}, int64[1] end = {9223372036854775807}, int64[1] last = {3}>
{
    heads_first = Transpose<perm = [0, 2, 1, 3]>(x)
    straight = Mul(heads_first, cos)
    low = Slice(heads_first, zero, half, last)
    high = Slice(heads_first, half, end, last)
    negative = Neg(high)
    turned = Concat<axis = 3>(negative, low)
    across = Mul(turned, sin)
    y = Add(straight, across)
}
"""

SWIGLU = """
<ir_version: 10, opset_import: ["" : 18]>
swiglu (float[rows, 5504] gate, float[rows, 5504] up) => (float[rows, 5504] y)
{
    sigmoid = Sigmoid(gate)
    silu = Mul(gate, sigmoid)
    y = Mul(silu, up)
}
"""

BIAS_GELU = """
<ir_version: 10, opset_import: ["" : 18]>
bias_gelu (float[rows, 4096] x, float[4096] bias) => (float[rows, 4096] y)
<float c = {0.044715}, float d = {0.7978845608028654}, float one = {1}, float half = {0.5}>
{
    moved = Add(x, bias)
    square = Mul(moved, moved)
    cube = Mul(square, moved)
    small = Mul(cube, c)
    inner = Add(moved, small)
    scaled = Mul(inner, d)
    curve = Tanh(scaled)
    raised = Add(curve, one)
    part = Mul(moved, half)
    y = Mul(part, raised)
}
"""

# Each path: its model, and its sizes at a sequence of 1024 (those of a LLaMA of 1.3 billion weights, and of GPT-2).
PATHS: dict[str, tuple[str, dict[str, int]]] = {
    "rmsnorm": (RMSNORM, {"rows": SEQUENCE}),
    "layernorm": (LAYERNORM, {"rows": SEQUENCE}),
    "softmax": (SOFTMAX, {"heads": 16, "queries": SEQUENCE, "keys": SEQUENCE}),
    "rotary": (ROTARY, {"sequence": SEQUENCE, "heads": 32}),
    "swiglu": (SWIGLU, {"rows": SEQUENCE}),
    "bias_gelu": (BIAS_GELU, {"rows": SEQUENCE}),
}


@dataclass(frozen=True, slots=True)
class Fused:
    """A path's model as it is, and with the one kernel that noyau makes of it."""

    original: SourceModel
    fused: onnx.ModelProto
    library: Path
    planned: codegen_plan.PlannedKernel
    built: Path


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def fuse(text: str, folder: Path) -> Fused:
    """The whole model in one kernel; AssertionError where it takes more."""
    path = folder / "path.onnx"
    onnx.save(parsed(text), path)
    original, options = open_model(path), c_compiler.CompilerOptions(export=True)
    target = c_compiler.resolve_target(options.target)
    plan = installable(
        codegen_plan.plan(original.cut().groups, original.operators, target), original.model, original.folder
    )
    (planned,) = plan.kernels
    assert len(planned.replaces) == len(original.model.graph.node), "the path is not one kernel"
    fused = put_back(original.model, [planned], original.folder)
    built = library([planned], options, fused)
    assert built is not None
    return Fused(original, fused, built, planned, c_compiler.compile_library([planned.text], options))


def inputs_of(model: onnx.ModelProto, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Normal numbers; a mask is causal, 0 or -inf."""
    rng, made = np.random.default_rng(seed), dict[str, np.ndarray]()
    for value in model.graph.input:
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
        made[value.name] = rng.standard_normal(shape, np.float32)
        if value.name == "mask":
            made[value.name] = np.triu(np.full(shape, -np.inf, np.float32), 1)
    return made


def bytes_of(one: Fused, sizes: Mapping[str, int]) -> int:
    """What the kernel has to read and to write."""
    return int(bytes_moved(one.planned.groups[0].kernel).evaluate(sizes))


def against_copy(one: Fused, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], budget_s: float) -> Comparison:
    """A plain copy, before, and the kernel alone, after, in one process; both move the same number of bytes."""
    group = one.planned.groups[0]
    known = {node.output: node.kind.value for node in group.original.nodes if isinstance(node.kind, Constant)}
    given = [known[node.output] if node.output in known else arrays[node.output] for node in group.graph.inputs]
    cells = bytes_of(one, sizes) // 8
    source, target = (
        placed(cells, 0),
        placed(cells, 2112),
    )  # not at the same place of a page: stores would wait for loads
    run = Native(one.built, f"{one.planned.operator}_kernel").bound(*given)
    return compare(lambda: np.copyto(target, source), run, budget_s=budget_s)


def placed(cells: int, place: int) -> np.ndarray:
    """f32[cells], beginning at this byte of a page."""
    room = np.ones(cells + 2048, np.float32)
    start = (-room.ctypes.data % 4096 + place) // 4
    return room[start : start + cells]


def told(found: Comparison) -> dict[str, Any]:
    return {
        "verdict": found.verdict.value,
        "ratio": [round(each, 3) for each in (found.speedup, found.low, found.high)],
        "before_s": found.before_median_s,
        "after_s": found.after_median_s,
        "pairs": found.pairs,
    }


def compared(workers: Workers, before: Job, after: Job, budget_s: float) -> Comparison:
    """One model against another in processes of their own. CheckError where a run was wrong, crashed or hung."""
    (found,) = workers.compare_each(before, after, (), budget_s=budget_s)
    assert not isinstance(found, float)
    return found[0]


def timed(name: str, threads: Sequence[int], budget_s: float) -> dict[str, Any]:
    """All that is asked of one path."""
    text, sizes = PATHS[name]
    with tempfile.TemporaryDirectory() as folder, Workers() as workers:
        one = fuse(text, Path(folder))
        arrays = inputs_of(one.original.model, sizes)
        row: dict[str, Any] = {"path": name, "sizes": sizes, "moved_bytes": bytes_of(one, sizes)}
        row["copy"] = told(against_copy(one, arrays, sizes, budget_s))
        for count in threads:
            for cold in (False, True):
                after = Job(one.fused.SerializeToString(), arrays, one.library, threads=count, cold=cold)
                before = Job(one.original.model.SerializeToString(), arrays, threads=count, cold=cold)
                temperature = "cold" if cold else "hot"
                row[f"{temperature}_{count}"] = told(compared(workers, before, after, budget_s))
                if name == "rmsnorm":
                    own = replace(before, content=parsed(RMSNORM_OF_ONNXRUNTIME).SerializeToString())
                    row[f"own_{temperature}_{count}"] = told(compared(workers, own, after, budget_s))
    return row


def mean(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    """The geometric mean of a column's ratios."""
    return math.exp(sum(math.log(row[column]["ratio"][0]) for row in rows) / len(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--paths", default=",".join(PATHS), metavar="NAMES")
    parser.add_argument("--threads", default="1,2", metavar="COUNTS")
    parser.add_argument("--budget", type=float, default=2.0, metavar="SECONDS", help="for each comparison")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    threads, start, rows = [int(count) for count in arguments.threads.split(",")], conditions(), []
    columns = [f"{temperature}_{count}" for count in threads for temperature in ("hot", "cold")]
    print(f"{'path':<10} {'GB/s':>6} {'of copy':>8}", *(f"{column:>8}" for column in columns), sep="  ")
    for name in arguments.paths.split(","):
        row = timed(name, threads, arguments.budget)
        rows.append(row)
        rate = row["moved_bytes"] / row["copy"]["after_s"] / 1e9
        ratios = [row[column]["ratio"][0] for column in ("copy", *columns)]
        print(f"{name:<10}  {rate:6.1f}", *(f"{ratio:8.2f}" for ratio in ratios), sep="  ", flush=True)
    means = {column: round(mean(rows, column), 3) for column in columns}
    print(f"{'mean':<10}  {'':6}  {'':8}", *(f"{means[column]:8.2f}" for column in columns), sep="  ")
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": this_machine().to_json(),
        "before": as_json(start),
        "after": as_json(conditions()),
        "means": means,
        "paths": rows,
    }
    write_record(record, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
