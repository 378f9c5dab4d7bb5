"""Named ranges of a program's time, `with noyau.range("load"):`, for recorded timelines and for NVTX."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Event = dict[str, Any]
_RECORDING: list[list[Event]] = []  # the lists, of the whole process, that events are added to


class range:  # noqa: A001  as users call it
    """A named range of time, as a context manager or a decorator: an event of the timelines recorded meanwhile (`noyau
    profile --trace`, torch's profiler), and a range of NVTX if torch has a GPU; else it costs less than 1 us."""

    __slots__ = ("name", "seen")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        module = sys.modules.get("torch")
        torch = module if hasattr(module, "profiler") else None  # else it is being imported
        watches = _RECORDING or (torch and (torch.cuda.is_initialized() or torch.autograd._profiler_enabled()))
        self.seen = _watched_range(self.name, torch) if watches else None
        if self.seen is not None:
            self.seen.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.seen is not None:
            self.seen.__exit__(None, None, None)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def within(*arguments: P.args, **keywords: P.kwargs) -> R:
            with range(self.name):
                return function(*arguments, **keywords)

        return within


@contextmanager
def _watched_range(name: str, torch: Any) -> Iterator[None]:
    """A range for all active recorders: NVTX, torch's profiler, timelines."""
    with ExitStack() as others:
        if torch and torch.cuda.is_initialized():
            torch.cuda.nvtx.range_push(name)
            others.callback(torch.cuda.nvtx.range_pop)
        if torch and torch.autograd._profiler_enabled():
            others.enter_context(torch.profiler.record_function(name))
        start_s = time.perf_counter()
        yield
        for events in _RECORDING:
            events.append(event(name, start_s, time.perf_counter()))


def event(name: str, start_s: float, end_s: float) -> Event:
    """A complete event of this thread in Chrome's trace format, in microseconds."""
    where = {"pid": os.getpid(), "tid": threading.get_native_id()}
    return {"name": name, "ph": "X", "cat": "range", "ts": 1e6 * start_s, "dur": 1e6 * (end_s - start_s), **where}


@contextmanager
def record_events() -> Iterator[list[Event]]:
    """Yield a list that collects the events of all threads within the block."""
    events: list[Event] = []
    _RECORDING.append(events)
    try:
        yield events
    finally:
        _RECORDING[:] = [each for each in _RECORDING if each is not events]
