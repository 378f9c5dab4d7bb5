"""Generated Triton kernels on a CUDA device: right, and against torch and a plain copy of the same bytes.

    python benchmarks/gpu.py [--only softmax] [--rounds 30] [--no-compile] [-o FILE]

Each case is an op; its kernels are printed in language triton and launched on tensors. Its results are compared with
torch in float64, beside the error of torch in the case's own dtype. It is timed with a flushed L2, in turns with torch
eager, torch.compile and a plain copy (a plain read where more than 90 % of the bytes are read) of as many bytes.
Writes results/gpu.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

import noyau
from noyau import nn
from noyau.builders.triton import load
from noyau.dtypes import DType
from noyau.ops import Op
from noyau.timing.torch_cuda import ratio, time_calls

RESULTS = Path(__file__).parent / "results" / "gpu.json"
TORCH = {DType.F32: torch.float32, DType.BF16: torch.bfloat16, DType.F16: torch.float16, DType.I64: torch.int64}
BF16, F16, F32, I64 = DType.BF16, DType.F16, DType.F32, DType.I64
READ = 0.9  # the share of bytes that are read from which a plain read is what to compare with


@noyau.op("float[n], float[n] -> float[n]")
def add(x: Any, y: Any) -> Any:
    return x + y


@noyau.op("float[n], float[n] -> float[n]")
def hypotenuse(x: Any, y: Any) -> Any:
    return np.sqrt(x * x + y * y)


@noyau.op("float[n, m], float[m] -> float[n, m]")
def bias_gelu(x: Any, bias: Any) -> Any:
    wide = x.astype(np.float32) + bias.astype(np.float32)
    return (0.5 * wide * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide * wide * wide)))).astype(x.dtype)


@noyau.op("float[n] -> float")
def total(x: Any) -> Any:
    return x.sum()


@noyau.op("float[n], float[n] -> float")
def dot(x: Any, y: Any) -> Any:
    return (x * y).sum()


@noyau.op("float[n, m] -> float[m, n]")
def negated_transpose(x: Any) -> Any:
    return -x.T


@noyau.op("float[n, m] -> float[m]")
def column_sums(x: Any) -> Any:
    return x.astype(np.float32).sum(0).astype(x.dtype)


@dataclass(frozen=True)
class Case:
    """An op at one shape: how its inputs are made, of which dtypes, and what torch does instead. `indices` says below
    what integer inputs are; `strided` gives inputs whose rows do not follow each other."""

    name: str
    op: Op[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]
    eager: Callable[..., Any]
    indices: int = 0
    target: float = 1.06
    untuned: bool = False
    tiles: dict[str, int] = field(default_factory=dict)

    def tensors(self) -> list[torch.Tensor]:
        noise = torch.Generator("cuda").manual_seed(0)
        made = []
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            if dtype is I64:
                made.append(torch.randint(0, self.indices, shape, generator=noise, device="cuda"))
            else:
                made.append(torch.randn(shape, generator=noise, device="cuda").to(TORCH[dtype]))
        return made


def rms_norm(x: Any, w: Any) -> Any:
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


def add_rms_norm(x: Any, r: Any, w: Any) -> Any:
    both = x + r
    return F.rms_norm(both, both.shape[-1:], w, 1e-6), both


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], w, b)


def rope(x: Any, cos: Any, sin: Any) -> Any:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def cross_entropy(x: Any, y: Any) -> Any:
    return F.cross_entropy(x, y, reduction="none")


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def rows_of(rows: int, n: int, dtype: DType = BF16, *, untuned: bool = False) -> list[Case]:
    """The row kernels at one shape."""
    two, one = (rows, n), (n,)
    long = n >= 32768
    called = f"{dtype.value} {rows}x{n}"
    return [
        Case(f"softmax {called}", nn.softmax, (two,), (dtype,), softmax, 0, 1.30 if long else 1.06, untuned),
        Case(f"rmsnorm {called}", nn.rms_norm, (two, one), (dtype,) * 2, rms_norm, 0, 1.06, untuned),
        Case(f"layernorm {called}", nn.layer_norm, (two, one, one), (dtype,) * 3, layer_norm, 0, 1.06, untuned),
        Case(
            f"cross-entropy {called}",
            nn.cross_entropy_each,
            (two, (rows,)),
            (dtype, I64),
            cross_entropy,
            n,
            1.30,
            untuned,
        ),
    ]


MI = 1 << 20
SQUARE, BIG = (8192, 8192), (64 * MI,)
CASES = [
    Case("add f32 64Mi", add, (BIG, BIG), (F32, F32), torch.add),
    Case("hypot f32 64Mi", hypotenuse, (BIG, BIG), (F32, F32), lambda x, y: torch.sqrt(x * x + y * y)),
    Case("swiglu bf16 8192x8192", nn.swiglu, (SQUARE, SQUARE), (BF16, BF16), lambda g, u: F.silu(g) * u),
    Case(
        "bias+gelu bf16 8192x8192",
        bias_gelu,
        (SQUARE, (8192,)),
        (BF16, BF16),
        lambda x, b: F.gelu(x + b, approximate="tanh"),
    ),
    Case("rope bf16 4x32x4096x128", nn.rope, ((4, 32, 4096, 128), (4096, 128), (4096, 128)), (BF16,) * 3, rope),
    Case("add+rmsnorm bf16 8192x8192", nn.add_rms_norm, (SQUARE, SQUARE, (8192,)), (BF16,) * 3, add_rms_norm),
    *rows_of(8192, 8192),
    *rows_of(4096, 32768),
    *rows_of(4096, 131072),
    Case("sum f32 64Mi", total, (BIG,), (F32,), torch.sum, 0, 1.10),
    Case("dot f32 64Mi", dot, (BIG, BIG), (F32, F32), torch.dot, 0, 1.10),
    Case(
        "transpose f32 4096x4096", negated_transpose, ((4096, 4096),), (F32,), lambda x: (-x.t()).contiguous(), 0, 1.08
    ),
    Case("column sums bf16 8192x8192", column_sums, (SQUARE,), (BF16,), lambda x: x.sum(0), 0, 1.15),
]
UNTUNED = [
    *rows_of(8192, 1000, untuned=True),
    *rows_of(8192, 50257, untuned=True),
    *rows_of(4096, 128256, untuned=True),
    *rows_of(4096, 151936, untuned=True),
    *rows_of(1, 50257, untuned=True),
    *rows_of(7, 128256, untuned=True),
    *rows_of(100_000, 1000, F16, untuned=True),
    *rows_of(4096, 8192, F32, untuned=True),
]


@triton.jit
def read_all(x, out, n, BLOCK: tl.constexpr, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
    start = tl.program_id(0).to(tl.int64) * BLOCK * TIMES
    seen = tl.zeros((BLOCK,), tl.int32)
    for k in tl.static_range(TIMES):
        at = start + k * BLOCK + tl.arange(0, BLOCK)
        seen |= tl.load(x + at, mask=at < n, other=0)
    tl.store(out + tl.program_id(0), tl.sum(seen))


def plain(read: int, written: int) -> tuple[str, Callable[[], object]]:
    """A plain copy of as many bytes, or a plain read."""
    if read > READ * (read + written):
        n = (read + written) // 4
        cells = torch.zeros(n, dtype=torch.int32, device="cuda")
        programs = triton.cdiv(n, 4096 * 4)
        out = torch.empty(programs, dtype=torch.int32, device="cuda")
        return "read", lambda: read_all[(programs,)](cells, out, n, 4096, 4, num_warps=8)
    half = (read + written) // 8
    source = torch.ones(half, dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    return "copy", lambda: target.copy_(source)


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def as_tuple(made: Any) -> tuple[torch.Tensor, ...]:
    return made if isinstance(made, tuple) else (made,)


def worst(got: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> float:
    """The largest distance from the truth, in ulps of the result's dtype at the truth, or of the largest value's over
    1024 where that is more; NaN where one is NaN and the other is not."""
    found = 0.0
    for one, other in zip(got, truth, strict=True):
        for a, b in zip(one.reshape(-1).split(1 << 26), other.reshape(-1).split(1 << 26), strict=True):
            eps = torch.finfo(one.dtype).eps
            scale = b.abs().clamp_min(float(other.abs().max()) / 1024).clamp_min(1e-30)
            found = max(found, float(((a.double() - b).abs() / (scale * eps)).max()))
            if not torch.equal(a.isnan(), b.isnan()):
                return math.nan
    return found


def function_of(case: Case) -> tuple[Callable[..., Any], str, float]:
    """The launching function of a case, its text, and the seconds that printing took."""
    before = time.perf_counter()
    made = case.op.generated("triton", case.dtypes, [len(shape) for shape in case.shapes])
    (kernel,) = made.program.kernels
    return load(made.text)[kernel.name], made.text, time.perf_counter() - before


def measured(case: Case, rounds: int, *, compiled: bool) -> dict[str, Any]:
    """One row of the table."""
    tensors = case.tensors()
    function, _, print_s = function_of(case)
    before = time.perf_counter()
    results = as_tuple(function(*tensors, **case.tiles))
    torch.cuda.synchronize()
    first_s = time.perf_counter() - before
    calls: dict[str, Callable[[], object]] = {"noyau": lambda: function(*tensors, **case.tiles)}
    calls["eager"] = lambda: case.eager(*tensors)
    with torch.no_grad():
        truth = as_tuple(case.eager(*(t.double() if t.is_floating_point() else t for t in tensors)))
        errors = {"noyau": worst(results, truth), "eager": worst(as_tuple(case.eager(*tensors)), truth)}
        del truth
        compile_s = 0.0
        if compiled:
            torch._dynamo.reset()
            fast = torch.compile(case.eager, dynamic=False)
            before = time.perf_counter()
            fast(*tensors)
            torch.cuda.synchronize()
            compile_s = time.perf_counter() - before
            calls["compile"] = lambda: fast(*tensors)
        read, written = bytes_of(tensors), bytes_of(results)
        word, calls[word] = plain(read, written)
        del results
        times = time_calls(calls, rounds=rounds)
        hot = time_calls({"noyau": calls["noyau"]}, rounds=10, cold=False)["noyau"]
    return {
        "case": case.name,
        "untuned": case.untuned,
        "bytes": read + written,
        "right": bool(errors["noyau"] <= 2 + 2 * errors["eager"]),
        "worst_ulp": errors,
        "plain": word,
        "target": case.target,
        "median_us": {name: round(t.median_s * 1e6, 2) for name, t in times.items()},
        "p10_us": {name: round(t.quantile_s(0.1) * 1e6, 2) for name, t in times.items()},
        "p90_us": {name: round(t.quantile_s(0.9) * 1e6, 2) for name, t in times.items()},
        "host_us": {name: round(statistics.median(t.host_s) * 1e6, 1) for name, t in times.items()},
        "unblocked": sum(t.unblocked for t in times.values()),
        "hot_us": round(hot.median_s * 1e6, 2),
        "over_plain": round(ratio(times["noyau"], times[word]), 3),
        "speedup": {
            name: round(ratio(times[name], times["noyau"]), 3) for name in times if name not in ("noyau", word)
        },
        "first_call_s": {"noyau": round(print_s + first_s, 2), "compile": round(compile_s, 2)},
        "samples_us": {name: [round(s * 1e6, 2) for s in t.samples_s] for name, t in times.items()},
    }


def line(row: dict[str, Any]) -> str:
    speedups = "  ".join(f"{name} {value:.2f}x" for name, value in row["speedup"].items())
    verdict = "" if row["over_plain"] <= row["target"] else f"  (wanted {row['target']:.2f}x)"
    wrong = "" if row["right"] else f"  WRONG {row['worst_ulp']}"
    return (
        f"{row['case']:32} {row['median_us']['noyau']:9.1f} us  {row['over_plain']:.2f}x a {row['plain']}  "
        f"faster than {speedups}{verdict}{wrong}"
    )


def machine() -> dict[str, Any]:
    """Where it ran."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "driver": _driver(),
        "python": platform.python_version(),
        "noyau": noyau.__version__,
    }


def _driver() -> str:
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit()), "")


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--no-untuned", action="store_true", help="without the sizes that nobody tuned")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("there is no CUDA device", file=sys.stderr)
        return 2
    rows = []
    for case in [*CASES, *([] if given.no_untuned else UNTUNED)]:
        if given.only not in case.name:
            continue
        rows.append(measured(case, given.rounds, compiled=not given.no_compile))
        print(line(rows[-1]), flush=True)
        torch.cuda.empty_cache()
    tuned = [row["speedup"]["compile"] for row in rows if "compile" in row["speedup"] and not row["untuned"]]
    print(f"geometric mean over torch.compile: {geometric_mean(tuned):.3f}x of {len(tuned)} cases")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    record = {"date": day, "machine": machine(), "over_compile": geometric_mean(tuned), "rows": rows}
    given.output.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
