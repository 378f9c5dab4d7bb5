"""When garbage is collected, while something is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class _Held:
    """The switch of the whole process: the first who holds it disables, the last one restores."""

    def __init__(self) -> None:
        self.lock, self.count, self.collects = Lock(), 0, False

    def __enter__(self) -> None:
        with self.lock:
            if not self.count:
                self.collects = gc.isenabled()
                gc.disable()
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.collects:
                gc.enable()


_HELD = _Held()


@contextmanager
def without_collections() -> Iterator[None]:
    """Where no garbage is collected: each time would go through all that torch, its dynamo or Numba have left, millions
    of objects of which none goes away. Threads that hold that at once let go of it together."""
    with _HELD:
        yield
