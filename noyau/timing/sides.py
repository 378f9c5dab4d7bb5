"""Sides of a comparison, each of which times itself: a callable of this process, or the state of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from noyau.errors import CheckError
from noyau.workers.resources import peak_bytes
from noyau.workers.tamper_detection import seconds
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
