"""Noyau's ops against torch, numexpr and NumPy on a CPU, each as users call it and with `out=`, against a copy.

    python benchmarks/cpu_peers.py [--cases softmax,...] [--budget 2] [-o FILE]       needs torch and numexpr

All candidates of a case are timed in one race by noyau's clock (`noyau.bench`): in rounds, on inputs that change, and
verified against float64. The floor is a copy of as many bytes that are in no cache, as the inputs are not when their
turn comes, or the scalar functions of the case at the rates that `noyau machine` measures, whichever takes longer;
both are measured in the same run. Beside it stands what reading the inputs alone takes, measured alike: where reads and
writes have ways of their own, a copy moves more than a loop that only reads, and a sum cannot reach its rate.
torch.compile writes its result over `out` where that is given. Cases are added to the record,
results/cpu_peers.json, which is printed.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numexpr
import numpy as np
import torch
import torch.nn.functional as F
from record import read as read_record
from record import write as write_record

import noyau
from noyau.codegen.language import languages_for
from noyau.functions import erf
from noyau.ir.graph import Graph, Map
from noyau.jobs.bench.record import FILLING, RETURNING
from noyau.kernels.programs.generate import specialization_of, trace_reference
from noyau.ops.op import Op
from noyau.signatures.instances import bind
from noyau.timing.conditions import last_level_bytes
from noyau.timing.machine import this_machine
from noyau.timing.rates import machine_rates, measure_copy, measure_nontemporal, measure_read
from noyau.workers.resources import processors

RESULTS = Path(__file__).parent / "results" / "cpu_peers.json"
CORES = processors()
N, ROWS, WIDTH = 1 << 22, 2048, 4096
NEAR = 1.5  # of the floor
BEYOND = 4  # times the last-level cache: what is no more in it


@dataclass(frozen=True, slots=True)
class Case:
    """An op, its inputs, and the same in torch and, where it can express it, in numexpr: of the op's parameters."""

    op: Op[..., Any]
    inputs: Callable[[np.random.Generator], tuple[Any, ...]]
    torch: Callable[..., Any]
    expression: str = ""


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


def positive(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.random(shape, np.float32) + np.float32(0.5)


@noyau.op("f32[n], f32[n] -> f32[n]")
def vector_add(x, y):
    return x + y


@noyau.op("f32[n], f32[n] -> f32")
def dot(x, y):
    return (x * y).sum()


@noyau.op("f32[n] -> f32[n]")
def below(x):
    return np.where(x > 1, np.float32(1), x)


def normal_share(z):
    return np.float32(0.5) * (1 + erf(z * np.float32(math.sqrt(0.5))))


T, RATE, SPREAD = 0.5, 0.03, 0.2
DRIFT, DEVIATION = np.float32((RATE + SPREAD**2 / 2) * T), np.float32(SPREAD * math.sqrt(T))
DISCOUNT = np.float32(math.exp(-RATE * T))


@noyau.op("f32[n], f32[n] -> f32[n]")
def black_scholes(s, k):
    d1 = (np.log(s / k) + DRIFT) / DEVIATION
    return s * normal_share(d1) - k * DISCOUNT * normal_share(d1 - DEVIATION)


@noyau.op("f32[rows, n], f32[rows, n] -> f32[rows, n]")
def swiglu(gate, up):
    return gate / (1 + np.exp(-gate)) * up


SLOPE = np.float32(math.sqrt(2 / math.pi))


@noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")
def gelu_bias(x, bias):
    y = x + bias
    return np.float32(0.5) * y * (1 + np.tanh(SLOPE * (y + np.float32(0.044715) * y * y * y)))


@noyau.op("f32[rows, n] -> f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@noyau.op("f32[rows, n], f32[n], f32[n] -> f32[rows, n]")
def layernorm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + np.float32(1e-5)) * weight + bias


@noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")
def rmsnorm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)) * weight


@noyau.op("f32[heads, s, d], f32[s, d], f32[s, d] -> f32[heads, s, d]")
def rope(q, cos, sin):
    half = q.shape[-1] // 2
    turned = np.concatenate((-q[..., half:], q[..., :half]), axis=-1)
    return q * cos + turned * sin


@noyau.op("f32[rows, n], i64[rows] -> f32")
def cross_entropy(logits, target):
    top = logits.max(-1)
    total = np.log(np.exp(logits - top[:, None]).sum(-1)) + top
    return (total - logits[np.arange(logits.shape[0]), target]).mean()


@noyau.op("f32[m, n] -> f32[n, m]")
def transpose(x):
    return np.ascontiguousarray(x.T)


@noyau.op("f32[h, w] -> f32[h, w]")
def heat(u):
    v = u.copy()
    v[1:-1, 1:-1] = np.float32(0.25) * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return v


def torch_heat(u):
    v = u.clone()
    v[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return v


def torch_black_scholes(s, k):
    d1 = (torch.log(s / k) + float(DRIFT)) / float(DEVIATION)

    def share(z):
        return 0.5 * (1 + torch.erf(z * math.sqrt(0.5)))

    return s * share(d1) - k * float(DISCOUNT) * share(d1 - float(DEVIATION))


def torch_rope(q, cos, sin):
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def torch_rmsnorm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def two(rng):
    return normal(rng, N), normal(rng, N)


def row_and_weight(rng):
    return normal(rng, ROWS, WIDTH), positive(rng, WIDTH)


CASES = (
    Case(vector_add, two, lambda x, y: x + y, "x + y"),
    Case(dot, two, lambda x, y: (x * y).sum(), "sum(x * y)"),
    Case(
        below,
        lambda rng: (positive(rng, N),),
        lambda x: torch.where(x > 1, torch.ones_like(x), x),
        "where(x > one, one, x)",
    ),
    Case(
        black_scholes,
        lambda rng: (positive(rng, N // 4), positive(rng, N // 4)),
        torch_black_scholes,
    ),
    Case(
        swiglu,
        lambda rng: (normal(rng, ROWS, WIDTH), normal(rng, ROWS, WIDTH)),
        lambda g, u: F.silu(g) * u,
        "gate / (one + exp(-gate)) * up",
    ),
    Case(
        gelu_bias,
        lambda rng: (normal(rng, ROWS, WIDTH), normal(rng, WIDTH) / 10),
        lambda x, b: F.gelu(x + b, approximate="tanh"),
        "half * (x + bias) * (one + tanh(slope * ((x + bias) + cubic * (x + bias) * (x + bias) * (x + bias))))",
    ),
    Case(softmax, lambda rng: (normal(rng, ROWS, WIDTH),), lambda x: torch.softmax(x, -1)),
    Case(
        layernorm,
        lambda rng: (normal(rng, ROWS, WIDTH), positive(rng, WIDTH), normal(rng, WIDTH)),
        lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b),
    ),
    Case(rmsnorm, row_and_weight, torch_rmsnorm),
    Case(rope, lambda rng: (normal(rng, 32, 1024, 128), normal(rng, 1024, 128), normal(rng, 1024, 128)), torch_rope),
    Case(
        cross_entropy,
        lambda rng: (normal(rng, ROWS, WIDTH), rng.integers(0, WIDTH, ROWS)),
        F.cross_entropy,
    ),
    Case(transpose, lambda rng: (normal(rng, ROWS, WIDTH),), lambda x: x.t().contiguous()),
    Case(heat, lambda rng: (normal(rng, ROWS, WIDTH),), torch_heat),
)

NUMBERS = {"one": np.float32(1), "half": np.float32(0.5), "slope": SLOPE, "cubic": np.float32(0.044715)}


def peers_of(case: Case) -> dict[str, Callable[..., Any]]:
    """The peers by name; those whose name begins with torch are given tensors."""
    compiled = torch.compile(case.torch, dynamic=False)
    written = torch.compile(lambda *arguments, out: out.copy_(case.torch(*arguments)), dynamic=False)

    def torch_compile(*arguments: Any, out: Any = None) -> Any:
        return compiled(*arguments) if out is None else written(*arguments, out=out)

    def torch_eager(*arguments: Any) -> Any:
        return case.torch(*arguments)

    found: dict[str, Callable[..., Any]] = {"torch.compile": torch_compile, "torch eager": torch_eager}
    names = case.op.description.reference.parameters

    def in_numexpr(*arguments: Any, out: Any = None) -> Any:
        return numexpr.evaluate(case.expression, {**NUMBERS, **dict(zip(names, arguments, strict=True))}, {}, out)

    return found | ({"numexpr": in_numexpr} if case.expression else {})


def scalar_s(graph: Graph, sizes: Mapping[str, int]) -> float:
    """The seconds of a graph's scalar functions on all cores, at the rates of `noyau machine`."""
    machine = machine_rates()
    alone_s = 0.0
    for node in graph.nodes:
        match node.kind:
            case Map(function) if f"{function}_f32" in machine.rates:
                cells = math.prod(int(dim.evaluate(sizes)) for dim in node.shape)
                alone_s += cells / machine.rates[f"{function}_f32"]
            case _:
                pass
    return alone_s / machine.scaling["exp"].get(CORES, 1.0)


def cold_s(moved_bytes: int, *ways: Callable[[int, int], float]) -> float:
    """The seconds in which the fastest of some loops moves so many bytes, as a part of what no cache can hold."""
    times = max(1, math.ceil(BEYOND * last_level_bytes() / moved_bytes))
    return moved_bytes / max(measure(times * moved_bytes, CORES) for measure in ways)


def first_call_s(case: Case, language: str) -> float:
    """Seconds of the first call of an op with nothing built yet: tracing, compiling, its smoke certificate. Another op
    is called before, for what is built once a machine. In `numba` where no compiler is found."""
    with tempfile.TemporaryDirectory(prefix="noyau-peers-") as folder:
        command = [sys.executable, __file__, "--first", case.op.name]
        environment = {**os.environ, "XDG_CACHE_HOME": folder} | ({} if language == "c" else {"PATH": folder})
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def print_first_call(case: Case) -> None:
    other = noyau.op("f32[n] -> f32[n]")(lambda x: x + 1)
    other(np.ones(100, np.float32))
    arguments = case.inputs(np.random.default_rng(0))
    start_s = time.perf_counter()
    case.op(*arguments)
    print(time.perf_counter() - start_s)


def run(case: Case, budget_s: float) -> dict[str, Any]:
    """One case, as a record."""
    found = noyau.bench(case.op, case.inputs, peers=peers_of(case), budget_s=budget_s)
    print(found, flush=True)
    (at,) = found.at
    functions_s = scalar_s(graph_of(case), at.sizes)
    moved = at.work.bytes_moved
    copy_s, read_s = cold_s(moved, measure_copy, measure_nontemporal), cold_s(at.work.read_bytes, measure_read)
    times = {
        row.name: {way: at.time_s(row.name, way) for way in (RETURNING, FILLING)} for row in at.rows if not row.skipped
    }
    return {
        "case": case.op.name,
        "sizes": dict(at.sizes),
        "bytes_moved": moved,
        "copy_s": copy_s,
        "read_s": read_s,
        "functions_s": functions_s,
        "bound_s": max(copy_s, functions_s),
        "first_call_s": {language: first_call_s(case, language) for language in languages_for(gpu=False)},
        "times_s": times,
        "first_calls_s": {row.name: row.first_s for row in at.rows},
        "wrong": {row.name: row.fault for row in at.rows if row.fault},
        "doubts": at.doubts,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def graph_of(case: Case) -> Graph:
    signature = case.op.signature
    assert signature is not None
    bound = bind(signature, case.inputs(np.random.default_rng(0)), {}, case.op.name)
    return trace_reference(case.op.description.reference, specialization_of(signature, bound, {}))


def ratios(record: Mapping[str, Any], ours: str, peer: str) -> Iterator[tuple[str, float]]:
    """How many times as fast as a peer a case of ours is, in each way in which both were called."""
    times = record["times_s"]
    for way in (RETURNING, FILLING):
        pair = [times.get(name, {}).get(way) for name in (ours, peer)]
        if None not in pair:
            yield way, pair[1] / pair[0]


def first_calls(record: Mapping[str, Any]) -> Mapping[str, float]:
    """The seconds of the first call by language; an older record has those of c alone, for both."""
    found = record["first_call_s"]
    return found if isinstance(found, dict) else dict.fromkeys(languages_for(gpu=False), found)


def summary(records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What is wanted, and what came of it, for each language of generated kernels."""
    for ours in (f"generated {language}" for language in languages_for(gpu=False)):
        known = {name: each for name, each in records.items() if ours in each["times_s"]}
        for peer in ("torch.compile", "numexpr", "torch eager", "reference"):
            found = {f"{n} {way}": ratio for n, each in known.items() for way, ratio in ratios(each, ours, peer)}
            if found:
                mean = math.exp(sum(map(math.log, found.values())) / len(found))
                worst = min(found, key=lambda name: found[name])
                told = f"{mean:.2f}x in the geometric mean of {len(found)}, at worst {found[worst]:.2f}x ({worst})"
                yield f"{ours} against {peer}: {told}"
        for name, each in known.items():
            times = [time_s for time_s in each["times_s"][ours].values() if time_s is not None]
            if not times:
                yield f"  {name}: not timed, for it is wrong: {each['wrong'].get(ours)}"
                continue
            least_s = min(times)
            share = least_s / each["bound_s"]
            kind = "copy" if each["copy_s"] >= each["functions_s"] else "functions"
            first = f"first call {first_calls(each)[ours.removeprefix('generated ')]:.2f} s"
            late = "" if share <= NEAR else f", beyond {NEAR}"
            alone = f", {least_s / each['read_s']:.2f} of reading its inputs alone" if "read_s" in each else ""
            yield f"  {name}: {share:.2f} of the floor ({kind}{late}){alone}; {first}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", default=",".join(case.op.name for case in CASES))
    parser.add_argument("--budget", type=float, default=2.0, metavar="S")
    parser.add_argument("--first", metavar="CASE", help="print the seconds of a case's first call, and nothing else")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    by_name = {case.op.name: case for case in CASES}
    if arguments.first:
        print_first_call(by_name[arguments.first])
        return
    torch.set_num_threads(CORES)
    numexpr.set_num_threads(CORES)
    told = read_record(arguments.output, {"cases": {}})
    versions = {"torch": torch.__version__, "numexpr": numexpr.__version__}
    told |= {"machine": this_machine().to_json(), "versions": versions, "threads": CORES}
    for name in filter(None, arguments.cases.split(",")):
        told["cases"][name] = run(by_name[name], arguments.budget)
        write_record(told, arguments.output)
    print(*summary(told["cases"]), sep="\n")


if __name__ == "__main__":
    main()
