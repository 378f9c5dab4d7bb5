"""The share of the machine that this process may use: processors by affinity and control groups, memory by these.

Control groups of both versions (docs.kernel.org, admin-guide/cgroup-v2 and cgroup-v1) are followed from the process's
own up to the root, for a limit of any of them holds. And the memory of a process: current, peak, and freed."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_GROUPS = "sys/fs/cgroup"
_UNKNOWN_BYTES = 1 << 30  # of memory, if the system does not report it


def processors(root: Path = _ROOT) -> int:
    """The number of threads that can run in parallel."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, round(min([count, *_quotas(root)])))


_processors = cache(processors)  # it reads a dozen files: a run of a kernel may be shorter


def wait_factor() -> float:
    """The ratio of clock time to processor time of long work beside other load, by the last minute."""
    return max(1.0, os.getloadavg()[0] / _processors()) if hasattr(os, "getloadavg") else 1.0


def memory_bytes(root: Path = _ROOT) -> int:
    """The bytes of memory that this process may use."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        whole = _UNKNOWN_BYTES
    limits = [*_numbers(root, "", "memory.max"), *_numbers(root, "memory", "memory.limit_in_bytes")]
    return min(whole, *(numbers[0] for numbers in limits if numbers[0] > 0), whole)


def _quotas(root: Path) -> Iterator[float]:
    """Processor time per elapsed time, by each limit."""
    for quota, period in (numbers for numbers in _numbers(root, "", "cpu.max") if len(numbers) == 2):
        yield quota / max(period, 1)
    old = zip(_numbers(root, "cpu", "cpu.cfs_quota_us"), _numbers(root, "cpu", "cpu.cfs_period_us"), strict=False)
    for (quota, *_), (period, *_) in old:
        if quota > 0:
            yield quota / max(period, 1)


def _numbers(root: Path, controller: str, file: str) -> Iterator[list[int]]:
    """The numbers in a file of this name, for each group that has it; the text "max" is no limit."""
    for folder in _folders(root, controller):
        with contextlib.suppress(OSError, ValueError):
            if numbers := [int(word) for word in (folder / file).read_text(encoding="ascii").split()]:
                yield numbers


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the process's group and of all above it. `controller`: of the first version, or empty."""
    top = root / _GROUPS / controller
    for line in _lines(root / "proc/self/cgroup"):
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if controller in names.split(",") and (path.startswith("/") and ".." not in PurePosixPath(path).parts):
            own = top / path.strip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top))
            return
    yield top  # a container may show its own group there, under any name


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes(path: Path = _STATUS) -> int | None:
    """The current memory of this process, if Linux reports it."""
    return _status(path, "VmRSS:")


def peak_bytes(path: Path = _STATUS) -> int | None:
    """The peak memory of this process, if the system reports it; on Linux since `forget_peak`.

    `getrusage` would not do there: the peak includes the parent's memory when it started this process."""
    high_water = _status(path, "VmHWM:")
    if high_water is not None or sys.platform == "win32":
        return high_water
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1 << 10)


def forget_peak(path: Path = _FORGET) -> None:
    """Reset the peak, if the system permits that."""
    with contextlib.suppress(OSError):
        path.write_text("5", "ascii")


def give_back() -> None:
    """Return freed memory of malloc to the system, if the C library can: glibc can."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def pin(cores: Sequence[int]) -> None:
    """Run on these cores only, if the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def _status(path: Path, field: str) -> int | None:
    return next((int(line.split()[1]) << 10 for line in _lines(path) if line.startswith(field)), None)
