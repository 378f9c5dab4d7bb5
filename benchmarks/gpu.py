"""Generated Triton kernels on a CUDA device: right, and against torch and a plain copy of the same bytes.

    python benchmarks/gpu.py [--only softmax] [--rounds 30] [--no-compile] [-o FILE]

Each case is an op; its kernels are printed in languages triton and cuda and launched on tensors, five rounds say which
of the two is the faster one, and that one is timed, as calls run what noyau.bench found. Its results are compared with
torch in float64, beside the error of torch in the case's own dtype. It is timed with a flushed L2, in turns with torch
eager, torch.compile, Liger and Quack where they are installed, and a plain copy (a plain read where more than 90 % of
the bytes are read) of as many bytes. Writes results/gpu.json.
"""

from __future__ import annotations

import argparse
import datetime
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from gpu_backward import Gradient, by_autograd, random_like, truth_of
from gpu_cases import BACKWARD, CASES, UNTUNED, Backward, Case
from gpu_peers import peers_of
from record import write as write_record

import noyau
from noyau.errors import UnsupportedError
from noyau.hosts.torch.cuda.clock import time_calls
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel
from noyau.timing.verdict import Comparison
from noyau.toolchain.triton.module import load

RESULTS = Path(__file__).parent / "results" / "gpu.json"
READ = 0.9  # the share of bytes that are read from which a plain read is what to compare with


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


@dataclass(frozen=True)
class Contest:
    """What is timed of a case: `noyau` and `eager` give results, `truth` those in float64; `prepare_s` is what printing
    took; `compiled` makes what torch.compile made of it; `peer` the same of another function; `read` bytes are read;
    `language`: that of noyau's kernel."""

    name: str
    noyau: Callable[[], Any]
    eager: Callable[[], Any]
    truth: Callable[[], Any]
    compiled: Callable[[], Callable[[], Any]]
    peer: Callable[[Callable[..., Any]], Callable[[], Any]]
    read: int
    prepare_s: float
    language: str = "triton"


def forward(case: Case) -> Contest:
    """An op, against a function of torch."""
    tensors = case.tensors()
    before = time.perf_counter()
    made = case.generate()
    (kernel,) = made.program.kernels
    function = load(made.text)[kernel.name]
    print_s = time.perf_counter() - before
    calls: dict[str, Callable[[], Any]] = {"triton": lambda: function(*tensors, **case.tiles)}
    with suppress(UnsupportedError):
        in_cuda = partial(in_language(case, "cuda", CudaKernel), *tensors)
        in_cuda()
        calls["cuda"] = in_cuda
    language = faster(calls)

    def compiled() -> Callable[[], Any]:
        fast = torch.compile(case.eager, dynamic=False)
        return lambda: fast(*tensors)

    return Contest(
        case.name,
        calls[language],
        lambda: case.eager(*tensors),
        lambda: case.eager(*(t.double() if t.is_floating_point() else t for t in tensors)),
        compiled,
        lambda function: lambda: function(*tensors),
        case.read_bytes(tensors),
        print_s,
        language,
    )


def faster(calls: dict[str, Callable[[], Any]]) -> str:
    """The faster one of some kernels, by a few rounds that are not those of the table."""
    if len(calls) == 1:
        return next(iter(calls))
    times = time_calls(calls, rounds=5)
    return min(times, key=lambda name: times[name].median_s)


def backward(gradient: Backward) -> Contest:
    """The gradient of an op, against autograd's."""
    case, wanted = gradient.case, gradient.wanted
    tensors = case.tensors()
    grads = random_like(case.eager(*tensors))
    before = time.perf_counter()
    own = Gradient(gradient)
    print_s = time.perf_counter() - before
    calls = own.calls(tensors, grads)
    language = faster(calls)
    return Contest(
        gradient.name,
        calls[language],
        by_autograd(case.eager, tensors, wanted, grads),
        lambda: truth_of(case, tensors, wanted, grads),
        lambda: by_autograd(torch.compile(case.eager, dynamic=False), tensors, wanted, grads),
        lambda function: by_autograd(function, tensors, wanted, grads),
        own.read_bytes,
        print_s,
        language,
    )


def measured(given: Case | Backward, rounds: int, *, compiled: bool) -> dict[str, Any]:
    """One row of the table."""
    back = isinstance(given, Backward)
    with torch.set_grad_enabled(back):
        torch._dynamo.reset()
        contest = backward(given) if isinstance(given, Backward) else forward(given)
        before = time.perf_counter()
        results = as_tuple(contest.noyau())
        torch.cuda.synchronize()
        first_s = time.perf_counter() - before + contest.prepare_s
        truth = as_tuple(contest.truth())
        errors = {"noyau": worst(results, truth), "eager": worst(as_tuple(contest.eager()), truth)}
        calls: dict[str, Callable[[], object]] = {"noyau": contest.noyau, "eager": contest.eager}
        refused = join_peers(given, contest, calls, errors, truth)
        del truth
        torch.cuda.empty_cache()
        compile_s = 0.0
        if compiled:
            before = time.perf_counter()
            calls["compile"] = contest.compiled()
            calls["compile"]()
            torch.cuda.synchronize()
            compile_s = time.perf_counter() - before
        read, written = contest.read, bytes_of(results)
        word, calls[word] = plain(read, written)
        del results
        times = time_calls(calls, rounds=rounds)
        hot = time_calls({"noyau": calls["noyau"]}, rounds=10, cold=False)["noyau"]
    case = given.case if isinstance(given, Backward) else given
    samples = {name: each.samples_s for name, each in times.items()}
    return {
        "case": contest.name,
        "kind": "backward" if back else "untuned" if case.untuned else "tuned",
        "language": contest.language,
        "bytes": read + written,
        "right": bool(errors["noyau"] <= 2 + 2 * errors["eager"]),
        "worst_ulp": errors,
        **({"refused": refused} if refused else {}),
        "plain": word,
        **({} if back else {"target": case.target}),
        "median_us": {name: round(t.median_s * 1e6, 2) for name, t in times.items()},
        "host_us": {name: round(statistics.median(t.host_s) * 1e6, 1) for name, t in times.items()},
        "unblocked": sum(t.unblocked for t in times.values()),
        "hot_us": round(hot.median_s * 1e6, 2),
        "over_plain": round(Comparison(samples["noyau"], samples[word]).speedup, 3),
        "speedup": {
            name: round(Comparison(those, samples["noyau"]).speedup, 3)
            for name, those in samples.items()
            if name not in ("noyau", word)
        },
        "first_call_s": {"noyau": round(first_s, 2), "compile": round(compile_s, 2)},
        "samples_us": {name: [round(s * 1e6, 2) for s in those] for name, those in samples.items()},
    }


def in_language(case: Case, language: str, kind: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of an op in a language; what it refuses, a call raises."""

    @cache
    def kernel() -> Any:
        made = case.generate(language)
        return kind(made.text, *made.program.kernels)

    def call(*tensors: torch.Tensor) -> Any:
        return kernel()(*tensors)

    return call


def join_peers(
    given: Case | Backward,
    contest: Contest,
    calls: dict[str, Callable[[], object]],
    errors: dict[str, float],
    truth: Any,
) -> dict[str, str]:
    """What peers there are joins the calls, with its error; those that refuse the case, and why."""
    refused = {}
    for name, function in peers_of(given).items():
        try:
            call = contest.peer(function)
            errors[name] = worst(as_tuple(call()), truth)
            torch.cuda.synchronize()
            calls[name] = call
        except Exception as error:  # noqa: BLE001  whatever another package raises is its refusal
            refused[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"
    return refused


def line(row: dict[str, Any]) -> str:
    speedups = "  ".join(f"{name} {value:.2f}x" for name, value in row["speedup"].items())
    target = row.get("target")
    verdict = "" if target is None or row["over_plain"] <= target else f"  (wanted {target:.2f}x)"
    wrong = "" if row["right"] else f"  WRONG {row['worst_ulp']}"
    return (
        f"{row['case']:32} {row['median_us']['noyau']:9.1f} us  {row['over_plain']:.2f}x a {row['plain']}  "
        f"faster than {speedups}  host {row['host_us']['noyau']:.0f} us{verdict}{wrong}"
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


def summed_up(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How much faster than torch.compile the kinds of cases are: the geometric mean and the least; printed."""
    kinds: dict[str, list[float]] = {"tuned": [], "untuned": [], "backward": []}
    for row in (row for row in rows if "compile" in row["speedup"]):
        kinds[row["kind"]].append(row["speedup"]["compile"])
    found = {}
    for kind, speedups in kinds.items():
        if speedups:
            found[kind] = {"geometric_mean": round(geometric_mean(speedups), 3), "least": min(speedups)}
            print(f"{kind}: {found[kind]['geometric_mean']:.3f}x torch.compile, at least {min(speedups):.3f}x")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--no-untuned", action="store_true", help="without the sizes that nobody tuned")
    parser.add_argument("--no-backward", action="store_true", help="without gradients")
    parser.add_argument("--part", default="0/1", help="every so many-th case, from this one on: 0/4")
    parser.add_argument("--warm", action="store_true", help="what is built lies in caches: first calls are not told")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("there is no CUDA device", file=sys.stderr)
        return 2
    rows = []
    wanted = [*CASES, *([] if given.no_untuned else UNTUNED), *([] if given.no_backward else BACKWARD)]
    mine, of = map(int, given.part.split("/"))
    for case in [case for case in wanted if given.only in case.name][mine::of]:
        rows.append(measured(case, given.rounds, compiled=not given.no_compile))
        if given.warm:
            del rows[-1]["first_call_s"]
        print(line(rows[-1]), flush=True)
        torch.cuda.empty_cache()
    means = summed_up(rows)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    record = {"date": day, "machine": machine(), "over_compile": means, "rows": rows}
    write_record(record, given.output)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
