"""Named ranges of a program's time, `with noyau.range("load"):`, for whoever records a timeline, and for NVTX."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Event = dict[str, Any]
_RECORDING: list[list[Event]] = []  # of the whole process: what events are added to


class range:  # noqa: A001  as users call it
    """A range of time under a name, as a context or a decorator. It is an event of the timelines that are recorded
    meanwhile (`noyau profile --trace`, torch's profiler), and a range of NVTX where torch has a GPU; else it costs less
    than 1 us."""

    __slots__ = ("mark", "name", "nvtx", "start_s")

    def __init__(self, name: str) -> None:
        self.name = name
        self.mark: Any = None

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        self.nvtx: Any = cuda.nvtx if cuda is not None and cuda.is_initialized() else None
        if self.nvtx is not None:
            self.nvtx.range_push(self.name)
        if torch is not None and torch.autograd._profiler_enabled():
            self.mark = torch.profiler.record_function(self.name)
            self.mark.__enter__()
        self.start_s = time.perf_counter() if _RECORDING else 0.0

    def __exit__(self, *_: object) -> None:
        for events in _RECORDING if self.start_s else ():
            events.append(event(self.name, self.start_s, time.perf_counter()))
        if self.mark is not None:
            self.mark.__exit__(None, None, None)
            self.mark = None
        if self.nvtx is not None:
            self.nvtx.range_pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def within(*arguments: P.args, **keywords: P.kwargs) -> R:
            with range(self.name):
                return function(*arguments, **keywords)

        return within


def event(name: str, start_s: float, end_s: float) -> Event:
    """A complete event of this thread in Chrome's trace format, in microseconds."""
    where = {"pid": os.getpid(), "tid": threading.get_native_id()}
    return {"name": name, "ph": "X", "cat": "range", "ts": 1e6 * start_s, "dur": 1e6 * (end_s - start_s), **where}


@contextmanager
def recorded() -> Iterator[list[Event]]:
    """Yield the list of the events of all threads until the end."""
    events: list[Event] = []
    _RECORDING.append(events)
    try:
        yield events
    finally:
        _RECORDING[:] = [each for each in _RECORDING if each is not events]
