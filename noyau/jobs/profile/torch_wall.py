"""Split of the wall time of a call of torch's: kernels, products among them, gaps between kernels, waiting.

On a GPU a kernel is one of the device, on the CPU an operator of torch's or noyau's.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import RenderableType
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from noyau.jobs.report.text import Record, hanging
from noyau.text import several

CALLS = 5  # that are timed without the profiler, which takes time of its own
_PRODUCTS = re.compile(
    r"gemm|cutlass|nvjet|xmma|cublas|fmha|flash|attention|conv|winograd|splitK|aten::(addmm|mm|bmm|baddbmm|_scaled_dot)",
    re.IGNORECASE,
)
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_MOST = 6  # kernels that are named
_MANY = 0.3  # share of the wall from which on something is what would help
HELP = {
    "gaps": "launches recorded as one CUDA graph (the option graphs), or fewer kernels",
    "synchronisation": "no value of the device read by the host in the midst of a step",
    "others": "kernels that are no products fused with their neighbours",
    "products": "faster products: fewer and larger ones, or weights in fewer bits",
}


@dataclass(frozen=True, slots=True, repr=False)
class Wall(Record):
    """Shares of the `wall_s` of a call: `kernels`, of which `products` are a part, `gaps` with no kernel, and
    `synchronisation`, in which the host waits though a kernel is not all that runs. `longest`: the kernels that take
    most, with their seconds and how often they are launched."""

    wall_s: float
    kernels: float
    products: float
    synchronisation: float
    launches: int
    longest: tuple[tuple[str, float, int], ...] = ()

    @property
    def gaps(self) -> float:
        return max(1.0 - self.kernels, 0.0)

    @property
    def next(self) -> str:
        """Most helpful next step: what takes the largest share."""
        shares = {
            "gaps": self.gaps - self.synchronisation,
            "synchronisation": self.synchronisation,
            "others": self.kernels - self.products,
            "products": self.products,
        }
        large = [name for name in HELP if shares[name] >= _MANY]  # products last: nobody closes them soon
        return HELP[large[0] if large else max(shares, key=shares.__getitem__)]

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        longest = [{"kernel": name, "s": spent_s, "launches": count} for name, spent_s, count in self.longest]
        shares = {"kernels": self.kernels, "products": self.products, "gaps": self.gaps}
        rest = {"synchronisation": self.synchronisation, "launches": self.launches, "next": self.next}
        return {"wall_s": self.wall_s, **shares, **rest, "longest": longest}

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        shares = f"kernels {self.kernels:.0%} (products {self.products:.0%}), gaps {self.gaps:.0%}"
        rest = f"synchronisation {self.synchronisation:.0%}, {several(self.launches, 'launch')}"
        yield from hanging(f"{1e3 * self.wall_s:.3g} ms: {shares}, {rest}", width, "", "  ")
        for name, spent_s, count in self.longest:
            yield from hanging(f"{1e6 * spent_s:8.0f} us {count:5d}  {name[:100]}", width, "  ", "    ")
        yield from hanging(f"would help next: {self.next}", width, "", "  ")


def measure_wall(call: Callable[[], Any]) -> Wall:
    """Split the wall time of a call; it is called some times more."""
    with_gpu = torch.cuda.is_available()
    wait = torch.cuda.synchronize if with_gpu else lambda: None
    call()
    times = []
    for _ in range(CALLS):
        wait()
        start_s = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start_s)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if with_gpu else [])]
    with profile(activities=activities) as seen:
        call()
        wait()
    return split(statistics.median(times), list(seen.events()))


def split(wall_s: float, events: Iterable[Any]) -> Wall:
    """The wall time by the events of a profiler."""
    events = list(events)
    kernels = [each for each in events if each.device_type == DeviceType.CUDA and not _is_mark(each)]
    if kernels:
        spent = [(each.name, each.time_range.start, each.time_range.end) for each in kernels]
        busy_s = 1e-6 * _covered((start, end) for _, start, end in spent)
        rows = [(name, 1e-6 * (end - start)) for name, start, end in spent]
    else:
        rows = [(each.name, 1e-6 * each.self_cpu_time_total) for each in events if "::" in each.name]
        busy_s = sum(spent_s for _, spent_s in rows)
    waits_s = 1e-6 * sum(each.self_cpu_time_total for each in events if each.name in _WAITS) if kernels else 0.0
    busy_s = min(busy_s, wall_s)
    products_s = min(sum(spent_s for name, spent_s in rows if _PRODUCTS.search(name)), busy_s)
    idle_s = min(max(waits_s - busy_s, 0.0), wall_s - busy_s)
    longest = sorted(_together(rows).items(), key=lambda row: -row[1][0])[:_MOST]
    return Wall(
        wall_s,
        busy_s / wall_s,
        products_s / wall_s,
        idle_s / wall_s,
        len(rows),
        tuple((name, spent_s, count) for name, (spent_s, count) in longest),
    )


def _is_mark(event: Any) -> bool:
    """Whether an event of the device is a note of torch's over kernels, and none itself."""
    return ("::" in event.name and "<" not in event.name) or event.name.startswith(("ProfilerStep", "Torch-Compiled"))


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(end - max(start, until), 0.0)
        until = max(until, end)
    return covered


def _together(rows: Iterable[tuple[str, float]]) -> Mapping[str, tuple[float, int]]:
    """Seconds and launches of each name."""
    result: dict[str, tuple[float, int]] = {}
    for name, spent_s in rows:
        before_s, count = result.get(name, (0.0, 0))
        result[name] = before_s + spent_s, count + 1
    return result
