"""What a process holds in memory: now, and at the most; and what it need not hold."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path

_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes(path: Path = _STATUS) -> int | None:
    """The memory that this process has now, where Linux says so."""
    return _status(path, "VmRSS:")


def peak_bytes(path: Path = _STATUS) -> int | None:
    """The most memory that this process has had at a time, where the system says so; on Linux since `forget_peak`.

    There `getrusage` would not do: what the parent had when it started this process is in its peak."""
    found = _status(path, "VmHWM:")
    if found is not None or sys.platform == "win32":
        return found
    import resource

    unit = 1 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak(path: Path = _FORGET) -> None:
    """Let the peak begin anew; where the system does not allow that, it goes on."""
    with contextlib.suppress(OSError):
        path.write_text("5", "ascii")


def give_back() -> None:
    """Give the system what malloc holds of memory that is free, where the C library has a word for that: glibc does."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _status(path: Path, field: str) -> int | None:
    try:
        lines = path.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field)), None)
