"""Callables timed side by side: rounds in shuffled order, every sample kept, and a verdict that may say "too noisy".

A machine that others use drifts by more than most kernels win: only the ratio within a pair means something.

The interval of a median by resampling, without resampling.

Comparisons of sides that are each in a place of their own, a process, half of the time in each other's.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Protocol

import numpy as np

from noyau.toolchain.garbage_collection import without_collections

_RESAMPLES = 2000
_CONFIDENCE = 0.95


def interval_of_median(values: np.ndarray, seed: int) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median of f64[n]; NaN where a value is."""
    if np.isnan(values).any():
        return math.nan, math.nan
    medians = _resampled_medians(np.sort(values), np.random.default_rng(seed))
    low, high = np.quantile(medians, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return float(low), float(high)


def _resampled_medians(ordered: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Medians of resamples of sorted values, f64[_RESAMPLES].

    Nothing is resampled: the middle of n draws of a place is the middle of n uniform numbers, which has a Beta law, and
    the next above it the least of those that lie above."""
    count = len(ordered)
    middle = (count + 1) // 2
    lower = rng.beta(middle, count - middle + 1, _RESAMPLES)
    upper = lower if count % 2 else 1 - (1 - lower) * rng.random(_RESAMPLES) ** (1 / (count - middle))
    places = np.minimum(np.stack([lower, upper]) * count, count - 1).astype(np.int64)
    return np.asarray(ordered[places].mean(axis=0))


Function = Callable[[], object]
Clock = Callable[[], float]


class SelfTimed(Protocol):
    """A side that times itself: in another process, or on memory that is made fresh between calls."""

    def lasts(self, calls: int) -> float:
        """The seconds that so many calls take together."""


FASTER_ABOVE, SLOWER_BELOW = 1.02, 0.98  # of the whole interval
SAME_WITHIN = (0.95, 1.05)
FEWEST_PAIRS = 6  # with fewer, noise alone puts all on one side too often
_CHECKED_FROM = 20  # pairs: the first look at how narrow the interval is
_MOST_PAIRS = 4000
_MOST_CALLS = 1 << 20
# Far above the resolution and the cost of a clock, far below the time slices that a busy machine takes away.
_SAMPLE_S = 200e-6
_WINDOW_S = 25e-3
_LONG = 50  # times a sample: what takes so long need not be called again to see that it fills one
_AGREE = 0.05
_NARROW, _NARROW_IF_CLEAR, _CLEAR, _NARROW_IF_DECIDED = 0.02, 0.05, 0.10, 0.15


class Verdict(Enum):
    """The outcome of a comparison; AMBIGUOUS: the interval allows more than one answer."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True)
class Comparison:
    """Seconds per call of each side, pair by pair; each sample is the mean of `calls` calls.

    Statistics are of the ratio before / after within each pair; `seed` draws the bootstrap. From the pair `swapped_at`
    on, if there is one, the sides have changed places: half of how far the medians are apart is due to the places."""

    before_s: tuple[float, ...]
    after_s: tuple[float, ...]
    calls: int = 1
    seed: int = 0
    swapped_at: int = 0

    @property
    def pairs(self) -> int:
        return len(self.before_s)

    @property
    def before_median_s(self) -> float:
        return float(np.median(self.before_s))

    @property
    def after_median_s(self) -> float:
        return float(np.median(self.after_s))

    def quantiles_s(self, *shares: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Quantiles of the seconds per call, before and after: `quantiles_s(0.1, 0.9)` for p10 and p90."""
        before, after = (np.quantile(side, shares) for side in (self.before_s, self.after_s))
        return tuple(map(float, before)), tuple(map(float, after))

    @cached_property
    def ratios(self) -> np.ndarray:
        """before / after, f64[pairs]; NaN where the clock saw no time pass."""
        before, after = np.asarray(self.before_s), np.asarray(self.after_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where((before > 0) & (after > 0), before / after, np.nan)
        if 0 < self.swapped_at < len(ratios):
            first, second = ratios[: self.swapped_at], ratios[self.swapped_at :]
            place = math.sqrt(np.median(first) / np.median(second))  # how much slower the first place is, NaN allowed
            ratios = np.concatenate([first / place, second * place])
        return ratios

    @property
    def speedup(self) -> float:
        """The median ratio: 2 where `after` takes half the time."""
        return float(np.median(self.ratios))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % bootstrap interval of the median ratio, over pairs; NaN where a ratio is."""
        return interval_of_median(self.ratios, self.seed)

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    @property
    def verdict(self) -> Verdict:
        """FASTER and SLOWER where the whole interval is, SAME where it lies within 5 % of 1, else AMBIGUOUS."""
        if self.pairs < FEWEST_PAIRS:
            return Verdict.AMBIGUOUS
        if self.low > FASTER_ABOVE:
            return Verdict.FASTER
        if self.high < SLOWER_BELOW:
            return Verdict.SLOWER
        inside = SAME_WITHIN[0] <= self.low and self.high <= SAME_WITHIN[1]
        return Verdict.SAME if inside else Verdict.AMBIGUOUS

    @property
    def is_narrow(self) -> bool:
        """Whether more pairs would tell nothing new: the interval is 2 % wide, or 5 % where it is far from 1."""
        width = (self.high - self.low) / self.speedup
        clear = self.low > 1 + _CLEAR or self.high < 1 - _CLEAR
        return width <= (_NARROW_IF_CLEAR if clear else _NARROW)

    @property
    def is_decided(self) -> bool:
        """Whether more pairs would not change the verdict: the interval is narrow, or at most 15 % wide and farther
        from what would be another verdict than it is wide. For who wants the verdict, and not the ratio itself. Of half
        of a comparison that swaps places, what a place is worth is still in it: the whole may then be less sure, and no
        more."""
        width = self.high - self.low
        clear = max(self.low - FASTER_ABOVE, SLOWER_BELOW - self.high) > width
        return self.is_narrow or (clear and width <= _NARROW_IF_DECIDED * self.speedup)

    @property
    def is_nearly_same(self) -> bool:
        """Whether the sides differ by so little that noise alone does not keep them from being told apart."""
        return SAME_WITHIN[0] <= self.speedup <= SAME_WITHIN[1] and self.high - self.low < 2 * _CLEAR

    @property
    def advice(self) -> str:
        """Advice where the verdict is AMBIGUOUS, else nothing."""
        if self.verdict is not Verdict.AMBIGUOUS:
            return ""
        if self.pairs < FEWEST_PAIRS:
            return f"only {self.pairs} pairs were timed, and {FEWEST_PAIRS} are needed: give it more time"
        if math.isnan(self.low):
            return "the clock saw no time pass: time larger inputs"
        cause = "the two are nearly alike" if self.is_nearly_same else "the machine is too noisy"
        return f"{cause}, [{self.low:.2f}, {self.high:.2f}]: end other work on this machine, or give it more time"

    def __str__(self) -> str:
        times = f"{spell_s(self.before_median_s)} -> {spell_s(self.after_median_s)}"
        ratio = f"{self.verdict.value} {self.speedup:.2f}x [{self.low:.2f}, {self.high:.2f}]"
        return f"{ratio}, {times} ({self.pairs} pairs of {self.calls} calls)"


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds per call of several sides, round by round, each sample the mean of the side's `calls`. Slow sides may
    have been timed in the first rounds alone."""

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


Enough = Callable[[Comparison], bool]
NARROW: Enough = operator.attrgetter("is_narrow")
DECIDED: Enough = operator.attrgetter("is_decided")


def compare(
    before: Function | SelfTimed,
    after: Function | SelfTimed,
    *,
    budget_s: float = 1.0,
    seed: int = 0,
    fewest: int = FEWEST_PAIRS,
    enough: Enough = NARROW,
    warmed_s: tuple[float, float] = (0.0, 0.0),
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Time two callables, or two that time themselves, against each other until there is `enough`, by default a narrow
    interval, or `budget_s` is spent.

    The budget holds the warm-up, of at most a quarter; slow callables overrun it, since `fewest` pairs are always
    measured. `warmed_s`: what a call of each took just before; where the warm-up would be one more of each and no
    other, there is none. `clock` gives seconds. What a callable raises is not caught."""
    rounds = _Rounds(
        [_self_timed(before, clock), _self_timed(after, clock)], np.random.default_rng(seed), clock, alike=True
    )
    start_s = clock()
    with without_collections():
        if sum(warmed_s) < budget_s / 4 or min(warmed_s) < _LONG * _SAMPLE_S:
            rounds.settle(start_s + budget_s / 4, math.inf)
        rounds.measure(start_s + budget_s, seed, fewest, enough)
    return rounds.series(seed).comparison(0, 1)


def compare_all(
    sides: Sequence[Function | SelfTimed],
    *,
    budget_s: float = 1.0,
    seed: int = 0,
    sample_s: float = _SAMPLE_S,
    clock: Clock = time.perf_counter,
) -> Series:
    """As `compare`, of any number of sides, in rounds. A sample of each side has as many calls as fill `sample_s`; 0 is
    for sides that measure single calls.

    A side of which a call takes a twelfth of the budget or more is timed in the first rounds alone, as often as a
    verdict needs, and does not keep the others from being timed on."""
    rng = np.random.default_rng(seed)
    rounds = _Rounds([_self_timed(side, clock) for side in sides], rng, clock, alike=False, sample_s=sample_s)
    start_s = clock()
    with without_collections():
        rounds.settle(start_s + budget_s / 4, budget_s / (2 * FEWEST_PAIRS))
        rounds.measure(max(start_s + budget_s, clock()), seed, FEWEST_PAIRS, NARROW)
    return rounds.series(seed)


@dataclass(frozen=True, slots=True)
class _TimedCallable:
    """A callable of this process, called in a plain loop."""

    function: Function
    clock: Clock

    def lasts(self, calls: int) -> float:
        function, clock, rounds = self.function, self.clock, range(calls)
        start_s = clock()
        for _ in rounds:
            function()
        return clock() - start_s


def _self_timed(side: Function | SelfTimed, clock: Clock) -> SelfTimed:
    return _TimedCallable(side, clock) if callable(side) else side


class _Rounds:
    """The loop that warms up and measures: one and the same, so that nothing can be moved from one to the other.

    In a round each side is timed once, in an order drawn anew. `alike`: a sample of each side has as many calls as one
    of the fastest needs; else each has as many as it needs itself."""

    def __init__(
        self,
        sides: Sequence[SelfTimed],
        rng: np.random.Generator,
        clock: Clock,
        *,
        alike: bool,
        sample_s: float = _SAMPLE_S,
    ) -> None:
        self.sides, self.rng, self.clock, self.alike, self.sample_s = sides, rng, clock, alike, sample_s
        self.quick = list(range(len(sides)))  # sides that are timed in every round
        self.calls = [1] * len(sides)
        self.took_s: list[list[float]] = [[] for _ in sides]

    def settle(self, deadline_s: float, longest_s: float) -> None:
        """Call each until its times are steady, then forget them; `calls` is then what fills a sample. A side whose
        call takes longer than `longest_s` is not called again for that."""
        self.take(self.quick)
        self.quick = [side for side in self.quick if self.took_s[side][-1] <= longest_s]
        self.fill()
        windows: list[tuple[float, ...]] = []
        while self.quick and self.clock() < deadline_s and not _agree(windows[-3:]):
            windows.append(self.window())
        for samples in self.took_s:
            samples.clear()

    def fill(self) -> None:
        """Let the samples of each side have enough calls to be long."""
        growing = self.quick
        while growing:
            if min(self.took_s[side][-1] * self.calls[side] for side in growing) >= _LONG * self.sample_s:
                return
            self.take(growing)
            calls = {side: self.enough(side) for side in growing}
            if self.alike:
                calls = dict.fromkeys(growing, max(calls.values()))
            growing = [side for side in growing if calls[side] > self.calls[side]]
            for side in growing:
                self.calls[side] = calls[side]

    def enough(self, side: int) -> int:
        """The number of calls that makes a sample of a side long enough, by its last one."""
        calls = self.calls[side]
        took_s = self.took_s[side][-1] * calls
        if took_s >= self.sample_s:
            return calls
        more = math.ceil(calls * 1.2 * self.sample_s / took_s) if took_s > 0 else _MOST_CALLS
        return min(more, 8 * calls, _MOST_CALLS)

    def window(self) -> tuple[float, ...]:
        """The median seconds of each side over some rounds."""
        end_s, first = self.clock() + _WINDOW_S, [len(samples) for samples in self.took_s]
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
        """Whether there is enough of each side against the first of them."""
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
    """Whether three windows saw the same times, on each side."""
    sides = tuple(zip(*windows, strict=True))
    return len(windows) == 3 and all(max(side) <= (1 + _AGREE) * min(side) for side in sides)


def spell_s(time_s: float) -> str:
    """A time in the unit that suits it: `1.53 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if time_s >= size:
            return f"{time_s / size:.3g} {unit}" if time_s < 1000 * size else f"{time_s / size:.0f} {unit}"
    return f"{time_s / 1e-9:.3g} ns"


def compare_swapped(
    places: Callable[[bool], tuple[SelfTimed, SelfTimed]],
    *,
    budget_s: float = 1.0,
    seed: int = 0,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """As `compare`, for sides that are each in a place of their own: a process, whose memory and code lie so that all
    in it runs some percent slower or faster. `places(False)` gives both sides, `places(True)` both in each other's
    place; each half of the time goes to one of them."""
    first, second = (half(*places(swapped), budget_s=budget_s, seed=seed, clock=clock) for swapped in (False, True))
    return join_halves(first, second)


def half(
    before: SelfTimed,
    after: SelfTimed,
    *,
    budget_s: float,
    seed: int = 0,
    enough: Enough = NARROW,
    warmed_s: tuple[float, float] = (0.0, 0.0),
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Compare for half of `compare_swapped`: with the sides in one place each, in half of the time; the rest as in
    `compare`."""
    return compare(
        before,
        after,
        budget_s=budget_s / 2,
        seed=seed,
        fewest=FEWEST_PAIRS // 2,
        enough=enough,
        warmed_s=warmed_s,
        clock=clock,
    )


def join_halves(first: Comparison, second: Comparison) -> Comparison:
    """The comparison of two halves, the second with the places swapped."""
    before_s, after_s = first.before_s + second.before_s, first.after_s + second.after_s
    return Comparison(before_s, after_s, first.calls, first.seed, first.pairs)
