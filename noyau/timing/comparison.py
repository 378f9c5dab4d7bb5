"""Callables timed side by side: rounds in shuffled order, every sample kept, and a verdict that may say "too noisy".

Other work on the machine makes times drift by more than most kernels gain: only the ratio within a pair is meaningful.
Sides in places of their own, that is processes, spend half of the time in each other's."""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from noyau.timing.rounds import LONG, SAMPLE_S, Enough, Rounds, Series
from noyau.timing.sides import Clock, SelfTimedSide, Side, self_timed
from noyau.timing.verdict import FEWEST_PAIRS, Comparison
from noyau.toolchain.garbage_collection import without_collections
from noyau.workers.tamper_detection import seconds

NARROW: Enough = operator.attrgetter("is_narrow")
DECIDED: Enough = operator.attrgetter("is_decided")
_ASKED: list[object] = []  # one list for the process, like the stubs while a script is checked


def is_narrow_or_lost(comparison: Comparison) -> bool:
    """Whether the ratio is known, or surely SLOWER, where its value does not matter."""
    return comparison.is_narrow or comparison.is_lost


def compare(
    before: Side,
    after: Side,
    *,
    budget_s: float = 1.0,
    seed: int = 0,
    fewest: int = FEWEST_PAIRS,
    enough: Enough = NARROW,
    warmed_s: tuple[float, float] = (0.0, 0.0),
    clock: Clock = seconds,
) -> Comparison:
    """Time two callables, or two that time themselves, until the comparison is `enough`, or `budget_s` is spent.

    The budget includes the warm-up, which takes at most a quarter; slow callables overrun it, since `fewest` pairs are
    always measured. `warmed_s`: the time of a call of each just before; if the warm-up would be only one more call of
    each, there is none. `clock` gives seconds. Exceptions of a callable are not caught."""
    sides = [self_timed(before, clock), self_timed(after, clock)]
    rounds = Rounds(sides, np.random.default_rng(seed), clock, alike=True)
    start_s = clock()
    with without_collections():
        if sum(warmed_s) < budget_s / 4 or min(warmed_s) < LONG * SAMPLE_S:
            rounds.settle(start_s + budget_s / 4, math.inf)
        rounds.measure(start_s + budget_s, seed, fewest, enough)
    return rounds.series(seed).comparison(0, 1)


def compare_all(
    sides: Sequence[Side], *, budget_s: float = 1.0, seed: int = 0, sample_s: float = SAMPLE_S, clock: Clock = seconds
) -> Series:
    """As `compare`, for any number of sides, in rounds. A sample of each side has as many calls as fill `sample_s`; 0
    is for sides that measure single calls.

    A side whose call takes a twelfth of the budget or more is timed only in the first rounds, as often as a verdict
    needs, while the others go on."""
    rng = np.random.default_rng(seed)
    rounds = Rounds([self_timed(side, clock) for side in sides], rng, clock, alike=False, sample_s=sample_s)
    start_s = clock()
    with without_collections():
        rounds.settle(start_s + budget_s / 4, budget_s / (2 * FEWEST_PAIRS))
        rounds.measure(max(start_s + budget_s, clock()), seed, FEWEST_PAIRS, NARROW)
    return rounds.series(seed)


def compare_swapped(
    places: Callable[[bool], Sequence[SelfTimedSide]], *, budget_s: float = 1.0, seed: int = 0, clock: Clock = seconds
) -> Comparison:
    """As `compare`, for sides in places of their own: processes, whose layout of memory and code makes all in them run
    some percent slower or faster. `places(False)` gives both sides, `places(True)` both in each other's place; each
    takes half of the time."""
    return join(half(*places(swapped), budget_s=budget_s, seed=seed, clock=clock) for swapped in (False, True))


def half(*sides: SelfTimedSide, budget_s: float, **options: Any) -> Comparison:
    """Run half of `compare_swapped`: each side in one place, half of the time; the rest as in `compare`."""
    return compare(*sides, budget_s=budget_s / 2, fewest=FEWEST_PAIRS // 2, **options)


def join(comparisons: Iterable[Comparison]) -> Comparison:
    """Join comparisons of several openings, in which the sides alternate between the places."""
    first, *_ = parts = list(comparisons)
    before_s = tuple(chain.from_iterable(part.before_s for part in parts))
    after_s = tuple(chain.from_iterable(part.after_s for part in parts))
    openings = tuple(chain.from_iterable(part.openings or (part.pairs,) for part in parts))
    return Comparison(before_s, after_s, first.calls, first.seed, openings)


@contextmanager
def briefly() -> Iterator[None]:
    """Let clocks that respect `allowed_s` take as few samples as they can within the block."""
    request = object()
    _ASKED.append(request)
    try:
        yield
    finally:
        _ASKED.remove(request)


def is_brief() -> bool:
    """Whether a `briefly` block is active."""
    return bool(_ASKED)


def allowed_s(budget_s: float) -> float:
    """The seconds of a budget that may be spent: none within `briefly`."""
    return 0.0 if is_brief() else budget_s
