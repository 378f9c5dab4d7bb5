"""The conditions of the machine while something is timed: its clocks before and after, its other load, its caches."""

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Clock = Callable[[], float]

_CPU_INFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_TICKS = Path("/proc/stat")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_USUAL_CACHE_BYTES = 32 << 20
_WORK = bytes(64 << 10)
_TRIES = 24
_STEADY = 0.10


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions at one moment. `mhz`: the fastest core, if Linux reports it; `pulse_s`: the best time of a fixed
    piece of work on one core, which follows the true clock, also in a virtual machine; `load`: runnable processes, over
    the last minute; `stolen_s`: seconds of all cores that went to other virtual machines, since boot."""

    mhz: float | None
    pulse_s: float
    load: float | None
    stolen_s: float | None


def conditions(clock: Clock = time.perf_counter) -> Conditions:
    """Measure the conditions of the machine now; takes a millisecond or two."""
    return Conditions(mhz(), pulse_s(clock), os.getloadavg()[0] if hasattr(os, "getloadavg") else None, stolen_s())


def unsteady(before: Conditions, after: Conditions, cores: int) -> str:
    """The changes between two moments that make times doubtful, or an empty text."""
    doubts = []
    change = after.pulse_s / before.pulse_s if before.pulse_s > 0 and after.pulse_s > 0 else 1.0
    if not 1 / (1 + _STEADY) <= change <= 1 + _STEADY:
        way = "slower" if change > 1 else "faster"
        doubts.append(f"the processor became {max(change, 1 / change):.2f}x {way} meanwhile")
    if after.load is not None and after.load > cores + 0.5:
        doubts.append(f"other work ran, {after.load:.1f} processes on {cores} cores")
    if before.stolen_s is not None and after.stolen_s is not None and after.stolen_s - before.stolen_s > 0.1:
        doubts.append(f"other virtual machines of this host ran for {after.stolen_s - before.stolen_s:.1f} s instead")
    return "; ".join(doubts)


def pulse_s(clock: Clock = time.perf_counter) -> float:
    """Seconds of a fixed piece of work in registers and cache, the best of some tries."""
    best = float("inf")
    for _ in range(_TRIES):
        start_s = clock()
        hashlib.sha256(_WORK).digest()
        best = min(best, clock() - start_s)
    return best


def mhz(path: Path = _CPU_INFO) -> float | None:
    """The current clock of the fastest core, in MHz, or None if Linux does not report it."""
    with suppress(OSError, ValueError):
        clocks = re.findall(r"^cpu MHz\s*:\s*([0-9.]+)$", path.read_text("ascii", "replace"), re.MULTILINE)
        return max(map(float, clocks), default=None)
    return None


def stolen_s(path: Path = _TICKS) -> float | None:
    """Seconds that the host gave to others while this machine was ready to run, over all cores."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        fields = path.read_text("ascii", "replace").partition("\n")[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    return None


def cache_ladder(folder: Path = _CACHES) -> dict[str, int]:
    """The bytes of each level of data cache of a core, as Linux reports them: {"L1": 32768, ...}; empty elsewhere."""
    sizes = {}
    for path in sorted(folder.glob("index*")):
        with suppress(OSError):
            level, kind = ((path / name).read_text("ascii").strip() for name in ("level", "type"))
            match = re.fullmatch(r"(\d+)([KMG]?)", (path / "size").read_text("ascii").strip())
            if match and kind in ("Data", "Unified"):
                sizes[f"L{level}"] = int(match[1]) * _UNITS[match[2]]
    return dict(sorted(sizes.items()))


def last_level_bytes(folder: Path = _CACHES) -> int:
    """The bytes of the largest cache; 32 MiB if unknown."""
    return max(cache_ladder(folder).values(), default=_USUAL_CACHE_BYTES)


LONGEST_S = 20e-3
_THREADS = "/proc/self/task"


def others_rest(longest_s: float = LONGEST_S) -> bool:
    """Wait until no other thread of this process runs, for `longest_s` at most; return whether none does, if known.

    Threads may work although no call is active: OpenMP's spin for 5 to 10 ms after each parallel loop, and take a core
    from the code that is timed meanwhile. The wait is a busy one: a core that sleeps is slow to resume. Linux reports
    the state of each thread (its per-thread clocks tick too seldom for this)."""
    end_s = time.perf_counter() + longest_s
    while _others_run():
        if time.perf_counter() >= end_s:
            return False
    return True


def _others_run() -> bool:
    own = str(threading.get_native_id())
    try:
        return any(_state(f"{_THREADS}/{name}/stat") == b"R" for name in os.listdir(_THREADS) if name != own)
    except FileNotFoundError:
        return False


def _state(path: str) -> bytes:
    """The state of a thread, a letter in proc(5) after its name in brackets; empty if the thread has ended."""
    try:
        with open(path, "rb", 0) as file:  # a Path for each of dozens of threads takes twice as long
            return file.read(256).rpartition(b") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return b""
