"""The search among options of a schedule: kernels called in turns, of which the best that is right is kept; and what
was found best before, by kernel, machine and shape class. Wherever nothing was tuned, the usual options are taken; so
text follows from the options that stand in its digest, and from nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.c import printer as c_printer
from noyau.codegen.plan import PlannedKernel, digest
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.rewrite import nameless
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options, schedule
from noyau.errors import NoyauError, UnsupportedError
from noyau.hosts.onnxruntime.activations import Activations
from noyau.hosts.onnxruntime.runs import FEW_BINDINGS, self_timed
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.ir.graph import Constant
from noyau.jobs.optimize.onnx.candidates import compile_kernels
from noyau.jobs.optimize.pipeline import Candidate
from noyau.timing.comparison import compare_swapped
from noyau.timing.machine import this_machine
from noyau.timing.sides import SelfTimedSide, WorkerSide, hot_sets
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.toolchain.cache import today
from noyau.workers.array_files import read_arrays
from noyau.workers.tamper_detection import seconds
from noyau.workers.worker import pin

SEARCHED = (
    replace(USUAL, kept=False),
    *(replace(USUAL, lanes=lanes) for lanes in (16, 32, 64)),
    replace(USUAL, around_bytes=0),
    replace(USUAL, stages=False),
)
WINS_FROM = 1.03  # surely so much faster: less is not worth another text
LOSES_BELOW = 0.97
BUDGET_S = 15.0  # for all kernels of a model
_COMPARISON_S = 0.2


def variants(kernel: PlannedKernel, target: str) -> dict[Options, PlannedKernel]:
    """The kernels that other options make, each text once; none of those that the language refuses."""
    entries: dict[str, tuple[Options, PlannedKernel]] = {}
    for options in SEARCHED:
        with contextlib.suppress(UnsupportedError):
            result = variant(kernel, options, target)
            entries.setdefault(result.operator, (options, result))
    entries.pop(kernel.operator, None)
    return dict(entries.values())


def tune(
    candidates: Sequence[Candidate],
    seens: Sequence[Activations],
    options: c_compiler.CompilerOptions,
    workers: Workers,
    certify: Callable[[Candidate], Candidate],
    threads: int = 1,
    budget_s: float = BUDGET_S,
) -> Iterator[Candidate]:
    """Each kernel with the options that are fastest on what flows through the model, over all that was seen, and slower
    on none of it, if it then has its certificate.

    Variants are called directly, in turns with the kernel as it is, in processes of their own; what is found is kept.
    Nothing is tried any more once `budget_s` is spent. `certify` gives a kernel its certificate, or a reason."""
    end_s = seconds() + budget_s
    pin(workers.workers, 1)
    for one in candidates:
        shapes = [arrays for arrays in (arrays_of(one, activations) for activations in seens) if arrays is not None]
        if not shapes or seconds() > end_s:
            yield one
            continue
        speedup, best, winner = Tuning(options, workers, certify).best(one, shapes)
        fields = {"options": dataclasses.asdict(best), "speedup": speedup, "tuned_on": today()}
        toolchain_cache.keep(tuning_key(one.planned, shapes[0], options.target, threads), fields)
        yield winner


@dataclass(frozen=True, slots=True)
class Tuning:
    """The compiler, the clock and the judge of variants."""

    options: c_compiler.CompilerOptions
    workers: Workers
    certify: Callable[[Candidate], Candidate]

    def best(self, candidate: Candidate, shapes: Sequence[Arrays]) -> tuple[float, Options, Candidate]:
        """The fastest variant that is right, its options, and how much faster it is; else the kernel itself."""
        each = variants(candidate.planned, self.options.target)
        others = zip(each, compile_kernels(list(each.values()), self.options), strict=True)
        timings = [(self.over_all(candidate, other, shapes), options, other) for options, other in others]
        for speedup, options, other in sorted(timings, key=lambda timing: -timing[0]):
            if speedup < WINS_FROM:
                break
            if not self.certify(other).reason:
                return speedup, options, other
        return 1.0, USUAL, candidate

    def over_all(self, candidate: Candidate, other: Candidate, shapes: Sequence[Arrays]) -> float:
        """The geometric mean of how many times as fast another kernel is; 0 where it is slower for a shape."""
        results = list[float]()
        for arrays in shapes:
            results.append(surely_faster(candidate, other, arrays, self.options, self.workers))
            if results[-1] < LOSES_BELOW:
                return 0.0
        return statistics.geometric_mean(results)


def surely_faster(
    candidate: Candidate, other: Candidate, arrays: Arrays, options: c_compiler.CompilerOptions, workers: Workers
) -> float:
    """Factor by which another kernel is surely faster; 0 where that cannot be told."""
    if other.reason:  # it does not build
        return 0.0
    libraries = [c_compiler.compile_library([one.planned.text], options) for one in (candidate, other)]
    symbols = [f"{one.planned.operator}_kernel" for one in (candidate, other)]
    by_number = {str(number): array for number, array in enumerate(arrays)}

    def places(swapped: bool) -> tuple[SelfTimedSide, SelfTimedSide]:
        pair = workers.workers[::-1] if swapped else workers.workers
        with workers.write(by_number) as (_, inputs):
            for worker, library, symbol in zip(pair, libraries, symbols, strict=True):
                worker.open(open_kernel, library, symbol, inputs)
        return WorkerSide(pair[0]), WorkerSide(pair[1])

    try:
        return compare_swapped(places, budget_s=_COMPARISON_S).low
    except NoyauError:  # it crashes, hangs, or refuses what flows through the model
        return 0.0


@dataclass(slots=True)
class DirectCalls:
    """In the worker: a kernel bound to several copies of its inputs, called in turn."""

    runs: Sequence[Callable[[], object]]
    turn: int = 0

    def lasts(self, calls: int) -> float:
        order = [self.runs[(self.turn + number) % len(self.runs)] for number in range(calls)]
        self.turn += calls
        return self_timed(order)

    def tell(self) -> dict[str, int]:
        return {"bindings": len(self.runs)}


def open_kernel(library: Path, symbol: str, inputs: Sequence[Mapping[str, Any]]) -> DirectCalls:
    """In the worker: the kernel, bound to memory that nothing else uses."""
    kernel, arrays = Native(library, symbol), list(read_arrays(inputs).values())
    count = min(hot_sets(sum(array.nbytes for array in arrays)), FEW_BINDINGS)
    runs = [kernel.bound(*(array.copy() for array in arrays)) for _ in range(count)]
    for run in runs:
        run()
    return DirectCalls(runs)


Arrays = Sequence[np.ndarray]


def variant(planned: PlannedKernel, options: Options, target: str) -> PlannedKernel:
    """The same kernel with other options of its schedule, under the name that its text then has."""
    key = digest(schedule(lower(nameless(planned.graph), "kernel"), options), target)
    stem = planned.operator.rpartition("_")[0]
    kernel = replace(schedule(planned.groups[0].kernel, options), name=f"{stem}_{key[:8]}")
    return replace(planned, operator=kernel.name, kernel=kernel, text=c_printer.source(kernel))


def tuning_key(kernel: PlannedKernel, arrays: Arrays, target: str, threads: int) -> str:
    """Key of a tuning: the kernel with usual options, the machine, and shapes, each extent up to a power of two."""
    usual = digest(schedule(lower(nameless(kernel.graph), "kernel")), target)
    machine = this_machine()
    shapes = (str([max(extent - 1, 0).bit_length() for extent in array.shape]) for array in arrays)
    where = (machine.cpu, str(machine.cores), machine.compiler, target, str(threads))
    return toolchain_cache.digest("tuned", usual, *where, *shapes)


def recall(key: str) -> Options | None:
    """The options that were found best on this machine, or None."""
    return toolchain_cache.recall_as(key, lambda entry: Options(**entry["options"]))


def recall_options(
    candidates: Sequence[Candidate], activations: Activations, options: c_compiler.CompilerOptions, threads: int
) -> list[Candidate]:
    """The kernels with the options that were found best before; where nothing was, as they are."""

    def recall_one(candidate: Candidate) -> Candidate:
        arrays = arrays_of(candidate, activations)
        best = None if arrays is None else recall(tuning_key(candidate.planned, arrays, options.target, threads))
        if best is None or best == USUAL:
            return candidate
        (result,) = compile_kernels([variant(candidate.planned, best, options.target)], options)
        return candidate if result.reason else result

    return [recall_one(each) for each in candidates]


def arrays_of(candidate: Candidate, activations: Activations) -> tuple[np.ndarray, ...] | None:
    """Arrays that a generated kernel reads; None for one that cannot be tuned."""
    if candidate.reason or candidate.planned.by_hand:
        return None
    group = candidate.planned.groups[0]
    constants = {node.output: node.kind.value for node in group.original.nodes if isinstance(node.kind, Constant)}
    values = {**activations.arrays, **constants}
    return tuple(values[name] for name in group.inputs) if values.keys() >= set(group.inputs) else None
