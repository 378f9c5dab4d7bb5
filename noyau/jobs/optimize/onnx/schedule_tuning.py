"""Autotuning of a schedule's options on this machine: a few are timed against the usual ones, the best is kept.

What was found is kept by kernel, machine and shape class. Without it, and wherever nothing was tuned, the usual options
are taken; so text follows from the options that stand in its digest, and from nothing else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.c import printer as c_printer
from noyau.codegen.plan import Planned, digest
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.rewrite import nameless
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options, schedule
from noyau.errors import NoyauError, UnsupportedError
from noyau.hosts.onnxruntime.inputs import Activations
from noyau.hosts.onnxruntime.session_workers import FEW_BINDINGS, Workers
from noyau.ir.graph import Constant
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.onnx.candidates import compile_kernels
from noyau.timing.comparison import SelfTimed, compare_swapped
from noyau.timing.conditions import this_machine
from noyau.timing.pairwise import hot_sets
from noyau.timing.worker_side import WorkerSide
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.toolchain.cache import today
from noyau.workers.array_files import read_arrays
from noyau.workers.tamper_detection import seconds
from noyau.workers.worker import pin

SEARCHED = (
    replace(USUAL, kept=False),
    replace(USUAL, lanes=16),
    replace(USUAL, lanes=32),
    replace(USUAL, lanes=64),
    replace(USUAL, around_bytes=0),
    replace(USUAL, stages=False),
)
WINS_FROM = 1.03  # surely so much faster: less is not worth another text
LOSES_BELOW = 0.97
BUDGET_S = 15.0  # for all kernels of a model
_COMPARISON_S = 0.2


def variant(planned: Planned, options: Options, target: str) -> Planned:
    """The same kernel with other options of its schedule, under the name that its text then has."""
    key = digest(schedule(lower(nameless(planned.graph), "kernel"), options), target)
    stem = planned.operator.rpartition("_")[0]
    kernel = replace(schedule(planned.groups[0].kernel, options), name=f"{stem}_{key[:8]}")
    return replace(planned, operator=kernel.name, kernel=kernel, text=c_printer.source(kernel))


def variants(kernel: Planned, target: str) -> dict[Options, Planned]:
    """The kernels that other options make, each text once; none of those that the language refuses."""
    entries: dict[Options, Planned] = {}
    known = {kernel.operator}
    for options in SEARCHED:
        try:
            result = variant(kernel, options, target)
        except UnsupportedError:
            continue
        if result.operator not in known:
            known.add(result.operator)
            entries[options] = result
    return entries


def tuning_key(kernel: Planned, arrays: Sequence[np.ndarray], target: str, threads: int) -> str:
    """Key of a tuning: the kernel with its usual options, the machine, and shapes of the same class, of which
    each extent has the next power of two in common."""
    usual = digest(schedule(lower(nameless(kernel.graph), "kernel")), target)
    machine = this_machine()
    shapes = (str([max(extent - 1, 0).bit_length() for extent in array.shape]) for array in arrays)
    where = (machine.cpu, str(machine.cores), machine.compiler, target, str(threads))
    return toolchain_cache.digest("tuned", usual, *where, *shapes)


def recall(key: str) -> Options | None:
    """The options that were found best on this machine, or None."""
    told = toolchain_cache.recall(key)
    try:
        return None if told is None else Options(**told["options"])
    except (KeyError, TypeError):
        return None


def recall_options(
    candidates: Sequence[Candidate], activations: Activations, options: c_compiler.CompilerOptions, threads: int
) -> list[Candidate]:
    """The kernels with the options that were found best before; where nothing was, as they are."""
    return [_recalled(one, activations, options, threads) for one in candidates]


def _recalled(
    candidate: Candidate, activations: Activations, options: c_compiler.CompilerOptions, threads: int
) -> Candidate:
    arrays = _arrays(candidate, activations)
    recalled_value = None if arrays is None else recall(tuning_key(candidate.planned, arrays, options.target, threads))
    if recalled_value is None or recalled_value == USUAL:
        return candidate
    (result,) = compile_kernels([variant(candidate.planned, recalled_value, options.target)], options)
    return candidate if result.reason else result


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
        shapes = [arrays for arrays in (_arrays(one, activations) for activations in seens) if arrays is not None]
        if not shapes or seconds() > end_s:
            yield one
            continue
        speedup, chosen, winner = _best(one, shapes, options, workers, certify)
        fields = {"options": dataclasses.asdict(chosen), "speedup": speedup, "tuned_on": today()}
        toolchain_cache.keep(tuning_key(one.planned, shapes[0], options.target, threads), fields)
        yield winner


def _best(
    candidate: Candidate,
    shapes: Sequence[Sequence[np.ndarray]],
    options: c_compiler.CompilerOptions,
    workers: Workers,
    certify: Callable[[Candidate], Candidate],
) -> tuple[float, Options, Candidate]:
    """The fastest variant that is right, its options, and how much faster it is; the kernel itself where none is."""
    each = variants(candidate.planned, options.target)
    result = zip(each, compile_kernels(list(each.values()), options), strict=True)
    timings = [(_over_all(candidate, other, shapes, options, workers), chosen, other) for chosen, other in result]
    for speedup, chosen, other in sorted(timings, key=lambda found: -found[0]):
        if speedup < WINS_FROM:
            break
        if not certify(other).reason:
            return speedup, chosen, other
    return 1.0, USUAL, candidate


def _over_all(
    candidate: Candidate,
    other: Candidate,
    shapes: Sequence[Sequence[np.ndarray]],
    options: c_compiler.CompilerOptions,
    workers: Workers,
) -> float:
    """The geometric mean of how many times as fast another kernel is; 0 where it is slower for one of the shapes."""
    results = list[float]()
    for arrays in shapes:
        results.append(_speedup(candidate, other, arrays, options, workers))
        if results[-1] < LOSES_BELOW:
            return 0.0
    return math.exp(sum(map(math.log, results)) / len(results))


def _speedup(
    candidate: Candidate,
    other: Candidate,
    arrays: Sequence[np.ndarray],
    options: c_compiler.CompilerOptions,
    workers: Workers,
) -> float:
    """Factor by which another kernel is surely faster; 0 where that cannot be told."""
    if other.reason:  # it does not build
        return 0.0
    libraries = [c_compiler.compile_library([one.planned.text], options) for one in (candidate, other)]
    symbols = [f"{one.planned.operator}_kernel" for one in (candidate, other)]
    named = {str(number): array for number, array in enumerate(arrays)}

    def places(swapped: bool) -> tuple[SelfTimed, SelfTimed]:
        pair = workers.workers[::-1] if swapped else workers.workers
        with workers.written(named) as (_, inputs):
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
        start_s = seconds()
        for run in order:
            run()
        return seconds() - start_s

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


def _arrays(candidate: Candidate, activations: Activations) -> tuple[np.ndarray, ...] | None:
    """Arrays that a generated kernel reads; None for one that cannot be tuned."""
    if candidate.reason or candidate.planned.by_hand:
        return None
    group = candidate.planned.groups[0]
    known = {node.output: node.kind.value for node in group.original.nodes if isinstance(node.kind, Constant)}
    results = [known.get(name, activations.arrays.get(name)) for name in group.inputs]
    return None if any(array is None for array in results) else tuple(array for array in results if array is not None)
