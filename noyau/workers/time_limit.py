"""A limit of time for what runs in this thread as Python code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf


class TimeIsUp(BaseException):
    """A limit of time has passed. No Exception, so that a kernel that catches everything does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp within, after so many seconds on the clock, never for inf; a call of C code ends first."""
    if seconds == inf:
        yield
        return
    thread = ctypes.c_ulong(threading.get_ident())
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    timer = threading.Timer(seconds, raise_in, (thread, ctypes.py_object(TimeIsUp)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        # What the timer asked for a moment ago is raised while it is joined. It cannot be taken back: after
        # PyThreadState_SetAsyncExc(thread, NULL) CPython 3.11 looks for an exception for ever.
        with suppress(TimeIsUp):
            timer.cancel()
            timer.join()
