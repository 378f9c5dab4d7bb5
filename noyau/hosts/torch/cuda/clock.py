"""The clock on CUDA (a stream as a queue, events as marks, a kernel that holds it), and a device's rates."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import Any

from noyau.errors import BuildError, MissingExtraError, dependency
from noyau.hosts.torch.cuda.device import absence
from noyau.timing.gpu_rate_cache import COLD, HOT, SIZES, Curve, Curves, GpuIdentity, GpuRates, keep, recall_gpu
from noyau.timing.queue_clock import BlockedClock, Call, Times, interleave
from noyau.timing.verdict import Comparison
from noyau.version import __version__
from noyau.workers.nvml import GpuConditions, driver_version, gpu_conditions
from noyau.workers.tamper_detection import seconds

with dependency("torch", "torch"):
    import torch

FLUSH_BYTES = 1 << 28  # written between calls: several times the L2 of any GPU
SPIN_CYCLES = 1 << 22  # about 2 ms: long enough that the cost of an event does not matter

# Bound at import: a candidate's later replacements are detected, and not used.
EVENT, SYNCHRONIZE = torch.cuda.Event, torch.cuda.synchronize
SPIN: Any = getattr(torch.cuda, "_sleep", None)
ELAPSED, RECORD = torch.cuda.Event.elapsed_time, torch.cuda.Event.record


class StreamEvent:
    """A mark on a stream."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = EVENT(enable_timing=True)
        RECORD(self.event)

    def is_reached(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        self.event.synchronize()

    def seconds_since(self, earlier: StreamEvent) -> float:
        return float(ELAPSED(earlier.event, self.event)) / 1e3


class TimedStream:
    """The current stream of a device, as a queue that is timed."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.flushed: torch.Tensor | None = None

    def settle(self) -> None:
        SYNCHRONIZE(self.device)

    def overwrite(self) -> None:
        if self.flushed is None:
            self.flushed = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=f"cuda:{self.device}")
        self.flushed.zero_()

    def hold(self, cycles: int) -> None:
        SPIN(cycles)

    def mark(self) -> StreamEvent:
        return StreamEvent()


@cache
def clock_of(device: int) -> BlockedClock:
    """The clock of a device, memoised: it knows the overhead of an empty pair in this process."""
    with torch.cuda.device(device):
        return BlockedClock(TimedStream(device))


def time_calls(calls: Mapping[str, Call], *, rounds: int = 30, cold: bool = True, seed: int = 0) -> dict[str, Times]:
    """Time each call once a round, in a new order each round; `cold`: after the L2 was overwritten, which is not timed.

    Each is called three times beforehand, in the same way."""
    return interleave(clock_of(torch.cuda.current_device()), calls, rounds=rounds, cold=cold, seed=seed)


def compare_calls(before: Call, after: Call, *, rounds: int, cold: bool) -> Comparison:
    """Compare two calls by `time_calls`."""
    times = time_calls({"before": before, "after": after}, rounds=rounds, cold=cold)
    return Comparison(times["before"].samples_s, times["after"].samples_s)


def conditions_of(device: int) -> GpuConditions:
    """Conditions of a device now; its clock from a kernel that spins for a fixed number of cycles."""
    with torch.cuda.device(device):
        SYNCHRONIZE(device)
        start = StreamEvent()
        SPIN(SPIN_CYCLES)
        end = StreamEvent()
        end.wait()
        took_s = end.seconds_since(start)
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", "")  # torch may not say
    return gpu_conditions(f"GPU-{uuid}", SPIN_CYCLES / took_s / 1e6 if took_s > 0 else None)


@cache
def device_text(device: int = 0) -> str:
    """Stamp of a record of times on a device: the GPU, the driver, and the versions of its compilers."""
    properties = torch.cuda.get_device_properties(device)
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, triton {triton_version()}"
    return f"{properties.name}, {properties.multi_processor_count} SMs, driver {driver_version()}, {versions}"


@cache
def triton_version() -> str:
    for name in ("triton", "pytorch-triton"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "none"


def gpu_rates(device: int = 0, *, refresh: bool = False) -> GpuRates:
    """The rates of a device, as measured before; measured now if they never were, or with `refresh`.

    BuildError where there is no CUDA device; takes some seconds."""
    if lacks := absence(device):
        raise BuildError(lacks)
    rates = None if refresh else recall_gpu(device_text(device))
    if rates is None:
        with torch.cuda.device(device):
            rates = _measure_gpu(device)
        keep(device_text(device), rates)
    return rates


def gpu_of(device: int) -> GpuIdentity:
    """The identity of a device by torch and the driver."""
    properties = torch.cuda.get_device_properties(device)
    versions = {"noyau": __version__, "torch": torch.__version__, "cuda": str(torch.version.cuda)}
    sizes = int(getattr(properties, "L2_cache_size", 0)), properties.total_memory
    capability, versions["triton"] = f"{properties.major}.{properties.minor}", triton_version()
    name, sm_count = properties.name, properties.multi_processor_count
    return GpuIdentity(name, sm_count, *sizes, capability, driver_version(), versions)


def _measure_gpu(device: int) -> GpuRates:
    clock, start, identity = clock_of(device), conditions_of(device), gpu_of(device)
    room = torch.cuda.mem_get_info(device)[0]
    sizes = [size for size in SIZES if 2 * size < room]
    curves = {
        name: {temperature: curve(clock, calls, sizes, temperature) for temperature in (HOT, COLD)}
        for name, calls in (("copy", copies), ("read", reads), ("fill", fills))
    }
    read: Curves = {name: by_size for name, by_size in curves["read"].items() if by_size}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    costs = dict(products(clock)), launches(clock), transfers(), flush(clock, identity.l2_bytes)
    return GpuRates(identity, curves["copy"], read, curves["fill"], *costs, (start, conditions_of(device)), today)


_SAMPLES = 12
_PRODUCT = 8192
_SLOW_PRODUCT = 4096  # for dtypes that matrix units lack, or compute slowly
_TRANSFERS = (1 << 16, 1 << 20, 1 << 24, 1 << 28)
_LAUNCHES = 200


def curve(clock: BlockedClock, calls: Callable[[int], list[Call]], sizes: list[int], temperature: str) -> Curve:
    """Bytes per second of the best of some kernels, by the bytes that they move."""
    rates = {size: [size / _median_s(clock, call, cold=temperature == COLD) for call in calls(size)] for size in sizes}
    return {size: max(each) for size, each in rates.items() if each}


def _median_s(clock: BlockedClock, call: Call, *, cold: bool, samples: int = _SAMPLES) -> float:
    for _ in range(3):
        clock.sample(call, cold=cold)
    return max(statistics.median(clock.sample(call, cold=cold).took_s for _ in range(samples)), 1e-9)


def _words(count_bytes: int) -> torch.Tensor:
    return torch.randint(0, 1 << 30, (max(count_bytes // 4, 1),), dtype=torch.int32, device="cuda")


def copies(moved_bytes: int) -> list[Call]:
    source = _words(moved_bytes // 2)
    target = torch.empty_like(source)
    return [lambda: target.copy_(source), lambda: torch.bitwise_not(source, out=target)]


def fills(moved_bytes: int) -> list[Call]:
    target = _words(moved_bytes)
    return [target.zero_, lambda: target.fill_(7)]


def reads(moved_bytes: int) -> list[Call]:
    with suppress(MissingExtraError):
        from noyau.hosts.torch.cuda.read_kernel import reader

        return [reader(_words(moved_bytes))]
    return []


def products(clock: BlockedClock) -> Iterator[tuple[str, float]]:
    """Flops per second of a product of random matrices, by dtype."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    for name, dtype, size in (
        ("float64", torch.float64, _SLOW_PRODUCT),
        ("float32", torch.float32, _SLOW_PRODUCT),
        ("tf32", torch.float32, _PRODUCT),
        ("float16", torch.float16, _PRODUCT),
        ("bfloat16", torch.bfloat16, _PRODUCT),
    ):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        try:
            yield name, _flops(clock, dtype, size)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed


def _flops(clock: BlockedClock, dtype: torch.dtype, size: int) -> float:
    a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / _median_s(clock, lambda: torch.mm(a, b, out=out), cold=False, samples=8)


def launches(clock: BlockedClock) -> dict[str, float]:
    """The costs of a launch in seconds."""
    cell = torch.zeros(1, dtype=torch.int32, device="cuda")
    calls: dict[str, Call] = {"torch": lambda: cell.fill_(1)}
    with suppress(MissingExtraError):
        from noyau.hosts.torch.cuda.read_kernel import idler

        calls["triton"] = idler(cell)
    entries = {"empty_pair": clock.overhead_s}
    for name, call in calls.items():
        entries[f"kernel, {name}"] = _median_s(clock, call, cold=False)
        entries[f"host, {name}"] = statistics.median(clock.sample(call, cold=False).host_s for _ in range(_SAMPLES))
        entries[f"row of launches, {name}"] = _until_known(call, _LAUNCHES)
    entries["until the host knows"] = statistics.median(_until_known(calls["torch"]) for _ in range(_SAMPLES))
    return entries


def _until_known(call: Call, launches: int = 1) -> float:
    """Seconds per launch of so many in a row, until the host knows that the last one has ended."""
    torch.cuda.synchronize()
    begin_s = seconds()
    for _ in range(launches):
        call()
    torch.cuda.synchronize()
    return (seconds() - begin_s) / launches


def transfers() -> Mapping[str, Mapping[int, float]]:
    """Bytes per second between host and device, by the clock of the host, until both are done."""
    by_name: dict[str, dict[int, float]] = {}
    for size in _TRANSFERS:
        there = torch.empty(size, dtype=torch.uint8, device="cuda")
        for kind in ("pageable", "pinned"):
            here = torch.ones(size, dtype=torch.uint8, pin_memory=kind == "pinned")
            for way, target, source in (("to device", there, here), ("to host", here, there)):

                def call(target: torch.Tensor = target, source: torch.Tensor = source) -> object:
                    return target.copy_(source, non_blocking=True)

                by_name.setdefault(f"{way}, {kind}", {})[size] = size / min(_until_known(call) for _ in range(4))
    return by_name


def flush(clock: BlockedClock, l2_bytes: int) -> dict[str, float]:
    """Seconds of a copy that fits in the L2, hot and cold."""
    call = copies(max(l2_bytes // 4, 1 << 20))[1]
    return {HOT: _median_s(clock, call, cold=False), COLD: _median_s(clock, call, cold=True)}
