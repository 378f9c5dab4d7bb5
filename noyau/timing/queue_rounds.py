"""Rounds of calls on a queue that works by itself: each call once a round, in a new order, and what they took."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from noyau.timing.queue_clock import BlockedClock, Call, Hold, Sample

WARM_CALLS = 3


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one call, as they were measured, without the overhead of an empty pair of events. `host_s`: what
    Python took each time to put it on the queue. `unblocked`: how many may hold some of that, for they had begun."""

    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    unblocked: int

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)


def interleave(
    clock: BlockedClock, calls: Mapping[str, Call], *, rounds: int, cold: bool, seed: int
) -> dict[str, Times]:
    """Time each call once a round, in a new order each round; each three times beforehand, in the same way."""
    random, holds = Random(seed), {name: Hold() for name in calls}  # noqa: S311  an order, no secret
    for name, call in calls.items():
        for _ in range(WARM_CALLS):
            clock.sample(call, cold=cold, hold=holds[name])
    by_call: dict[str, list[Sample]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            by_call[name].append(clock.sample(calls[name], cold=cold, hold=holds[name]))
    return {
        name: Times(
            tuple(each.took_s for each in samples),
            tuple(each.host_s for each in samples),
            sum(not each.blocked for each in samples),
        )
        for name, samples in by_call.items()
    }


def ratio(one: Times, other: Times) -> float:
    """The ratio of the times of one and the other: the median over rounds, each of which timed both."""
    return statistics.median(a / b for a, b in zip(one.samples_s, other.samples_s, strict=True) if b > 0)
