"""Suspension of garbage collection while something is compiled or timed."""

import gc
import os
from contextlib import AbstractContextManager
from threading import Lock, get_ident


class _CollectionSwitch:
    """The switch of the whole process: the first holder disables, the last one restores. `holders`: threads."""

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
        """Release the holds of other threads in a forked child, which does not have these threads."""
        held, me = self.holders, get_ident()
        self.lock, self.holders = Lock(), [each for each in held if each == me]
        if held and not self.holders and self.collects:
            gc.enable()


_HELD = _CollectionSwitch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HELD.forget_threads)


def without_collections() -> AbstractContextManager[None]:
    """Suspend garbage collection within the block: each collection would traverse all objects of torch, its dynamo or
    Numba, millions of which none is garbage. When several threads hold this, the last one to leave ends it."""
    return _HELD
