"""The measured rates of a GPU, cached on disk until the GPU, its driver, torch or noyau change; and the floors of times
on it. Nothing here needs a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from noyau.text import fields_json, from_json, plain_names
from noyau.timing.rates import MISTAKE_BELOW, too_short
from noyau.toolchain import cache as toolchain_cache
from noyau.version import __version__
from noyau.workers.nvml import GpuConditions, unsteady_gpu

FORMAT = 1
SIZES = tuple(1 << power for power in range(16, 31))
HOT, COLD = "hot", "cold"

Curve = Mapping[int, float]  # bytes that move -> bytes per second
Curves = Mapping[str, Curve]  # by temperature, hot and cold


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """A GPU, and the versions of its driver and compilers."""

    name: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    capability: str
    driver: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GpuRates:
    """A GPU and its rates. `copy`, `read`, `fill`: bytes per second by temperature, then by the bytes moved, reads and
    writes both counted; `read` is empty without triton. `matmul`: flops per second of products of random numbers by
    dtype; `launch_s`: seconds of an empty pair of events, of a kernel that does nothing, of the host for a launch, and
    from a launch until the host sees its end; `transfer`: bytes per second by way ("to device, pinned"), then by bytes;
    `flush_s`: a read that fits in the L2, hot and cold, which shows whether the flush works."""

    PLAIN: ClassVar[str] = """gpu copy_bytes_per_s=copy read_bytes_per_s=read fill_bytes_per_s=fill
        matmul_flops_per_s=matmul launch_s transfer_bytes_per_s=transfer flush_s conditions date"""
    gpu: GpuIdentity
    copy: Curves
    read: Curves
    fill: Curves
    matmul: Mapping[str, float]
    launch_s: Mapping[str, float]
    transfer: Mapping[str, Curve]
    flush_s: Mapping[str, float]
    conditions: tuple[GpuConditions, GpuConditions]
    date: str

    @property
    def note(self) -> str:
        """The reason why the numbers are doubtful, or an empty text."""
        doubt = unsteady_gpu(*self.conditions)
        if self.flush_s.get(COLD, 0.0) <= self.flush_s.get(HOT, 0.0):
            doubt = "; ".join(filter(None, [doubt, "what overwrites the L2 made no call slower"]))
        return doubt

    def to_json(self) -> Any:
        return {"format": FORMAT, **fields_json(self)}

    def floor_s(self, read_bytes: int, written_bytes: int, temperature: str = COLD) -> float:
        """The least seconds in which this GPU moves so many bytes: equal amounts of reads and writes at the rate of
        copies, the excess at the rate of reads or of fills; each at the rate for all the bytes together."""
        moved, alone = read_bytes + written_bytes, abs(read_bytes - written_bytes)
        other = self.read if read_bytes > written_bytes else self.fill
        copies = rate_at(self.copy[temperature], moved)
        others = max(rate_at(other[temperature], moved), copies) if other.get(temperature) else copies
        return (moved - alone) / copies + alone / others

    def mistake(self, time_s: float, read_bytes: int, written_bytes: int, temperature: str = COLD) -> str:
        """The reason why a time is impossible, or an empty text: it is less than 0.9 of the floor, and still is at the
        best rates of neighbouring sizes, for a curve has steps where a cache ends."""
        moved = read_bytes + written_bytes
        if not moved or time_s >= MISTAKE_BELOW * self.floor_s(read_bytes, written_bytes, temperature):
            return ""
        curves = [each[temperature] for each in (self.copy, self.read, self.fill) if each.get(temperature)]
        least_s = moved / max(rate_at(curve, near) for curve in curves for near in (moved // 2, moved, 2 * moved))
        return "" if time_s >= MISTAKE_BELOW * least_s else too_short(time_s, least_s, "GPU")


def rate_at(curve: Curve, moved_bytes: int) -> float:
    """The rate of a curve at a size: between two of its sizes interpolated by time, which grows linearly with the bytes
    above the time of a launch; beyond its ends that of the end."""
    larger = min((size for size in curve if size >= moved_bytes), default=max(curve))
    smaller = max((size for size in curve if size <= moved_bytes), default=larger)
    if larger <= smaller:
        return curve[larger]
    first_s, last_s = smaller / curve[smaller], larger / curve[larger]
    return moved_bytes / (first_s + (last_s - first_s) * (moved_bytes - smaller) / (larger - smaller))


def recall_gpu(device: str) -> GpuRates | None:
    """The recorded rates of a device, by its text, or None."""
    return toolchain_cache.recall_as(_key(device), read_back)


def keep(device: str, rates: GpuRates) -> None:
    """Store the rates of a device. OutputError where the cache cannot be written."""
    toolchain_cache.keep(_key(device), rates.to_json())


def read_back(record: Mapping[str, Any]) -> GpuRates:
    """Rebuild a record that `to_json` wrote; KeyError, TypeError or ValueError for any other."""
    rates: GpuRates = from_json(GpuRates, {name: record[name] for name in plain_names(GpuRates)})
    if record["format"] != FORMAT or set(rates.copy) != {HOT, COLD} or not all(rates.copy.values()):
        raise ValueError("another format")
    return rates


def _key(device: str) -> str:
    return toolchain_cache.digest("gpu", str(FORMAT), device, __version__)
