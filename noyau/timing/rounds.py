"""Rounds of samples of several sides, in shuffled order, until there are enough samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from noyau.timing.sides import Clock, SelfTimedSide
from noyau.timing.verdict import Comparison

_CHECKED_FROM = 20  # pairs: the first look at how narrow the interval is
_MOST_PAIRS = 4000
_MOST_CALLS = 1 << 20
# Far above the resolution and the cost of a clock, far below the time slices of a busy machine's scheduler.
SAMPLE_S = 200e-6
_WINDOWS, _LONGEST_WINDOW_S = 10, 25e-3  # windows in the time for the warm-up
LONG = 50  # samples: a call that takes so long surely fills a sample, and is not repeated to see that
_AGREE = 0.05
Enough = Callable[[Comparison], bool]


class Rounds:
    """The loop that warms up and measures: the same code, so that no work can move from one phase to the other.

    In a round each side is timed once, in a new random order. `alike`: a sample of each side has as many calls as one
    of the fastest side needs; else each has as many as it needs itself."""

    def __init__(
        self, sides: Sequence[SelfTimedSide], rng: Generator, clock: Clock, *, alike: bool, sample_s: float = SAMPLE_S
    ) -> None:
        self.sides, self.rng, self.clock, self.alike, self.sample_s = sides, rng, clock, alike, sample_s
        self.quick = list(range(len(sides)))  # sides that are timed in every round
        self.calls = [1] * len(sides)
        self.took_s: list[list[float]] = [[] for _ in sides]

    def settle(self, deadline_s: float, longest_s: float) -> None:
        """Call each side until its times are steady, then discard them; `calls` is then the number that fills a sample.
        A side whose call takes longer than `longest_s` is not called again for that."""
        self.take(self.quick)
        self.quick = [side for side in self.quick if self.took_s[side][-1] <= longest_s]
        window_s = min((deadline_s - self.clock()) / _WINDOWS, _LONGEST_WINDOW_S)
        self.fill()
        windows: list[tuple[float, ...]] = []
        while self.quick and self.clock() < deadline_s and not _agree(windows[-3:]):
            windows.append(self.window(window_s))
        for samples in self.took_s:
            samples.clear()

    def fill(self) -> None:
        """Raise the calls of each side's samples until they are long enough."""
        growing = self.quick
        while growing:
            if min(self.took_s[side][-1] * self.calls[side] for side in growing) >= LONG * self.sample_s:
                return
            self.take(growing)
            calls = {side: self.enough(side) for side in growing}
            if self.alike:
                calls = dict.fromkeys(growing, max(calls.values()))
            growing = [side for side in growing if calls[side] > self.calls[side]]
            for side in growing:
                self.calls[side] = calls[side]

    def enough(self, side: int) -> int:
        """The number of calls that makes a sample of a side long enough, judged by its last one."""
        calls = self.calls[side]
        took_s = self.took_s[side][-1] * calls
        if took_s >= self.sample_s:
            return calls
        more = math.ceil(calls * 1.2 * self.sample_s / took_s) if took_s > 0 else _MOST_CALLS
        return min(more, 8 * calls, _MOST_CALLS)

    def window(self, window_s: float) -> tuple[float, ...]:
        """The median seconds of each side over some rounds."""
        end_s, first = self.clock() + window_s, [len(samples) for samples in self.took_s]
        self.take(self.quick)
        while self.clock() < end_s:
            self.take(self.quick)
        return tuple(float(np.median(self.took_s[side][first[side] :])) for side in self.quick)

    def measure(self, deadline_s: float, seed: int, fewest: int, enough: Enough) -> None:
        look_at, pairs = _CHECKED_FROM, 0
        while pairs < fewest or (self.quick and self.clock() < deadline_s and pairs < _MOST_PAIRS):
            self.take(self.quick if pairs >= fewest else range(len(self.sides)))
            pairs += 1
            if pairs >= look_at:
                if self.has(enough, seed):
                    return
                look_at += max(5, look_at // 4)

    def has(self, enough: Enough, seed: int) -> bool:
        """Whether the samples of each side against the first one are enough."""
        comparison, others = self.series(seed), self.quick[1:]
        return all(enough(comparison.comparison(self.quick[0], side)) for side in others)

    def take(self, sides: Sequence[int]) -> None:
        """Time one round of these sides."""
        order = list(reversed(sides))
        for last in range(len(order) - 1, 0, -1):  # Fisher and Yates's shuffle
            other = int(self.rng.random() * (last + 1))
            order[last], order[other] = order[other], order[last]
        for side in order:
            self.took_s[side].append(self.sides[side].lasts(self.calls[side]) / self.calls[side])

    def series(self, seed: int) -> Series:
        return Series(tuple(map(tuple, self.took_s)), tuple(self.calls), seed)


def _agree(windows: Sequence[tuple[float, ...]]) -> bool:
    """Whether three windows measured the same times, on each side."""
    sides = tuple(zip(*windows, strict=True))
    return len(windows) == 3 and all(max(side) <= (1 + _AGREE) * min(side) for side in sides)


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds per call of several sides, round by round, each sample the mean of its `calls`; slow sides have fewer."""

    seconds: tuple[tuple[float, ...], ...]
    calls: tuple[int, ...]
    seed: int = 0

    def median_s(self, side: int) -> float:
        return float(np.median(self.seconds[side]))

    def comparison(self, before: int, after: int) -> Comparison:
        """The comparison of a side with another, over the rounds in which both were timed."""
        both = min(len(self.seconds[before]), len(self.seconds[after]))
        before_s, after_s = self.seconds[before][:both], self.seconds[after][:both]
        return Comparison(before_s, after_s, self.calls[after], self.seed)
