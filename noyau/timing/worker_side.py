"""Sides of a comparison that run in worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from noyau.errors import CheckError
from noyau.timing.comparison import SelfTimed
from noyau.workers.resources import peak_bytes
from noyau.workers.tamper_detection import seconds
from noyau.workers.worker import Worker


class WorkerState(SelfTimed, Protocol):
    """The state of a worker that is timed."""

    def tell(self) -> Mapping[str, Any]:
        """Facts about it; NoyauError where a run that was timed was wrong."""
        ...


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
