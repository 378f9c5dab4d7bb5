"""Sides of a comparison, each of which times itself: a callable here, a contender on arrays, a state of a worker."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from noyau.errors import CheckError, NoyauError
from noyau.timing.input_rotation import Arrays
from noyau.workers.resources import peak_bytes
from noyau.workers.tamper_detection import Snapshot, seconds
from noyau.workers.worker import Worker

Function = Callable[[], object]
Clock = Callable[[], float]


class SelfTimed(Protocol):
    """A side that times itself: in another process, or on memory that is made fresh between calls."""

    def lasts(self, calls: int) -> float:
        """The seconds that so many calls take together."""


@dataclass(frozen=True, slots=True)
class _TimedCallable:
    """A callable of this process, called in a plain loop."""

    function: Function
    clock: Clock

    def lasts(self, calls: int) -> float:
        function, clock, rounds = self.function, self.clock, range(calls)
        start_s = clock()
        for _ in rounds:
            function()
        return clock() - start_s


def self_timed(side: Function | SelfTimed, clock: Clock) -> SelfTimed:
    return _TimedCallable(side, clock) if callable(side) else side


class WorkerState(SelfTimed, Protocol):
    """The state of a worker that is timed."""

    def tell(self) -> Mapping[str, Any]:
        """Facts about it; NoyauError where a run that was timed was wrong."""


@dataclass(slots=True)
class WorkerSide:
    """The state of a worker as a side of `compare`. CheckError where it crashes or hangs."""

    worker: Worker

    def lasts(self, calls: int) -> float:
        start_s = seconds()
        took_s = self.worker.call(lasts, calls)
        if took_s > seconds() - start_s:
            raise CheckError(f"{self.worker.name} says that it ran for {took_s:.3g} s, longer than it was waited for")
        return took_s

    def tell(self) -> dict[str, Any]:
        """The `peak_bytes` of the process, and the facts that its state tells."""
        return self.worker.call(tell)


def lasts(state: WorkerState, calls: int) -> float:
    """In the worker: the seconds that so many calls take together."""
    return float(state.lasts(calls))


def tell(state: WorkerState) -> dict[str, Any]:
    """In the worker: its facts."""
    return {"peak_bytes": peak_bytes(), **state.tell()}


@dataclass(frozen=True, slots=True)
class Contender:
    """A callable of arrays with a name. `into`: it writes to arrays given as `out=(...)`, made beforehand; else it
    returns an array or a tuple of them, as users call it, and its allocations are timed as well.

    `takes`: what it is called with for a set of arrays, made once a set; `takes_out`: what it is given as `out=` for a
    set of outputs; `gives`: what it returned as arrays, once the clock has stopped."""

    name: str
    run: Callable[..., object]
    into: bool = False
    takes: Callable[[Arrays], tuple[Any, ...]] = tuple
    takes_out: Callable[[Arrays], Any] = tuple
    gives: Callable[[object], object] = lambda result: result


@dataclass(frozen=True, slots=True)
class First:
    """A candidate's first calls, which are not timed against anything: the first is what compiles. `peak_bytes` is what
    one call allocates through Python and NumPy, at the peak."""

    first_s: float
    peak_bytes: int
    outputs: Arrays


def first_calls(candidate: Contender, inputs: Sequence[np.ndarray]) -> First:
    """The first call, timed as what compiles, and a second one, of which the memory is measured."""
    start_s = seconds()
    outputs = call_once(candidate, inputs)
    first_s = seconds() - start_s
    tracemalloc.start()
    try:
        call_once(candidate, inputs, outputs)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return First(first_s, peak_bytes, outputs)


def call_once(candidate: Contender, inputs: Sequence[np.ndarray], out: Sequence[np.ndarray] = ()) -> Arrays:
    """Call a candidate once on copies. A candidate that wants outputs and is given none is asked what it returns
    without them."""
    copies = tuple(array.copy() for array in inputs)
    try:
        arguments = candidate.takes(copies)
        into = {"out": candidate.takes_out(tuple(out))} if candidate.into and len(out) else {}
        result = candidate.gives(candidate.run(*arguments, **into))
    except NoyauError:
        raise
    except Exception as error:
        forms = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        raise CheckError(f"{candidate.name} does not run on {forms}: {type(error).__name__}: {error}") from error
    snapshot = Snapshot(tuple(inputs), copies)
    snapshot.keep(result, tuple(out) if candidate.into else ())
    snapshot.settle()
    if snapshot.fault:
        raise CheckError(f"{candidate.name} is wrong: {snapshot.fault}")
    return tuple(snapshot.outputs)
