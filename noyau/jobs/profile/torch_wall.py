"""The wall time of a torch call, split into kernels, matrix products among them, gaps between kernels, and waiting.

On a GPU kernels are those of the device, on the CPU operators of torch or noyau."""

import json
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule

from noyau.hosts.torch.fast_calls import mark_calls
from noyau.jobs.profile.record import CallTime, Wall
from noyau.jobs.profile.timeline import ON_GPU, gap_threads, gaps, short_name
from noyau.timing.ranges import Event

CALLS, MOST_S = 5, 2.0  # most calls timed without the profiler, whose overhead counts otherwise, and most seconds
_PRODUCTS = re.compile(
    "(?i)gemm|cutlass|nvjet|xmma|cublas|fmha|flash|attention|conv|winograd|splitK"
    "|aten::(linear|matmul|addmm|mm|bmm|baddbmm|_scaled_dot)"
)
_UNFUSED = re.compile(f"{_PRODUCTS.pattern}|^Mem(cpy|set) ")  # not fused with their neighbours
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_COMPILES = 4.0  # a call that takes so many times the shortest one has compiled something
_MOST = 12  # kernels that are listed


def measure_wall(call: Callable[[], Any], active: int = 1, *, timeline: bool = False) -> Wall:
    """Split the wall time of a call. It is called several times without the profiler, then once unrecorded, once to
    warm the profiler up, and `active` times under it; `timeline`: return the events of these too."""
    with_gpu = torch.cuda.is_available()
    wait = torch.cuda.synchronize if with_gpu else lambda: None
    call()
    times, usual = list[float](), list[float]()
    while len(usual) < 2 or (len(usual) < CALLS and sum(usual) < MOST_S):
        wait()
        start_s = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start_s)
        usual = [each for each in times if each < _COMPILES * min(times)]
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * with_gpu]
    steps = schedule(wait=1, warmup=1, active=active, repeat=1)
    events, trace = list[Any](), list[Event]()

    def ready(seen: profile) -> None:
        events.extend(seen.events() or ())
        trace.extend(timeline_of(seen) if timeline else ())

    how: dict[str, Any] = {"activities": activities, "schedule": steps, "profile_memory": timeline, "acc_events": True}
    with mark_calls(), profile(on_trace_ready=ready, **how) as seen:
        for _ in range(2 + active):
            call()
            wait()
            seen.step()
    return replace(split(statistics.median(usual), events, active), events=tuple(trace))


@contextmanager
def device_events(events: list[Event]) -> Iterator[None]:
    """A block whose GPU events are added to `events` at its end, on the clock of `noyau.range`; recording stops early
    if the program starts torch's profiler itself."""
    every: Any = torch.autograd.profiler.profile  # all interfaces of torch's profiler begin with its _prepare_trace
    with ExitStack() as ours:

        def give_way(other: Any) -> None:
            ours.close()  # torch has one profiler at a time
            other._prepare_trace()

        seen = ours.enter_context(profile(activities=[ProfilerActivity.CUDA]))
        ours.callback(setattr, every, "_prepare_trace", every._prepare_trace)
        every._prepare_trace = give_way
        yield
    events += timeline_of(seen, time.time() - time.perf_counter())


def timeline_of(seen: profile, zero_s: float | None = None) -> list[Event]:
    """The events of torch's profiler in Chrome's trace format, and on a separate thread the gaps between GPU kernels,
    or without any between operators. `zero_s`: the origin of times, in seconds since 1970."""
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        trace = json.loads(path.read_text("utf-8"))
    zero_us = 0.0 if zero_s is None else 1e6 * zero_s - 1e-3 * trace.get("baseTimeNanoseconds", 0)
    events = [{**each, "ts": max(each.get("ts", 0.0) - zero_us, 0.0)} for each in trace["traceEvents"]]
    on_gpu = [each for each in events if each.get("cat") in ON_GPU]
    busy = on_gpu or [each for each in events if each.get("cat") == "cpu_op"]
    return [*events, *gap_threads(busy, "kernels" if on_gpu else "operators")]


def split(wall_s: float, events: Iterable[Any], calls: int = 1) -> Wall:
    """Split the wall time of a call by a profiler's events of `calls` calls."""
    events, scale_s = [each for each in events if not _is_mark(each)], 1e-6 / calls
    kernels = [each for each in events if each.device_type == DeviceType.CUDA]
    waits_us = sum(each.self_cpu_time_total for each in events if each.name in _WAITS) if kernels else 0.0
    if kernels:
        own = {id(each): each.time_range.elapsed_us() for each in kernels}
        spans = [(each.time_range.start, each.time_range.end) for each in kernels]
        busy_us = max(end for _, end in spans) - min(spans)[0] - sum(each["dur"] for each in gaps(spans, 0, 0))
    else:
        kernels = [each for each in events if "::" in each.name]
        own = {id(each): float(each.self_cpu_time_total) for each in kernels}
        busy_us = sum(own.values())
    busy_s = min(scale_s * busy_us, wall_s)
    products_s = min(scale_s * sum(own[id(each)] for each in kernels if _PRODUCTS.search(each.name)), busy_s)
    idle_s = min(max(scale_s * waits_us - busy_s, 0.0), wall_s - busy_s)
    shares = (busy_s / wall_s, products_s / wall_s, idle_s / wall_s)
    longest = _rows(events, own, scale_s, calls)[:_MOST]
    return Wall(wall_s, *shares, len(kernels) // calls, longest, _hottest(kernels, busy_s))


def _rows(events: Iterable[Any], own: Mapping[int, float], scale_s: float, calls: int) -> tuple[CallTime, ...]:
    """The times of kernels and operators in one call, by name; those of a GPU first, then by descending own time."""
    by_kernel: dict[tuple[str, str], list[tuple[float, float, int]]] = defaultdict(list)
    for each in events:
        if id(each) in own or "::" in each.name:
            where = "gpu" if each.device_type == DeviceType.CUDA else "host"
            times = own.get(id(each), float(each.self_cpu_time_total)), each.time_range.elapsed_us()
            by_kernel[short_name(each.name), where].append((*times, max(getattr(each, "self_cpu_memory_usage", 0), 0)))
    rows = []
    for (name, where), those in by_kernel.items():
        self_us, total_us, taken = map(sum, zip(*those, strict=True))
        times = scale_s * self_us, scale_s * total_us
        rows.append(CallTime(name, "", len(those) // calls, *times, taken // calls or None, where))
    return tuple(sorted(rows, key=lambda row: (row.where != "gpu", -row.self_s)))


def _hottest(kernels: Iterable[Any], busy_s: float) -> tuple[tuple[str, ...], float]:
    """The sequence of kernels or outermost operators between two products or copies that takes most in total, and its
    seconds, as a share of the `busy_s` of one call."""
    paths: dict[tuple[str, ...], float] = defaultdict(float)
    whole = [each for each in kernels if "::" not in str(getattr(getattr(each, "cpu_parent", None), "name", ""))]
    running = sorted((each for each in whole if each.time_range.elapsed_us()), key=lambda each: each.time_range.start)
    for is_product, those in groupby(running, key=lambda each: bool(_UNFUSED.search(each.name))):
        if not is_product:
            path = list(those)
            paths[tuple(short_name(each.name) for each in path)] += sum(each.time_range.elapsed_us() for each in path)
    hottest, most_us = max(paths.items(), key=lambda item: item[1], default=((), 0.0))
    every_us = sum(each.time_range.elapsed_us() for each in running)
    return hottest, busy_s * most_us / every_us if every_us else 0.0


def _is_mark(event: Any) -> bool:
    """Whether an event is a user's range or an annotation by torch, and no kernel or operator."""
    if event.name.startswith("noyau::") and event.device_type != DeviceType.CUDA:
        return False
    noted = event.device_type == DeviceType.CUDA and "::" in event.name and "<" not in event.name
    return noted or event.is_user_annotation or event.name.startswith(("ProfilerStep", "Torch-Compiled"))
