"""`noyau machine`: the measured rates of the processor and the GPU, as tables or JSON."""

import argparse
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from noyau.errors import BuildError, InputError, dependency
from noyau.jobs.command_line import progress, require_record_places
from noyau.jobs.machine.render import facts_text, machine_tables, number_table, versions_text
from noyau.jobs.report.text import spell_bytes, write_found
from noyau.text import printable
from noyau.timing.gpu_rate_cache import COLD, HOT, Curve, GpuRates
from noyau.timing.rates import MachineRates, machine_rates, recall_rates
from noyau.timing.verdict import spell_s
from noyau.workers.nvml import GpuConditions, has_driver


def gpu_tables(rates: GpuRates) -> Iterator[RenderableType]:
    gpu = rates.gpu
    facts = {
        "GPU": f"{gpu.name}, {gpu.sm_count} SMs, compute capability {gpu.capability}",
        "memory": f"{spell_bytes(gpu.memory_bytes, 4)}, L2 {spell_bytes(gpu.l2_bytes, 4)}",
        "driver": gpu.driver or "unknown",
        "versions": versions_text(gpu.versions),
        "clocks": " -> ".join(map(clocks, rates.conditions)),
        "measured": rates.date,
    }
    yield from facts_text(facts)
    yield Text()
    curves = {name: getattr(rates, name) for name in ("copy", "read", "fill")}
    columns = {f"{name}, {how}": curve[how] for name, curve in curves.items() for how in (COLD, HOT) if how in curve}
    yield _by_size("GB/s by the bytes that move; hot: in the L2 where they fit", columns, rates.copy[COLD])
    yield Text()
    yield from (Text(f"product of random {name:<9} {rate / 1e12:8.1f} TFLOP/s") for name, rate in rates.matmul.items())
    yield Text()
    yield from (Text(f"launch: {name:<24} {spell_s(time_s)}") for name, time_s in rates.launch_s.items())
    hot, cold = (spell_s(rates.flush_s[how]) for how in (HOT, COLD))
    yield Text(f"a copy that fits in the L2: {hot} hot, {cold} after the L2 was overwritten")
    yield Text()
    yield _by_size("GB/s between the host and it", rates.transfer, next(iter(rates.transfer.values()), ()))


def clocks(moment: GpuConditions) -> str:
    parts = [
        f"{moment.spin_mhz:.0f} MHz" if moment.spin_mhz else "",
        f"memory {moment.memory_mhz} MHz" if moment.memory_mhz else "",
        f"{moment.temperature_c} C" if moment.temperature_c else "",
        f"{moment.power_w:.0f} W" if moment.power_w else "",
        moment.held_back,
    ]
    return ", ".join(filter(None, parts)) or "unknown"


def _by_size(title: str, columns: Mapping[str, Curve], sizes: Iterable[int]) -> Table:
    rows = [
        (spell_bytes(size, 4), *(f"{curve[size] / 1e9:.4g}" if size in curve else "" for curve in columns.values()))
        for size in sizes
    ]
    return number_table(title, ["bytes", *columns], rows)


def run_machine(arguments: argparse.Namespace) -> int:
    """Measure and print the processor, and the first CUDA device if there is one; or only the one of `--device`."""
    device = require_device(arguments.device)
    require_record_places(None, arguments.json)
    rates = None if device.startswith("cuda") else _processor(refresh=arguments.refresh)
    gpu = None if device == "cpu" else _gpu(device, refresh=arguments.refresh)
    write_found(arguments.json, (rates.to_json() if rates else {}) | ({"gpu": gpu.to_json()} if gpu else {}))
    console = Console(quiet=arguments.quiet)
    for part in (*(machine_tables(rates) if rates else ()), *(gpu_tables(gpu) if gpu else ())):
        console.print(part)
    for each in (rates, gpu):
        if each and each.note:
            sys.stderr.write(f"noyau: the numbers are doubtful: {each.note}; --refresh measures again\n")
    return 0


def require_device(wish: str | None) -> str:
    """The requested device, or an empty text. InputError for one that cannot be measured."""
    if wish is None or re.fullmatch(r"cpu|cuda(:\d{1,3})?", wish):
        return wish or ""
    raise InputError(f"--device {printable(wish)}: what can be measured is cpu, cuda, or cuda:1 and the like")


def _processor(*, refresh: bool) -> MachineRates:
    if not refresh and (known := recall_rates()) is not None:
        return known
    with progress() as say:
        say("measuring this machine, for some seconds; it should do nothing else meanwhile")
        return machine_rates(refresh=True)


def _gpu(device: str, *, refresh: bool) -> GpuRates | None:
    """The rates of a GPU; without one None, or BuildError if it was requested. MissingExtraError without torch."""
    if not device and not (has_driver() and importlib.util.find_spec("torch")):
        return None
    with dependency("a GPU is measured with torch, which", "torch"):
        from noyau.hosts.torch.cuda.clock import gpu_rates
    try:
        with progress() as say:
            say("measuring the GPU, for some seconds; it should do nothing else meanwhile")
            return gpu_rates(int(device.partition(":")[2] or 0), refresh=refresh)
    except BuildError:
        if device:
            raise
        return None
