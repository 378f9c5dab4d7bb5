"""Split of the wall time of a call of torch's: kernels, products among them, gaps between kernels, waiting.

On a GPU a kernel is one of the device, on the CPU an operator of torch's or noyau's.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from noyau.jobs.profile.record import Wall, by_name

CALLS, MOST_S = 5, 2.0  # that are timed without the profiler, which takes time of its own, and when no more are
_PRODUCTS = re.compile(
    r"gemm|cutlass|nvjet|xmma|cublas|fmha|flash|attention|conv|winograd|splitK|aten::(addmm|mm|bmm|baddbmm|_scaled_dot)",
    re.IGNORECASE,
)
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_MOST = 6  # kernels that are named


def measure_wall(call: Callable[[], Any]) -> Wall:
    """Split the wall time of a call; it is called some times more."""
    with_gpu = torch.cuda.is_available()
    wait = torch.cuda.synchronize if with_gpu else lambda: None
    call()
    times = list[float]()
    while len(times) < CALLS and sum(times) < MOST_S:
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
    return Wall(
        wall_s,
        busy_s / wall_s,
        products_s / wall_s,
        idle_s / wall_s,
        len(rows),
        tuple((name, sum(each), len(each)) for name, each in by_name(rows)[:_MOST]),
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
