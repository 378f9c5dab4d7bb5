"""The rates and the clocks of a GPU as tables and words for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from noyau.jobs.machine.render import facts_text, number_table
from noyau.timing.gpu_rate_cache import COLD, HOT, Curve, GpuRates
from noyau.timing.verdict import spell_s
from noyau.workers.nvml import GpuConditions


def gpu_tables(rates: GpuRates) -> Iterator[RenderableType]:
    """The record of a GPU for a terminal."""
    gpu = rates.gpu
    versions = ", ".join(f"{name} {version}" for name, version in sorted(gpu.versions.items()))
    facts = {
        "GPU": f"{gpu.name}, {gpu.sm_count} SMs, compute capability {gpu.capability}",
        "memory": f"{_gpu_bytes(gpu.memory_bytes)}, L2 {_gpu_bytes(gpu.l2_bytes)}",
        "driver": gpu.driver or "unknown",
        "versions": versions,
        "clocks": " -> ".join(map(clocks, rates.conditions)),
        "measured": rates.date,
    }
    yield from facts_text(facts)
    yield Text()
    yield _gpu_curves(rates)
    yield Text()
    for name, rate in rates.matmul.items():
        yield Text(f"product of random {name:<9} {rate / 1e12:8.1f} TFLOP/s")
    yield Text()
    for name, time_s in rates.launch_s.items():
        yield Text(f"launch: {name:<24} {spell_s(time_s)}")
    flushed = rates.flush_s
    flush = f"{spell_s(flushed[HOT])} hot, {spell_s(flushed[COLD])} after the L2 was overwritten"
    yield Text(f"a copy that fits in the L2: {flush}")
    yield Text()
    yield _by_size("GB/s between the host and it", rates.transfer, next(iter(rates.transfer.values()), ()))


def clocks(moment: GpuConditions) -> str:
    """The clocks of a moment in words."""
    parts = [
        f"{moment.spin_mhz:.0f} MHz" if moment.spin_mhz else "",
        f"memory {moment.memory_mhz} MHz" if moment.memory_mhz else "",
        f"{moment.temperature_c} C" if moment.temperature_c else "",
        f"{moment.power_w:.0f} W" if moment.power_w else "",
        moment.held_back,
    ]
    return ", ".join(filter(None, parts)) or "unknown"


def _gpu_curves(rates: GpuRates) -> Table:
    curves = {"copy": rates.copy, "read": rates.read, "fill": rates.fill}
    columns = {f"{name}, {how}": curve[how] for name, curve in curves.items() for how in (COLD, HOT) if how in curve}
    return _by_size("GB/s by the bytes that move; hot: in the L2 where they fit", columns, rates.copy[COLD])


def _by_size(title: str, columns: Mapping[str, Curve], sizes: Iterable[int]) -> Table:
    rows = [
        (_gpu_bytes(size), *(f"{curve[size] / 1e9:.4g}" if size in curve else "" for curve in columns.values()))
        for size in sizes
    ]
    return number_table(title, ["bytes", *columns], rows)


def _gpu_bytes(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size >> 10} KiB"
