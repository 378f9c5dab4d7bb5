"""Rates of a device, measured once and kept."""

from __future__ import annotations

import datetime

from noyau.errors import BuildError, MissingExtraError
from noyau.hosts.torch.cuda.clock import clock_of, conditions_of, device_text, triton_version
from noyau.hosts.torch.cuda.device import absence
from noyau.hosts.torch.cuda.rate_probes import copies, curve, fills, flush, launches, products, reads, transfers
from noyau.timing.gpu_rate_cache import COLD, HOT, SIZES, Curves, GpuIdentity, GpuRates, keep, recall_gpu
from noyau.version import __version__
from noyau.workers.nvml import driver_version

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch is not installed; run: pip install torch") from error


def measured_gpu(device: int = 0, *, refresh: bool = False) -> GpuRates:
    """A device, as it was measured before; measured now where it never was or `refresh` asks for it.

    BuildError where there is no CUDA device; takes some seconds."""
    if lacks := absence(device):
        raise BuildError(lacks)
    rates = None if refresh else recall_gpu(device_text(device))
    if rates is None:
        with torch.cuda.device(device):
            rates = _measured_now(device)
        keep(device_text(device), rates)
    return rates


def gpu_of(device: int) -> GpuIdentity:
    """A device, as torch and the driver tell of it."""
    properties = torch.cuda.get_device_properties(device)
    versions = {"noyau": __version__, "torch": torch.__version__, "cuda": str(torch.version.cuda)}
    return GpuIdentity(
        properties.name,
        properties.multi_processor_count,
        int(getattr(properties, "L2_cache_size", 0)),
        properties.total_memory,
        f"{properties.major}.{properties.minor}",
        driver_version(),
        {**versions, "triton": triton_version()},
    )


def _measured_now(device: int) -> GpuRates:
    clock, start, identity = clock_of(device), conditions_of(device), gpu_of(device)
    room = torch.cuda.mem_get_info(device)[0]
    sizes = [size for size in SIZES if 2 * size < room]
    curves = {
        name: {temperature: curve(clock, calls, sizes, temperature) for temperature in (HOT, COLD)}
        for name, calls in (("copy", copies), ("read", reads), ("fill", fills))
    }
    read: Curves = {name: by_size for name, by_size in curves["read"].items() if by_size}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return GpuRates(
        identity,
        curves["copy"],
        read,
        curves["fill"],
        dict(products(clock)),
        launches(clock),
        transfers(),
        flush(clock, identity.l2_bytes),
        (start, conditions_of(device)),
        today,
    )
