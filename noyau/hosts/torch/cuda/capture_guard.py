"""CUDA graphs that other threads capture, and what is compiled, recorded or dropped here beside them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


@contextmanager
def beside_captures() -> Iterator[None]:
    """Hold this thread to captures of its own alone, in a `with`. Nothing where there is no CUDA yet."""
    exchange = _exchange() if torch.cuda.is_initialized() else None
    mode = ctypes.c_int(_OWN_ALONE)
    changed = exchange is not None and not exchange(ctypes.byref(mode))  # which has the mode of before then
    try:
        yield
    finally:
        if changed and exchange is not None:
            exchange(ctypes.byref(mode))


_OWN_ALONE = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


@cache
def _exchange() -> Callable[[Any], int] | None:
    """The driver's function that gives a thread another mode, and its old one; None where there is none."""
    try:
        result: Callable[[Any], int] = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None
    return result
