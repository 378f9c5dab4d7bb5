"""CUDA graphs that other threads capture, and what is compiled, recorded or dropped here beside them.

While a thread captures as torch does by default, CUDA fails what allocates, frees or waits in any other thread, and
that capture with it, but for threads that have asked to be held to captures of their own alone. What torch itself runs
for the first time beside a capture may still end it: the driver loads it then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

_OWN_ALONE = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


@contextmanager
def beside_captures() -> Iterator[None]:
    """Where this thread is held to captures of its own alone. Nothing where there is no CUDA yet."""
    exchange = _exchange() if torch.cuda.is_initialized() else None
    mode = ctypes.c_int(_OWN_ALONE)
    changed = exchange is not None and not exchange(ctypes.byref(mode))  # which has the mode of before then
    try:
        yield
    finally:
        if changed and exchange is not None:
            exchange(ctypes.byref(mode))


@cache
def _exchange() -> Callable[[Any], int] | None:
    """The driver's function that gives a thread another mode, and its old one; None where there is none."""
    try:
        made: Callable[[Any], int] = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None
    return made
