"""Comparisons of sides that are each in a place of their own, a process, half of the time in each other's."""

from __future__ import annotations

import time
from collections.abc import Callable

from noyau.timing.comparison import NARROW, compare
from noyau.timing.rounds import Enough
from noyau.timing.sides import Clock, SelfTimed
from noyau.timing.verdict import FEWEST_PAIRS, Comparison


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
