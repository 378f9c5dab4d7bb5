"""The verdict of a comparison, from the ratios of its pairs and the bootstrap interval of their median."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from noyau.text import count_text

_RESAMPLES = 2000
_CONFIDENCE = 0.95


def interval_of_median(values: np.ndarray, seed: int) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median of f64[n]; NaN if a value is NaN."""
    if np.isnan(values).any():
        return math.nan, math.nan
    medians = _resampled_medians(np.sort(values), np.random.default_rng(seed))
    low, high = np.quantile(medians, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return float(low), float(high)


def _resampled_medians(ordered: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Medians of resamples of sorted values, f64[_RESAMPLES].

    No values are resampled: the median of n drawn positions is that of n uniform numbers, which has a Beta
    distribution, and the next one above it is the least of those above."""
    count = len(ordered)
    middle = (count + 1) // 2
    lower = rng.beta(middle, count - middle + 1, _RESAMPLES)
    upper = lower if count % 2 else 1 - (1 - lower) * rng.random(_RESAMPLES) ** (1 / (count - middle))
    return np.asarray(ordered[np.minimum(np.stack([lower, upper]) * count, count - 1).astype(np.int64)].mean(axis=0))


FASTER_ABOVE, SLOWER_BELOW = 1.02, 0.98  # bounds of the whole interval
SAME_WITHIN = (0.95, 1.05)
FEWEST_PAIRS = 6  # with fewer pairs, noise alone puts all on one side too often
_NARROW, _NARROW_IF_CLEAR, _CLEAR, _NARROW_IF_DECIDED, _NARROW_IF_NO_GAIN = 0.02, 0.05, 0.10, 0.15, 0.03


class Verdict(Enum):
    """The outcome of a comparison; AMBIGUOUS: the interval allows more than one answer."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True, slots=True)
class Latency:
    """The seconds per call at the quantiles 0.5, 0.9 and 0.99 of the samples, and the calls per second, in sequence. A
    sample is one call, or the mean of several `calls` if one is too short for the clock: then the high quantiles of
    single calls are unknown."""

    p50_s: float
    p90_s: float
    p99_s: float
    calls_per_s: float
    calls: int = 1

    def __str__(self) -> str:
        return f"p90 {spell_s(self.p90_s)}, p99 {spell_s(self.p99_s)}, {count_text(self.calls_per_s)} calls/s"


def latency_of(seconds: Sequence[float], calls: int = 1) -> Latency:
    """The latency of samples in seconds per call."""
    p50_s, p90_s, p99_s = map(float, np.quantile(seconds, (0.5, 0.9, 0.99)))
    mean_s = float(np.mean(seconds))
    return Latency(p50_s, p90_s, p99_s, 1 / mean_s if mean_s > 0 else math.nan, calls)


@dataclass(frozen=True)
class Comparison:
    """Seconds per call of each side, pair by pair; each sample is the mean of `calls` calls.

    Statistics are of the ratio before / after within each pair; `seed` draws the bootstrap. `openings`: the pairs of
    each opening of both sides, if there are several. The sides swap places from one to the next: half of the distance
    of the medians is due to the places. With more than two, statistics are of the medians of openings: one session,
    opened again, has another address and differs by some percent, however often it is called."""

    before_s: tuple[float, ...]
    after_s: tuple[float, ...]
    calls: int = 1
    seed: int = 0
    openings: tuple[int, ...] = ()

    @property
    def pairs(self) -> int:
        return len(self.before_s)

    @property
    def before_median_s(self) -> float:
        return float(np.median(self.before_s))

    @property
    def after_median_s(self) -> float:
        return float(np.median(self.after_s))

    @property
    def medians_s(self) -> tuple[float, float]:
        """The median before, and that divided by the median ratio: two times whose ratio is the speed-up. The medians
        of both sides may come from moments with different load."""
        return self.before_median_s, self.before_median_s / self.speedup

    def quantiles_s(self, *shares: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Quantiles of the seconds per call, before and after: `quantiles_s(0.1, 0.9)` for p10 and p90."""
        before, after = (np.quantile(side, shares) for side in (self.before_s, self.after_s))
        return tuple(map(float, before)), tuple(map(float, after))

    @property
    def latencies(self) -> tuple[Latency, Latency]:
        """The latency before and after."""
        return latency_of(self.before_s, self.calls), latency_of(self.after_s, self.calls)

    @cached_property
    def ratios(self) -> np.ndarray:
        """before / after, f64[pairs]; NaN where the clock saw no time pass."""
        before, after = np.asarray(self.before_s), np.asarray(self.after_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where((before > 0) & (after > 0), before / after, np.nan)
        if len(self.openings) < 2:
            return ratios
        parts = self._apart(ratios)
        first, second = (np.median([np.median(part) for part in parts[at::2]]) for at in (0, 1))
        place = math.sqrt(first / second)  # how much slower the first place is; may be NaN
        return np.concatenate([part * place if at % 2 else part / place for at, part in enumerate(parts)])

    def _apart(self, ratios: np.ndarray) -> list[np.ndarray]:
        return np.split(ratios, np.cumsum(self.openings)[:-1])

    @cached_property
    def _samples(self) -> np.ndarray:
        """The samples of the statistics, f64[pairs] or f64[openings]."""
        return self.ratios if len(self.openings) < 3 else np.array([np.median(p) for p in self._apart(self.ratios)])

    @property
    def speedup(self) -> float:
        """The median ratio: 2 where `after` takes half the time."""
        return float(np.median(self._samples))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % bootstrap interval of the median ratio, over pairs or openings; NaN if a ratio is NaN."""
        return interval_of_median(self._samples, self.seed)

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    @property
    def verdict(self) -> Verdict:
        """FASTER or SLOWER if the whole interval is, SAME if it lies within 5 % of 1, else AMBIGUOUS."""
        if self.pairs < FEWEST_PAIRS:
            return Verdict.AMBIGUOUS
        if self.low > FASTER_ABOVE:
            return Verdict.FASTER
        if self.high < SLOWER_BELOW:
            return Verdict.SLOWER
        return Verdict.SAME if SAME_WITHIN[0] <= self.low and self.high <= SAME_WITHIN[1] else Verdict.AMBIGUOUS

    @property
    def is_narrow(self) -> bool:
        """Whether more pairs would add nothing: the interval is at most 2 % wide, or 5 % if far from 1."""
        width = (self.high - self.low) / self.speedup
        clear = self.low > 1 + _CLEAR or self.high < 1 - _CLEAR
        return width <= (_NARROW_IF_CLEAR if clear else _NARROW)

    @property
    def is_decided(self) -> bool:
        """Whether more pairs would not change the consequences of the verdict: the interval is narrow, or at most 15 %
        wide and farther from another verdict than it is wide, or 3 % wide and as far from FASTER. For callers that need
        the verdict, not the ratio itself. Half of a comparison that swaps places still contains the bias of the places:
        the whole may be less certain, and nothing worse."""
        width = self.high - self.low
        clear = self.is_lost or (self.low - FASTER_ABOVE > width and width <= _NARROW_IF_DECIDED * self.speedup)
        no_gain = FASTER_ABOVE - self.high > width and width <= _NARROW_IF_NO_GAIN * self.speedup
        return self.is_narrow or clear or no_gain

    @property
    def is_lost(self) -> bool:
        """Whether it is surely SLOWER: an interval of at most 15 %, farther from any other verdict than it is wide."""
        width = self.high - self.low
        return SLOWER_BELOW - self.high > width and width <= _NARROW_IF_DECIDED * self.speedup

    @property
    def is_nearly_same(self) -> bool:
        """Whether the sides are so similar that noise alone does not explain that they cannot be distinguished."""
        return SAME_WITHIN[0] <= self.speedup <= SAME_WITHIN[1] and self.high - self.low < 2 * _CLEAR

    @property
    def advice(self) -> str:
        """Advice for an AMBIGUOUS verdict, else an empty text."""
        if self.verdict is not Verdict.AMBIGUOUS:
            return ""
        if self.pairs < FEWEST_PAIRS:
            return f"only {self.pairs} pairs were timed, and {FEWEST_PAIRS} are needed: give it more time"
        if math.isnan(self.low):
            return "the clock saw no time pass: time larger inputs"
        cause = "the two are nearly alike" if self.is_nearly_same else "the machine is too noisy"
        return f"{cause}, [{self.low:.2f}, {self.high:.2f}]: end other work on this machine, or give it more time"

    def __str__(self) -> str:
        ratio = f"{self.verdict.value} {self.speedup:.2f}x [{self.low:.2f}, {self.high:.2f}]"
        return f"{ratio}, {' -> '.join(map(spell_s, self.medians_s))} ({self.pairs} pairs of {self.calls} calls)"


def spell_s(time_s: float) -> str:
    """A time in a suitable unit: `1.53 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if time_s >= size:
            return f"{time_s / size:.3g} {unit}" if time_s < 1000 * size else f"{time_s / size:.0f} {unit}"
    return f"{time_s / 1e-9:.3g} ns"
