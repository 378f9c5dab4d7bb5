"""Two kernels called directly, in turns, in processes of their own: which is surely faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import NoyauError
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.worker_session import FEW_BINDINGS
from noyau.jobs.optimize.candidate import Candidate
from noyau.timing.comparison import compare_swapped
from noyau.timing.input_rotation import hot_sets
from noyau.timing.sides import SelfTimed, WorkerSide
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.workers.array_files import read_arrays
from noyau.workers.tamper_detection import seconds

Arrays = Sequence[np.ndarray]
_COMPARISON_S = 0.2


def surely_faster(
    candidate: Candidate, other: Candidate, arrays: Arrays, options: c_compiler.CompilerOptions, workers: Workers
) -> float:
    """Factor by which another kernel is surely faster; 0 where that cannot be told."""
    if other.reason:  # it does not build
        return 0.0
    libraries = [c_compiler.compile_library([one.planned.text], options) for one in (candidate, other)]
    symbols = [f"{one.planned.operator}_kernel" for one in (candidate, other)]
    by_number = {str(number): array for number, array in enumerate(arrays)}

    def places(swapped: bool) -> tuple[SelfTimed, SelfTimed]:
        pair = workers.workers[::-1] if swapped else workers.workers
        with workers.written(by_number) as (_, inputs):
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
