"""Short paths of other people's models, each against onnxruntime: `python benchmarks/wild_paths.py [--write]`.

    python benchmarks/wild_paths.py [--only "NAME;NAME"] [--rounds 15] [--write]

Each is the least graph of a path on which a kernel once took 2 to 300 times as long as what it replaces. Before is
onnxruntime with all optimizations, after the same model with its kernels, both on the calling thread and in turn; the
ratio is of that thread's processor time, which other processes hardly move. `--write` records
results/wild_paths.json.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from record import write as write_record
from six_paths import inputs_of, parsed

from noyau.codegen import plan as codegen_plan
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.hosts.onnxruntime.write_back import installable, library, put_back
from noyau.timing.machine import this_machine
from noyau.toolchain.c import compiler as c_compiler

RESULTS = Path(__file__).parent / "results" / "wild_paths.json"
HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
GELU = """
    scaled = Div(x, root)
    curve = Erf(scaled)
    raised = Add(curve, one)
    weighted = Mul(x, raised)
    gelu = Mul(weighted, half)
"""
ENLARGED = """
    gate = HardSigmoid(x)
    part = Mul(x, gate)
    sum = Add(part, x)
    large = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">
        (sum, , scales)
"""
# Each path: its model, and the sizes at which it is timed.
PATHS: dict[str, tuple[str, tuple[dict[str, int], ...]]] = {
    "unequal concat": (
        "g (float[b, 1, 56, 56] x, float[b, 32, 56, 56] y) => (float[b, 33, 56, 56] z)"
        "{ positive = Relu(y) z = Concat<axis = 1>(x, positive) }",
        ({"b": 1}, {"b": 4}),
    ),
    "dense block": (
        "g (float[b, 24, h, w] x, float[b, 12, h, w] y, float[b, 12, h, w] w2) => (float[b, 48, h, w] z)"
        "{ positive = Relu(y) all = Concat<axis = 1>(x, positive, w2) z = Sigmoid(all) }",
        ({"b": 2, "h": 30, "w": 40},),
    ),
    "class token": (
        "g (float[b, 16, 128] x) => (float[b, 17, 128] y) <float[1, 1, 128] token, float[1, 17, 128] places,"
        " float[128] scale, float[128] bias> { whole = Shape(x) batch = Slice(whole, zero, one, zero)"
        " shape = Concat<axis = 0>(batch, one, one) class = Expand(token, shape) all = Concat<axis = 1>(class, x)"
        " moved = Add(all, places) y = LayerNormalization<axis = -1>(moved, scale, bias) }",
        ({"b": 1}, {"b": 8}),
    ),
    "class token, long": (
        "g (float[b, 196, 768] x) => (float[b, 197, 768] y) <float[1, 1, 768] token, float[1, 197, 768] places,"
        " float[768] scale, float[768] bias> { whole = Shape(x) batch = Slice(whole, zero, one, zero)"
        " shape = Concat<axis = 0>(batch, one, one) class = Expand(token, shape) all = Concat<axis = 1>(class, x)"
        " moved = Add(all, places) y = LayerNormalization<axis = -1>(moved, scale, bias) }",
        ({"b": 1},),
    ),
    "tanh mul sigmoid": (
        "g (float[1, 3, n, n] x, float[1, 3, n, n] y) => (float[1, 3, n, n] z)"
        "{ curve = Tanh(x) part = Mul(curve, y) z = Sigmoid(part) }",
        ({"n": 128}, {"n": 40}),
    ),
    "greatest of GELU, normed": (
        "g (float[b, 64, 508] x) => (float[b, 64] y) <float root = {1.4142135}, float one = {1}, float half = {0.5},"
        " int64[1] last = {-1}, float[64] scale, float[64] bias> {"
        + GELU
        + "pooled = GlobalMaxPool(gelu) flat = Flatten(pooled) y = LayerNormalization<axis = -1>(flat, scale, bias) }",
        ({"b": 1}, {"b": 8}),
    ),
    "reflect pad": (
        "g (float[b, n] x) => (float[b, 1, m] y) <int64[4] pads = {0, 256, 0, 256}, int64[3] shape = {0, 1, -1}>"
        '{ wide = Pad<mode = "reflect">(x, pads) y = Reshape(wide, shape) }',
        ({"b": 1, "n": 16000}, {"b": 4, "n": 5000}),
    ),
    "nearest resize": (
        f"g (float[b, 96, h, w] x) => (float[b, 96, h2, w2] z) <float[4] scales = {{1, 1, 2, 2}}> {{ {ENLARGED}"
        " z = Sigmoid(large) }",
        ({"b": 1, "h": 20, "w": 20}, {"b": 2, "h": 12, "w": 40}),
    ),
    "nearest resize, constant": (
        "g (float[1, 96, 20, 20] x, float[1, 96, 40, 40] y) => (float[1, 96, 40, 40] z)"
        f" <float[4] scales = {{1, 1, 2, 2}}> {{ {ENLARGED} z = Add(large, y) }}",
        ({},),
    ),
    "nearest resize, any sizes": (
        "g (float[b, 96, h, w] x, float[b, 96, h2, w2] y) => (float[b, 96, h2, w2] z)"
        f" <float[4] scales = {{1, 1, 2, 2}}> {{ {ENLARGED} z = Add(large, y) }}",
        ({"b": 1, "h": 20, "w": 20},),
    ),
    "branches of any sizes": (
        "g (float[b, 96, h, w] x, float[b, 96, p, q] y, float[q] scale) => (float[b, 96, h, w] z)"
        " { left = Relu(x) sum = Add(left, y) z = Mul(sum, scale) }",
        ({"b": 1, "h": 40, "w": 40, "p": 40, "q": 40}, {"b": 2, "h": 40, "w": 40, "p": 1, "q": 1}),
    ),
    "relative shift": (
        "g (float[b, 4, q, r] bd, float[b, 4, q, k] ac) => (float[b, 4, q, k] y) <float scale = {0.125},"
        " int64[1] ends = {9223372036854775807}, int64 none = {0}, int64 step = {1}> {"
        " s0 = Shape<start = 0, end = 2>(bd)"
        " q = Shape<start = 2, end = 3>(bd) r = Shape<start = 3, end = 4>(bd) k = Shape<start = 3, end = 4>(ac)"
        " turned = Concat<axis = 0>(s0, r, q) first = Reshape(bd, turned) cut = Slice(first, one, ends, two)"
        " less = Sub(r, one) back = Concat<axis = 0>(s0, q, less) wide = Reshape(cut, back) limit = Squeeze(k)"
        " places = Range(none, limit, step) shifted = Gather<axis = 3>(wide, places) sum = Add(ac, shifted)"
        " small = Mul(sum, scale) y = Softmax<axis = -1>(small) }",
        ({"b": 1, "q": 48, "r": 96, "k": 48}, {"b": 2, "q": 128, "r": 256, "k": 128}),
    ),
    "GELU, normed in the middle": (
        "g (float[b, 64, n] x) => (float[b, 64, n] y) <float root = {1.4142135}, float one = {1}, float half = {0.5},"
        " int64[1] middle = {1}, float eps = {1e-5}> {"
        + GELU
        + "mean = ReduceMean(gelu, middle) less = Sub(gelu, mean)"
        " square = Mul(less, less) variance = ReduceMean(square, middle) more = Add(variance, eps) root2 = Sqrt(more)"
        " y = Div(less, root2) }",
        ({"b": 1, "n": 512}, {"b": 4, "n": 100}),
    ),
    "softmax in the middle": (
        "g (float[b, c, n] x, float[c, 1] m) => (float[b, c, n] y) { sum = Add(x, m) y = Softmax<axis = 1>(sum) }",
        ({"b": 1, "c": 21, "n": 4096}, {"b": 2, "c": 700, "n": 60}),
    ),
    "channels normed": (
        "g (float[b, c, h, w] x, float[c, 1, 1] scale) => (float[b, c, h, w] y) <int64[1] middle = {1},"
        " float eps = {1e-6}> { mean = ReduceMean(x, middle) less = Sub(x, mean) square = Mul(less, less)"
        " variance = ReduceMean(square, middle)"
        " more = Add(variance, eps) root = Sqrt(more) part = Div(less, root) y = Mul(part, scale) }",
        ({"b": 1, "c": 384, "h": 14, "w": 14}, {"b": 2, "c": 96, "h": 28, "w": 28}),
    ),
}
SHAPED = {"zero": [0], "one": [1], "two": [2]}


def model_of(text: str) -> onnx.ModelProto:
    """The model, with its weights and the integers that it names."""
    model, rng = parsed(HEAD + text), np.random.default_rng(0)
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    read = {name for node in graph.node for name in node.input}
    for value in [value for value in graph.value_info if value.name in read - known]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if not any(value.name in node.output for node in graph.node):
            cells = rng.standard_normal(shape).astype(np.float32)
            graph.initializer.append(onnx.numpy_helper.from_array(cells, value.name))
            known.add(value.name)
    for name in sorted(read & SHAPED.keys() - known - {name for node in graph.node for name in node.output}):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(SHAPED[name], np.int64), name))
    return model


def session_of(model: onnx.ModelProto, registered: Path | None = None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if registered is not None:
        options.register_custom_ops_library(str(registered.absolute()))
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def seconds(run: Callable[[], Any], calls: int) -> float:
    start = time.thread_time()
    for _ in range(calls):
        run()
    return (time.thread_time() - start) / calls


def timed(name: str, rounds: int) -> list[dict[str, Any]]:
    """The ratios of a path at its sizes."""
    text, places = PATHS[name]
    options = c_compiler.CompilerOptions(export=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "path.onnx"
        onnx.save(model_of(text), path)
        original, target = open_model(path), c_compiler.resolve_target(options.target)
        planned = codegen_plan.plan(original.cut().groups, original.operators, target)
        kernels = installable(planned, original.model, original.folder).kernels
        fused = put_back(original.model, kernels, original.folder)
        sessions = session_of(original.model), session_of(fused, library(kernels, options, fused))
        rows = [compared(name, sessions, inputs_of(original.model, _whole(sizes)), rounds) for sizes in places]
    return [{"path": name, "sizes": sizes, **row} for sizes, row in zip(places, rows, strict=True)]


def _whole(sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, and those that follow from them."""
    return {**sizes, "h2": 2 * sizes.get("h", 0), "w2": 2 * sizes.get("w", 0)}


def compared(name: str, sessions: Sequence[Any], arrays: Mapping[str, np.ndarray], rounds: int) -> dict[str, float]:
    """The medians of both, in seconds, and of their quotients."""
    runs = [partial(session.run, None, arrays) for session in sessions]
    (first,), (second,) = (run() for run in runs)
    assert np.allclose(first, second, 1e-4, 1e-5), name
    calls = math.ceil(2e-3 / max(seconds(runs[0], 3), 1e-6))
    pairs = [[seconds(run, calls) for run in runs] for _ in range(rounds)]
    before, after = map(statistics.median, zip(*pairs, strict=True))
    return {"before_s": before, "after_s": after, "ratio": statistics.median(one / other for one, other in pairs)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=";".join(PATHS), metavar="NAME;...")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help=f"record {RESULTS.name}")
    arguments, rows = parser.parse_args(), list[dict[str, Any]]()
    for name in arguments.only.split(";"):
        for row in timed(name, arguments.rounds):
            rows.append(row)
            sizes = ", ".join(f"{size} {value}" for size, value in row["sizes"].items())
            times = "  ".join(f"{row[side] * 1e6:8.1f} us" for side in ("before_s", "after_s"))
            print(f"{name:<28}{sizes:<28}{times} {row['ratio']:6.2f}x", flush=True)
    if arguments.write:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        write_record({"date": date, "machine": this_machine().to_json(), "paths": rows}, RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
