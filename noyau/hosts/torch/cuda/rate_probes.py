"""Probes of a device: copies, reads and fills by size, products by dtype, launches, and transfers to and from it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import torch

from noyau.errors import MissingExtraError
from noyau.timing.gpu_rate_cache import COLD, HOT, Curve
from noyau.timing.queue_clock import BlockedClock, Call
from noyau.workers.tamper_detection import seconds

_SAMPLES = 12
_PRODUCT = 8192
_SLOW_PRODUCT = 4096  # of dtypes that the matrix units do not have, or slowly
_TRANSFERS = (1 << 16, 1 << 20, 1 << 24, 1 << 28)
_LAUNCHES = 200


def curve(clock: BlockedClock, calls: Callable[[int], list[Call]], sizes: list[int], temperature: str) -> Curve:
    """Bytes per second by the bytes that move: of the best of some kernels."""
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
    """Seconds of what a launch costs."""
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
    """Seconds of one launch of so many in a row, until the host knows of the last."""
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
    """Seconds of a copy of what fits in the L2, hot and cold."""
    call = copies(max(l2_bytes // 4, 1 << 20))[1]
    return {HOT: _median_s(clock, call, cold=False), COLD: _median_s(clock, call, cold=True)}
