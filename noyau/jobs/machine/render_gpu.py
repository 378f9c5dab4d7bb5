"""The rates of a GPU as tables: the part of `noyau machine` that is about CUDA. Nothing here needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from noyau.text import printable
from noyau.timing.comparison import spell_s
from noyau.timing.gpu_rate_cache import COLD, HOT, Curve, GpuRates
from noyau.workers.nvml import GpuConditions


def gpu_tables(rates: GpuRates) -> Iterator[RenderableType]:
    """The record of a GPU for a terminal."""
    gpu = rates.gpu
    versions = ", ".join(f"{name} {version}" for name, version in sorted(gpu.versions.items()))
    facts = {
        "GPU": f"{gpu.name}, {gpu.sm_count} SMs, compute capability {gpu.capability}",
        "memory": f"{_bytes(gpu.memory_bytes)}, L2 {_bytes(gpu.l2_bytes)}",
        "driver": gpu.driver or "unknown",
        "versions": versions,
        "clocks": " -> ".join(map(clocks, rates.conditions)),
        "measured": rates.date,
    }
    for name, fact in facts.items():
        yield Text(f"{name:<10} {printable(fact)}")
    yield Text()
    yield _curves(rates)
    yield Text()
    yield from _matmul(rates.matmul)
    yield Text()
    for name, time_s in rates.launch_s.items():
        yield Text(f"launch: {name:<24} {spell_s(time_s)}")
    flushed = rates.flush_s
    flush = f"{spell_s(flushed[HOT])} hot, {spell_s(flushed[COLD])} after the L2 was overwritten"
    yield Text(f"a copy that fits in the L2: {flush}")
    yield Text()
    yield _transfers(rates.transfer)


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


def _curves(rates: GpuRates) -> Table:
    table = Table(box=None, title="GB/s by the bytes that move; hot: in the L2 where they fit", title_justify="left")
    named = {"copy": rates.copy, "read": rates.read, "fill": rates.fill}
    columns = [(f"{name}, {how}", curve[how]) for name, curve in named.items() for how in (COLD, HOT) if how in curve]
    for name in ("bytes", *(name for name, _ in columns)):
        table.add_column(name, justify="right")
    for size in rates.copy[COLD]:
        table.add_row(_bytes(size), *(_rate(curve, size) for _, curve in columns))
    return table


def _matmul(rates: Mapping[str, float]) -> Iterator[Text]:
    for name, rate in rates.items():
        yield Text(f"product of random {name:<9} {rate / 1e12:8.1f} TFLOP/s")


def _transfers(curves: Mapping[str, Curve]) -> Table:
    table = Table(box=None, title="GB/s between the host and it", title_justify="left")
    for name in ("bytes", *curves):
        table.add_column(name, justify="right")
    for size in next(iter(curves.values()), {}):
        table.add_row(_bytes(size), *(_rate(curve, size) for curve in curves.values()))
    return table


def _rate(curve: Curve, size: int) -> str:
    return f"{curve[size] / 1e9:.4g}" if size in curve else ""


def _bytes(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size >> 10} KiB"
