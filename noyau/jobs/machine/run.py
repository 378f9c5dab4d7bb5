"""`noyau machine`: what this machine can do, its processor and its GPU, as tables or as JSON."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from noyau.errors import BuildError, InputError, MissingExtraError
from noyau.jobs.command_line import progress
from noyau.text import printable, several
from noyau.workers.nvml import has_driver

if TYPE_CHECKING:
    from noyau.timing.gpu_rate_cache import GpuRates
    from noyau.timing.rates import MachineRates


from noyau.timing.comparison import spell_s
from noyau.timing.gpu_rate_cache import COLD, HOT, Curve, GpuRates
from noyau.workers.nvml import GpuConditions

_LADDER = ("L1", "L2", "L3")


def run_machine(arguments: argparse.Namespace) -> int:
    """The processor, and the first CUDA device where there is one; `--device` says which alone."""
    device = require_device(arguments.device)
    rates = None if device.startswith("cuda") else _processor(refresh=arguments.refresh)
    gpu = None if device == "cpu" else _gpu(device, refresh=arguments.refresh)
    records = [each for each in (rates, gpu) if each is not None]
    if arguments.json:
        record = rates.to_json() if rates is not None else {}
        record |= {"gpu": gpu.to_json()} if gpu is not None else {}
        sys.stdout.write(json.dumps(record, indent=2) + "\n")
        return 0
    console = Console()
    for part in (*(machine_tables(rates) if rates else ()), *(gpu_tables(gpu) if gpu else ())):
        console.print(part)
    for each in records:
        if each.note:
            sys.stderr.write(f"noyau: the numbers are doubtful: {each.note}; --refresh measures again\n")
    return 0


def require_device(wish: str | None) -> str:
    """The device that is asked for, or nothing. InputError for one that cannot be measured."""
    if wish is None or wish in ("cpu", "cuda") or re.fullmatch(r"cuda:\d{1,3}", wish):
        return wish or ""
    raise InputError(f"--device {printable(wish)}: what can be measured is cpu, cuda, or cuda:1 and the like")


def _processor(*, refresh: bool) -> MachineRates:
    from noyau.timing.rates import machine_rates, recall_rates

    rates = None if refresh else recall_rates()
    if rates is None:
        with progress() as say:
            say("measuring this machine, for some seconds; it should do nothing else meanwhile")
            rates = machine_rates(refresh=True)
    return rates


def _gpu(device: str, *, refresh: bool) -> GpuRates | None:
    """The GPU, or None where nobody asks for it and there is none. BuildError where one is asked for that is not there,
    MissingExtraError without torch."""
    if not device and not (has_driver() and importlib.util.find_spec("torch")):
        return None
    try:
        from noyau.hosts.torch.cuda.clock import measured_gpu
    except ImportError as error:
        raise MissingExtraError("a GPU is measured with torch; run: pip install torch") from error
    number = int(device.partition(":")[2] or 0)
    try:
        with progress() as say:
            say("measuring the GPU, for some seconds; it should do nothing else meanwhile")
            return measured_gpu(number, refresh=refresh)
    except BuildError:
        if device:
            raise
        return None


def machine_tables(rates: MachineRates) -> Iterator[RenderableType]:
    """The record for a terminal."""
    machine = rates.machine
    caches = ", ".join(f"{name} {_bytes(size)}" for name, size in rates.caches.items()) or "unknown"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(machine.versions.items()))
    facts = {
        "processor": f"{machine.cpu}, {machine.cores} cores, {machine.level}",
        "caches": f"{caches} (of a core; the last one may be shared)",
        "compiler": machine.compiler,
        "system": machine.os,
        "versions": versions,
        "measured": rates.date,
    }
    yield from _facts(facts)
    yield Text()
    yield _ladder(rates)
    yield Text()
    yield _curves(rates)
    yield Text()
    for name, gains in rates.scaling.items():
        scaling = ", ".join(f"{count}: {gain:.2f}x" for count, gain in gains.items())
        yield Text(f"threads, {name:<7} {scaling}")
    yield Text()
    yield from _rates(rates.rates)


def levels(caches: Mapping[str, int], sizes: tuple[int, ...]) -> dict[str, int]:
    """A size that stands for each level: the largest that fills at most half of it, and for DRAM the largest at all."""
    bandwidths = {
        name: max((size for size in sizes if 2 * size <= caches[name]), default=sizes[0])
        for name in _LADDER
        if name in caches
    }
    return {**bandwidths, "DRAM": sizes[-1]}


def _ladder(rates: MachineRates) -> Table:
    threads, rows = sorted(rates.copy), []
    for level, size in levels(rates.caches, tuple(rates.copy[1])).items():
        # What is in the caches of all cores together is that much larger; each has its own part.
        at = {count: min(size * count if level in ("L1", "L2") else size, max(rates.copy[1])) for count in threads}
        at = {count: max(each for each in rates.copy[1] if each <= at[count]) for count in threads}
        rows.append((level, *(_rate(curve[at[n]]) for n in threads for curve in (rates.copy[n], rates.read[n]))))
    return _table("GB/s by level", ["", *_headings(threads)], rows)


def _curves(rates: MachineRates) -> Table:
    threads = sorted(rates.copy)
    rows = [
        (_bytes(size), *(_rate(curve[count][size]) for count in threads for curve in (rates.copy, rates.read)))
        for size in rates.copy[1]
    ]
    return _table("GB/s by the bytes that move", ["bytes", *_headings(threads)], rows)


def _headings(threads: Sequence[int]) -> list[str]:
    return [f"{what}, {several(count, 'thread')}" for count in threads for what in ("copy", "read")]


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of numbers, to the right, but those of a column without a heading."""
    table = Table(box=None, title=title, title_justify="left")
    for name in headings:
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _facts(facts: Mapping[str, str]) -> Iterator[Text]:
    yield from (Text(f"{name:<10} {printable(fact)}") for name, fact in facts.items())


def _rates(rates: Mapping[str, float]) -> Iterator[RenderableType]:
    """Functions by row and dtypes by column, then conversions from the dtype of a row to that of a column."""
    functions = {name: rate for name, rate in rates.items() if not name.rpartition("_")[0].endswith("_to")}
    conversions = {name.replace("_to_", "_"): rate for name, rate in rates.items() if name not in functions}
    yield Text("billions of values per second, one thread, in a cache", style="table.title")
    yield _by_dtype("", functions)
    yield Text("\nbillions of conversions per second, likewise: from the row to the column", style="table.title")
    yield _by_dtype("from", conversions)


def _by_dtype(corner: str, rates: Mapping[str, float]) -> Table:
    table = Table(box=None)
    dtypes = sorted({name.rpartition("_")[2] for name in rates}, key=lambda name: (len(name), name))
    table.add_column(corner)
    for dtype in dtypes:
        table.add_column(dtype, justify="right")
    for name in sorted({name.rpartition("_")[0] for name in rates}):
        table.add_row(name, *(_rate(rates.get(f"{name}_{dtype}")) for dtype in dtypes))
    return table


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e9:.3g}"


def _bytes(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


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
    yield from _facts(facts)
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
    return _table(title, ["bytes", *columns], rows)


def _gpu_bytes(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size >> 10} KiB"
