"""The clock on CUDA: calls on the current stream, interleaved, each between two events on a queue that is blocked until
all of the call is on it, so that what Python takes to launch is not measured; it is reported beside it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from noyau.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch is not installed; run: pip install torch") from error

FLUSH_BYTES = 1 << 28  # written between calls: several times the L2 of any GPU
SLEEP_CYCLES = 1 << 20  # of the GPU, for which the queue is blocked at first: about 0.6 ms
MOST_CYCLES = 1 << 26

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one call, in the order in which they were measured; the overhead of an empty pair of events is taken
    off. `host_s`: what Python took each time to put it on the queue. `unblocked`: how many had begun before that was
    done, and may hold some of it."""

    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    unblocked: int

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)

    def quantile_s(self, share: float) -> float:
        """The time below which a share of the samples are."""
        ordered = sorted(self.samples_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def time_calls(calls: Mapping[str, Call], *, rounds: int = 30, cold: bool = True, seed: int = 0) -> dict[str, Times]:
    """Each call once a round, in a new order each round; `cold`: after the L2 was overwritten, not in what is timed.

    Each is called three times beforehand, in the same way."""
    clock, random = _Clock(cold), Random(seed)  # noqa: S311
    for call in calls.values():
        for _ in range(3):
            clock.sample(call)
    found: dict[str, list[tuple[float, float, bool]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            found[name].append(clock.sample(calls[name]))
    overhead_s = statistics.median(clock.sample(_nothing)[0] for _ in range(rounds))
    return {
        name: Times(
            tuple(max(0.0, sample - overhead_s) for sample, _, _ in samples),
            tuple(host for _, host, _ in samples),
            sum(not blocked for _, _, blocked in samples),
        )
        for name, samples in found.items()
    }


def ratio(one: Times, other: Times) -> float:
    """How much longer one takes than the other: the median over rounds, each of which timed both."""
    return statistics.median(a / b for a, b in zip(one.samples_s, other.samples_s, strict=True) if b > 0)


def _nothing() -> None:
    pass


class _Clock:
    """One measurement at a time; blocks the queue for longer where a call took longer to put on it."""

    def __init__(self, cold: bool) -> None:
        self.cycles = SLEEP_CYCLES
        self.flushed = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda") if cold else None

    def sample(self, call: Call) -> tuple[float, float, bool]:
        """Seconds on the GPU, seconds of the host, and whether the queue was blocked until all was on it."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        if self.flushed is not None:
            self.flushed.zero_()
        torch.cuda._sleep(self.cycles)
        start.record()
        before = time.perf_counter()
        call()
        host_s = time.perf_counter() - before
        blocked = not start.query()
        end.record()
        end.synchronize()
        if not blocked:
            self.cycles = min(2 * self.cycles, MOST_CYCLES)
        return start.elapsed_time(end) / 1e3, host_s, blocked
