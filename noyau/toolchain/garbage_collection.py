"""When garbage is collected, while something is compiled or timed."""

from __future__ import annotations

import gc
import os
from contextlib import AbstractContextManager
from threading import Lock, get_ident


class _CollectionSwitch:
    """The switch of the whole process: the first who holds it disables, the last one restores. `holders`: threads."""

    def __init__(self) -> None:
        self.lock, self.holders, self.collects = Lock(), list[int](), False

    def __enter__(self) -> None:
        with self.lock:
            if not self.holders:
                self.collects = gc.isenabled()
                gc.disable()
            self.holders.append(get_ident())

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.holders.remove(get_ident())
            if not self.holders and self.collects:
                gc.enable()

    def forget_threads(self) -> None:
        """In a forked child, where no thread but this one is there to let go of it."""
        held, me = self.holders, get_ident()
        self.lock, self.holders = Lock(), [each for each in held if each == me]
        if held and not self.holders and self.collects:
            gc.enable()


_HELD = _CollectionSwitch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HELD.forget_threads)


def without_collections() -> AbstractContextManager[None]:
    """Collect no garbage within the block: each time would go through all that torch, its dynamo or Numba have left,
    millions of objects of which none goes away. Threads that hold that at once let go of it together."""
    return _HELD
