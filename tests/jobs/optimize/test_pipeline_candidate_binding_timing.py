from __future__ import annotations

import pytest

from noyau.compiler.partition.traffic import Traffic
from noyau.jobs.optimize.pipeline import BindingTiming, decisive, overall
from noyau.timing.verdict import Comparison, Verdict
from tests.small_models import compared

FASTER, SAME, SLOWER, AMBIGUOUS = Verdict.FASTER, Verdict.SAME, Verdict.SLOWER, Verdict.AMBIGUOUS


def at(rows: int, ratio: float, cold: float | None = None) -> BindingTiming:
    return BindingTiming({"rows": rows}, compared(ratio), None if cold is None else compared(cold))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([FASTER], FASTER),
        ([FASTER, SAME, AMBIGUOUS], FASTER),
        ([FASTER, SLOWER], SLOWER),
        ([SAME, SAME], SAME),
        ([SAME, AMBIGUOUS], AMBIGUOUS),
        ([SAME, SLOWER], SLOWER),
        ([], AMBIGUOUS),
    ],
)
def test_one_verdict_of_several(found, verdict):
    assert overall(found) is verdict


@pytest.mark.parametrize(
    ("hot", "cold", "near"),
    [
        (0.96, None, True),
        (0.97, 1.5, True),
        (1.5, 0.96, True),
        (0.94, None, False),
        (0.97, 0.5, False),
        (0.99, 1, False),
    ],
)
def test_slower_by_little_is_borderline(hot, cold, near):
    assert at(1, hot, cold).is_borderline is near


@pytest.mark.parametrize(
    ("ratios", "unsure"),
    [
        ((0.98, 0.98), True),
        ((1.02, 1.02), True),
        ((1.04, 1.04), True),
        ((1.06, 1.06), False),
        ((0.94, 0.94), False),
        ((1.0,) * 6, False),
        ((0.98,) * 6, False),
        ((0.97, 0.97, 1.0, 1.0, 0.98, 0.98), True),
        ((0.98, 0.99, 1.02, 1.02, 1.02, 1.02), True),
        ((0.99, 1.0, 1.02, 1.02, 1.02, 1.02, 1.01, 1.0), False),
    ],
)
def test_near_the_speed_before_several_sessions_decide(ratios, unsure):
    """Two openings are unsure wherever a third one may say otherwise; six, where they do not agree."""
    pairs = tuple(ratio for ratio in ratios for _ in range(9))
    timing = BindingTiming({}, Comparison(pairs, (1.0,) * len(pairs), openings=(9,) * len(ratios)))
    assert timing.is_unsure is unsure


def test_cold_caches_count_as_much_as_hot_ones():
    slow = at(3, 2, cold=0.5)
    assert (slow.verdict, slow.comparison) == (SLOWER, slow.cold)
    assert str(slow) == "SLOWER at rows=3, with cold caches: 0.50x"
    assert at(3, 1, cold=2).verdict is FASTER
    fast = at(3, 2, cold=2)
    assert fast.comparison is fast.hot


def test_the_timing_that_decides():
    assert decisive([]) is None
    few, many = (BindingTiming({}, Comparison((s * 2.0,) * 10, (s,) * 10)) for s in (1.0, 5.0))
    assert decisive([few, many, at(1, 1)]) is many
    assert decisive([at(1, 0.9), at(2, 0.8), many]).sizes == {"rows": 2}


def test_the_floor_is_that_of_the_hot_runs():
    timing = BindingTiming({}, compared(2), None, Traffic(1, 1), floor_s=0.5)
    assert timing.floor_ratio == 0.5
    assert at(1, 2).floor_ratio is None
