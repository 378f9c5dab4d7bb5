"""Idle threads of this process, for which a clock waits before a sample.

Threads may work while nobody called them: OpenMP's spin for 5 to 10 ms after each parallel loop, and whoever is timed
meanwhile has a core less. The clock waits at work itself: a core that sleeps is slow to come back. Linux says what each
thread does (its clocks of other threads tick too seldom to).
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

LONGEST_S = 20e-3
_THREADS = Path("/proc/self/task")


def others_rest(longest_s: float = LONGEST_S) -> bool:
    """Wait until no other thread of this process runs; whether that is so, or one still does after `longest_s`. Where
    the system does not say, they are taken to rest."""
    end_s = time.perf_counter() + longest_s
    while _others_run():
        if time.perf_counter() >= end_s:
            return False
    return True


def _others_run() -> bool:
    own = str(threading.get_native_id())
    try:
        return any(_state(each) == b"R" for each in _THREADS.iterdir() if each.name != own)
    except FileNotFoundError:
        return False


def _state(thread: Path) -> bytes:
    """The state of a thread, by its letter of proc(5): it stands behind its name, which is in brackets; none of one
    that has ended."""
    try:
        return (thread / "stat").read_bytes().rpartition(b") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return b""
