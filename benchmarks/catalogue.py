"""The ops of noyau.nn on tensors against torch.compile and torch eager on a CPU: forward, and forward and backward.

    python benchmarks/catalogue.py [--cases softmax,...] [--dtypes f32,bf16] [--ways forward,training] [--budget 1]
                                   [-o FILE]                                                           needs torch

Of (2048, 4096) tensors. What all three compute, results and gradients, is compared with torch in float64 first: noyau
may be as far from it as torch is, eager or compiled. Then they are timed in rounds by noyau's clock, as users call
them: results are new tensors; training is a call, and torch.autograd.grad for all float inputs. The inputs are larger
than the caches. Cases are added to the record, results/catalogue.json, of which a summary is printed.
"""

from __future__ import annotations

import argparse
import datetime
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from record import read as read_record
from record import write as write_record
from torch import Tensor

from noyau import nn
from noyau.timing.comparison import compare_all
from noyau.timing.machine import this_machine
from noyau.workers.resources import processors

RESULTS = Path(__file__).parent / "results" / "catalogue.json"
ROWS, WIDTH = 2048, 4096
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
WAYS = ("forward", "training")
SIDES = ("noyau", "torch.compile", "torch eager")
STRAYS = 4  # times torch's own distance from float64 that noyau may have
LAST_BITS = 4  # units in the last place that it may have besides: one number may be right by chance
Made = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """An op, the same in torch, and a maker of inputs in float32."""

    ours: Callable[..., Any]
    torch: Callable[..., Any]
    inputs: Callable[[], Made]


def rows() -> Made:
    return (torch.randn(ROWS, WIDTH),)


def two() -> Made:
    return torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)


def weighted() -> Made:
    return torch.randn(ROWS, WIDTH), torch.rand(WIDTH) + 0.5


def weighted_and_moved() -> Made:
    return *weighted(), torch.randn(WIDTH)


def positions() -> Made:
    rates = 10000.0 ** -(torch.arange(64) / 64)
    angles = torch.outer(torch.arange(ROWS // 32), rates).tile(2)
    return torch.randn(1024, ROWS // 32, 128), torch.cos(angles), torch.sin(angles)


def torch_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def torch_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Made:
    total = x + residual
    return F.rms_norm(total, (WIDTH,), weight, 1e-6), total


def torch_add_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Made:
    total = x + residual
    return F.layer_norm(total, (WIDTH,), weight, bias), total


CASES = {
    "rms_norm": Case(nn.rms_norm, lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-6), weighted),
    "add_rms_norm": Case(nn.add_rms_norm, torch_add_rms_norm, lambda: (*two(), torch.rand(WIDTH) + 0.5)),
    "layer_norm": Case(nn.layer_norm, lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), weighted_and_moved),
    "add_layer_norm": Case(
        nn.add_layer_norm, torch_add_layer_norm, lambda: (*two(), torch.rand(WIDTH) + 0.5, torch.randn(WIDTH))
    ),
    "softmax": Case(nn.softmax, lambda x: F.softmax(x, -1), rows),
    "log_softmax": Case(nn.log_softmax, lambda x: F.log_softmax(x, -1), rows),
    "cross_entropy": Case(nn.cross_entropy_mean, F.cross_entropy, lambda: (*rows(), torch.randint(0, WIDTH, (ROWS,)))),
    "gelu": Case(nn.gelu, F.gelu, rows),
    "gelu_tanh": Case(partial(nn.gelu, approximate="tanh"), partial(F.gelu, approximate="tanh"), rows),
    "silu": Case(nn.silu, F.silu, rows),
    "swiglu": Case(nn.swiglu, lambda gate, up: F.silu(gate) * up, two),
    "geglu": Case(nn.geglu, lambda gate, up: F.gelu(gate) * up, two),
    "rope": Case(nn.rope, torch_rope, positions),
    "piecewise_linear": Case(
        nn.piecewise_linear,
        lambda x, negative, positive: torch.where(x > 0, x * positive, x * negative),
        lambda: (*rows(), torch.tensor(0.25), torch.tensor(1.5)),
    ),
    "log_sigmoid_mul_sum": Case(nn.log_sigmoid_mul_sum, lambda x, y: (F.logsigmoid(x) * y).sum(-1), two),
}


def in_dtype(tensors: Sequence[Tensor], dtype: torch.dtype) -> Made:
    return tuple(each.to(dtype) if each.is_floating_point() else each for each in tensors)


def as_tuple(made: Any) -> Made:
    return tuple(made) if isinstance(made, tuple | list) else (made,)


def forward(function: Callable[..., Any], inputs: Made, upstream: Made) -> Made:
    with torch.no_grad():
        return as_tuple(function(*inputs))


def training(function: Callable[..., Any], inputs: Made, upstream: Made) -> Made:
    """The results, and the gradients of all float inputs."""
    made = as_tuple(function(*inputs))
    wanted = [each for each in inputs if each.requires_grad]
    return *(each.detach() for each in made), *torch.autograd.grad(made, wanted, upstream)


CALLED = {"forward": forward, "training": training}


def distance(got: Made, truth: Made) -> list[float]:
    """The root of the mean square by which each result is beside the truth."""
    return [float((one.double() - other).square().mean().sqrt()) for one, other in zip(got, truth, strict=True)]


def run(name: str, dtype: str, way: str, budget_s: float) -> dict[str, Any]:
    """One case, as a record."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    case, call = CASES[name], CALLED[way]
    inputs = in_dtype(case.inputs(), DTYPES[dtype])
    inputs = tuple(each.requires_grad_(way == "training" and each.is_floating_point()) for each in inputs)
    wide = tuple(
        each.detach().double().requires_grad_(each.requires_grad) if each.is_floating_point() else each
        for each in inputs
    )
    with torch.no_grad():
        upstream = tuple(torch.randn_like(each) for each in as_tuple(case.torch(*inputs)))
    functions = {
        "noyau": case.ours,
        "torch.compile": torch.compile(case.torch, dynamic=False),
        "torch eager": case.torch,
    }
    truth = call(case.torch, wide, tuple(each.double() for each in upstream))
    strays, first_s = {}, {}
    for side, function in functions.items():
        start_s = time.perf_counter()
        made = call(function, inputs, upstream)
        first_s[side] = time.perf_counter() - start_s
        strays[side] = distance(made, truth)
    sizes = [float(each.square().mean().sqrt()) for each in truth]
    del truth, wide, made
    torch_strays = [max(pair) for pair in zip(strays["torch.compile"], strays["torch eager"], strict=True)]
    wrong = [
        f"result {at} is {own:.2g} beside float64, torch {other:.2g}"
        for at, (own, other, size) in enumerate(zip(strays["noyau"], torch_strays, sizes, strict=True))
        if not own <= STRAYS * other + LAST_BITS * torch.finfo(DTYPES[dtype]).eps * size
    ]
    record: dict[str, Any] = {"case": name, "dtype": dtype, "way": way, "strays": strays, "first_calls_s": first_s}
    record |= {"wrong": wrong, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    if wrong:
        return record
    series = compare_all([partial(call, functions[side], inputs, upstream) for side in SIDES], budget_s=budget_s)
    compared = {side: series.comparison(at, 0) for at, side in enumerate(SIDES) if at}
    return record | {
        "median_s": {side: series.median_s(at) for at, side in enumerate(SIDES)},
        "samples_s": {side: list(series.seconds[at]) for at, side in enumerate(SIDES)},
        "ratios": {side: [each.speedup, each.low, each.high] for side, each in compared.items()},
    }


def told(record: Mapping[str, Any]) -> str:
    head = f"{record['case']:20s} {record['dtype']:5s} {record['way']:9s}"
    if record["wrong"]:
        return f"{head} WRONG: {'; '.join(record['wrong'])}"
    times = ", ".join(f"{side} {1e3 * time_s:.2f} ms" for side, time_s in record["median_s"].items())
    ratio, low, high = record["ratios"]["torch.compile"]
    return f"{head} {ratio:5.2f}x [{low:.2f}, {high:.2f}] {times}"


def summary(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The geometric mean and the least of each dtype and way, and of all."""
    right = [each for each in records if not each["wrong"]]
    groups = {(d, w): [r for r in right if (r["dtype"], r["way"]) == (d, w)] for d, w in product(DTYPES, WAYS)}
    for label, group in [*((f"{d} {w}", found) for (d, w), found in groups.items()), ("all", right)]:
        for side in SIDES[1:] if group else ():
            ratios = {f"{r['case']} {r['dtype']} {r['way']}": r["ratios"][side][0] for r in group}
            mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
            least = min(ratios, key=lambda name: ratios[name])
            told_mean = f"{mean:.2f}x {side} in the geometric mean of {len(ratios)}"
            yield f"{label}: {told_mean}, at least {ratios[least]:.2f}x ({least})"
    yield from (f"wrong: {told(each)}" for each in records if each["wrong"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--budget", type=float, default=1.0, metavar="S", help="seconds of timing for each case")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(processors())
    kept = read_record(arguments.output, {"cases": {}})
    kept |= {"machine": this_machine().to_json(), "torch": torch.__version__, "threads": processors()}
    kept |= {"shape": [ROWS, WIDTH]}
    chosen = (arguments.cases.split(","), arguments.dtypes.split(","), arguments.ways.split(","))
    for name, dtype, way in product(*chosen):
        record = run(name, dtype, way, arguments.budget)
        print(told(record), flush=True)
        kept["cases"][f"{name} {dtype} {way}"] = {key: value for key, value in record.items() if key != "case"}
        write_record(kept, arguments.output)
    print(*summary([{"case": key.split()[0], **each} for key, each in kept["cases"].items()]), sep="\n")


if __name__ == "__main__":
    main()
