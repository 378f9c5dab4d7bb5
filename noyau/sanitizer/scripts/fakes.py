"""Stand-ins while a script runs: how one is put into its place, and events of CUDA where there is no GPU."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any


class FakeEvent:
    """A mark in a stream, which is passed at once. Times are those of the watched run on the CPU."""

    def __init__(self, *wishes: Any, **named: Any) -> None:
        self.at_s = 0.0

    def record(self, stream: Any = None) -> None:
        self.at_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: FakeEvent) -> float:
        """Milliseconds."""
        return 1e3 * (later.at_s - self.at_s)


_MISSING = object()


def patch(undone: ExitStack, holder: Any, name: str, value: Any) -> None:
    """`holder.name` is `value`, until `undone` ends."""
    before = vars(holder).get(name, _MISSING)
    if before is _MISSING:
        undone.callback(delattr, holder, name)
    else:
        undone.callback(setattr, holder, name, before)
    setattr(holder, name, value)
