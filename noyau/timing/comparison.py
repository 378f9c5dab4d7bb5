"""Callables timed side by side: rounds in shuffled order, every sample kept, and a verdict that may say "too noisy".

A machine that others use drifts by more than most kernels win: only the ratio within a pair means something.
Sides that are each in a place of their own, a process, are half of the time in each other's."""

from __future__ import annotations

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


def is_narrow_or_lost(comparison: Comparison) -> bool:
    """Whether its ratio is known, or it is surely SLOWER, where nobody asks by how much."""
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
    """Time two callables, or two that time themselves, until there is `enough`, or `budget_s` is spent.

    The budget holds the warm-up, of at most a quarter; slow callables overrun it, since `fewest` pairs are always
    measured. `warmed_s`: what a call of each took just before; where the warm-up would be one more of each and no
    other, there is none. `clock` gives seconds. What a callable raises is not caught."""
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
    """As `compare`, of any number of sides, in rounds. A sample of each side has as many calls as fill `sample_s`; 0 is
    for sides that measure single calls.

    A side of which a call takes a twelfth of the budget or more is timed in the first rounds alone, as often as a
    verdict needs, and does not keep the others from being timed on."""
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
    """As `compare`, for sides that are each in a place of their own: a process, whose memory and code lie so that all
    in it runs some percent slower or faster. `places(False)` gives both sides, `places(True)` both in each other's
    place; each half of the time goes to one of them."""
    return join(half(*places(swapped), budget_s=budget_s, seed=seed, clock=clock) for swapped in (False, True))


def half(*sides: SelfTimedSide, budget_s: float, **options: Any) -> Comparison:
    """Compare for half of `compare_swapped`: the sides in one place each, half of the time; the rest as `compare`."""
    return compare(*sides, budget_s=budget_s / 2, fewest=FEWEST_PAIRS // 2, **options)


def join(comparisons: Iterable[Comparison]) -> Comparison:
    """The comparison of all openings, the sides in each other's places from one to the next."""
    first, *_ = parts = list(comparisons)
    before_s = tuple(chain.from_iterable(part.before_s for part in parts))
    after_s = tuple(chain.from_iterable(part.after_s for part in parts))
    openings = tuple(chain.from_iterable(part.openings or (part.pairs,) for part in parts))
    return Comparison(before_s, after_s, first.calls, first.seed, openings)


_ASKED: list[object] = []  # of the whole process, as what stands in the place of something is while a script is checked


@contextmanager
def briefly() -> Iterator[None]:
    """Clocks that ask `allowed_s` have no time in the meantime: they take the fewest samples that they can do with."""
    request = object()
    _ASKED.append(request)
    try:
        yield
    finally:
        _ASKED.remove(request)


def is_brief() -> bool:
    """Whether somebody asks for that now."""
    return bool(_ASKED)


def allowed_s(budget_s: float) -> float:
    """The seconds of a budget that may be spent."""
    return 0.0 if is_brief() else budget_s
