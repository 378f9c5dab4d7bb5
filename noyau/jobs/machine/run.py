"""`noyau machine`: what this machine can do, its processor and its GPU, as tables or as JSON."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys

from rich.console import Console

from noyau.errors import BuildError, InputError, MissingExtraError
from noyau.jobs.command_line import progress
from noyau.jobs.machine.gpu import gpu_tables
from noyau.jobs.machine.render import machine_tables
from noyau.text import printable
from noyau.timing.gpu_rate_cache import GpuRates
from noyau.timing.rates import MachineRates, machine_rates, recall_rates
from noyau.workers.nvml import has_driver


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
        from noyau.hosts.torch.cuda.rates import measured_gpu
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
