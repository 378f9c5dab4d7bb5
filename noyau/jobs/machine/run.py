"""`noyau machine`: what this machine can do, its processor and its GPU, as tables or as JSON."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from noyau.errors import BuildError, InputError, MissingExtraError
from noyau.jobs.command_line import progress
from noyau.jobs.machine.render_gpu import gpu_tables
from noyau.text import printable
from noyau.workers.nvml import has_driver

if TYPE_CHECKING:
    from noyau.timing.gpu_rate_cache import GpuRates
    from noyau.timing.rates import MachineRates

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
    for name, fact in facts.items():
        yield Text(f"{name:<10} {printable(fact)}")
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
    table = Table(box=None, title="GB/s by level", title_justify="left")
    threads = sorted(rates.copy)
    for name in ("", *(f"{what}, {_threads(count)}" for count in threads for what in ("copy", "read"))):
        table.add_column(name, justify="right" if name else "left")
    for level, size in levels(rates.caches, tuple(rates.copy[1])).items():
        # What is in the caches of all cores together is that much larger; each has its own part.
        at = {count: min(size * count if level in ("L1", "L2") else size, max(rates.copy[1])) for count in threads}
        at = {count: max(each for each in rates.copy[1] if each <= at[count]) for count in threads}
        table.add_row(
            level, *(_rate(curve[at[count]]) for count in threads for curve in (rates.copy[count], rates.read[count]))
        )
    return table


def _curves(rates: MachineRates) -> Table:
    table = Table(box=None, title="GB/s by the bytes that move", title_justify="left")
    threads = sorted(rates.copy)
    for name in ("bytes", *(f"{what}, {_threads(count)}" for count in threads for what in ("copy", "read"))):
        table.add_column(name, justify="right")
    for size in rates.copy[1]:
        table.add_row(
            _bytes(size), *(_rate(curve[count][size]) for count in threads for curve in (rates.copy, rates.read))
        )
    return table


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


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _bytes(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
