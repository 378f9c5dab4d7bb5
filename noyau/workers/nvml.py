"""The conditions of a GPU while it is timed: its clocks, its temperature and its throttle reasons, as the driver's own
library (NVML) reports them, if nvidia-ml-py is installed; nothing is ever changed."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_DRIVER = Path("/proc/driver/nvidia/version")
_SM, _MEMORY, _TEMPERATURE = 1, 2, 0  # constants of nvmlClockType_t and nvmlTemperatureSensors_t
_STEADY = 0.10
# nvmlClocksEventReasons: why the clocks are below their maximum, besides idleness (1) and settings (2).
_REASONS = {
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "thermal limit",
    0x40: "thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class GpuConditions:
    """The conditions at one moment. `spin_mhz`: the clock of the processors, from the time of a fixed number of cycles;
    the rest as the driver reports it, None if it does not. `held_back`: the throttle reasons as text, or empty."""

    spin_mhz: float | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    held_back: str = ""


def gpu_conditions(uuid: str, spin_mhz: float | None, library: Any = None) -> GpuConditions:
    """The current conditions of the GPU of this UUID; takes less than a millisecond once the library is loaded."""
    nvml = library or _nvml()
    handle = None if nvml is None else _value(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid.encode("ascii", "replace"))
    if handle is None:
        return GpuConditions(spin_mhz)
    sm_mhz, memory_mhz = (_value(nvml, nvml.nvmlDeviceGetClockInfo, handle, kind) for kind in (_SM, _MEMORY))
    temperature_c = _value(nvml, nvml.nvmlDeviceGetTemperature, handle, _TEMPERATURE)
    milliwatts = _value(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    power_w = None if milliwatts is None else milliwatts / 1e3
    held_back = in_words(_value(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0)
    return GpuConditions(spin_mhz, sm_mhz, memory_mhz, temperature_c, power_w, held_back)


def in_words(reasons: int) -> str:
    """The bits of NVML's reasons as text, without idleness and settings."""
    return ", ".join(word for bit, word in _REASONS.items() if reasons & bit)


def unsteady_gpu(before: GpuConditions, after: GpuConditions) -> str:
    """The changes between two moments that make times doubtful, or an empty text."""
    doubts = []
    change = after.spin_mhz / before.spin_mhz if before.spin_mhz and after.spin_mhz else 1.0
    if not 1 / (1 + _STEADY) <= change <= 1 + _STEADY:
        doubts.append(f"the GPU's clock went from {before.spin_mhz:.0f} to {after.spin_mhz:.0f} MHz meanwhile")
    if after.held_back:
        doubts.append(f"the GPU's clocks are held back by its {after.held_back}")
    return "; ".join(doubts)


def driver_version(path: Path = _DRIVER) -> str:
    """The version of NVIDIA's loaded driver, or an empty text."""
    try:
        words = path.read_text("ascii", "replace").split()
    except OSError:
        return ""
    return next((word for word in words if re.fullmatch(r"\d+(\.\d+)+", word)), "")


def has_driver() -> bool:
    """Whether NVIDIA's driver is present and shows a device, so that importing torch for a device can pay."""
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip().split(",")[0] in ("", "-1")
    return not is_hidden and (bool(driver_version()) or Path("/dev/nvidiactl").exists())


@cache
def _nvml() -> Any:
    """NVML's module, or None if it or the driver's library is missing."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _value(nvml: Any, read: Callable[..., Any], *arguments: object) -> Any:
    """The value that a function of NVML reads, or None if this GPU or driver has none."""
    try:
        return read(*arguments)
    except nvml.NVMLError:
        return None
