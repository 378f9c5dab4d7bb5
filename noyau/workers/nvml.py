"""How a GPU is while something is timed on it: its clocks, its temperature and what holds it back, as the driver's own
library tells; nothing of torch, and nothing is ever changed."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_DRIVER = Path("/proc/driver/nvidia/version")
_SM, _MEMORY, _TEMPERATURE = 1, 2, 0  # of nvmlClockType_t and nvmlTemperatureSensors_t
_STEADY = 0.10
# nvmlClocksEventReasons: what holds the clocks below what they could be, besides idleness (1) and settings (2).
_REASONS = {
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "thermal limit",
    0x40: "thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class GpuConditions:
    """A moment. `spin_mhz`: the clock of the processors, from how long a fixed number of cycles took; the rest as the
    driver tells it, None where it does not. `held_back`: by what, in words, or nothing."""

    spin_mhz: float | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    held_back: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def gpu_conditions(uuid: str, spin_mhz: float | None = None, library: Any = None) -> GpuConditions:
    """How the GPU of this UUID is now; takes less than a millisecond once the library is loaded."""
    found = library or _library()
    handle = None if found is None else _handle(found, uuid)
    if found is None or handle is None:
        return GpuConditions(spin_mhz)
    milliwatts = _asked(found.nvmlDeviceGetPowerUsage, handle, (), ctypes.c_uint)
    return GpuConditions(
        spin_mhz,
        _asked(found.nvmlDeviceGetClockInfo, handle, (_SM,), ctypes.c_uint),
        _asked(found.nvmlDeviceGetClockInfo, handle, (_MEMORY,), ctypes.c_uint),
        _asked(found.nvmlDeviceGetTemperature, handle, (_TEMPERATURE,), ctypes.c_uint),
        None if milliwatts is None else milliwatts / 1e3,
        in_words(_asked(found.nvmlDeviceGetCurrentClocksThrottleReasons, handle, (), ctypes.c_ulonglong) or 0),
    )


def in_words(reasons: int) -> str:
    """What the bits of NVML's reasons say, besides idleness and settings."""
    return ", ".join(word for bit, word in _REASONS.items() if reasons & bit)


def unsteady_gpu(before: GpuConditions, after: GpuConditions) -> str:
    """What happened between two moments that makes times doubtful, or nothing."""
    told = []
    if before.spin_mhz and after.spin_mhz:
        change = after.spin_mhz / before.spin_mhz
        if not 1 / (1 + _STEADY) <= change <= 1 + _STEADY:
            told.append(f"the GPU's clock went from {before.spin_mhz:.0f} to {after.spin_mhz:.0f} MHz meanwhile")
    if after.held_back:
        told.append(f"the GPU's clocks are held back by its {after.held_back}")
    return "; ".join(told)


def driver_version(path: Path = _DRIVER) -> str:
    """The version of NVIDIA's driver that is loaded, or nothing."""
    try:
        words = path.read_text("ascii", "replace").split()
    except OSError:
        return ""
    return next((word for word in words if re.fullmatch(r"\d+(\.\d+)+", word)), "")


def has_driver() -> bool:
    """Whether NVIDIA's driver is there, so that it is worth to ask torch for a device."""
    return bool(driver_version()) or Path("/dev/nvidiactl").exists()


@cache
def _library() -> Any:
    """NVML, or None where there is none."""
    try:
        found = ctypes.CDLL(_LIBRARY)
        return found if found.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def _handle(library: Any, uuid: str) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    failed = library.nvmlDeviceGetHandleByUUID(uuid.encode("ascii", "replace"), ctypes.byref(handle))
    return None if failed else handle


def _asked(
    function: Callable[..., int], handle: ctypes.c_void_p, which: tuple[int, ...], kind: type[Any]
) -> int | None:
    """What a function of NVML gives, or None where it fails."""
    made = kind()
    try:
        failed = function(handle, *which, ctypes.byref(made))
    except (AttributeError, OSError):
        return None
    return None if failed else int(made.value)
