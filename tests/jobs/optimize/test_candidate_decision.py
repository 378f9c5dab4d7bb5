"""FASTER at one binding and SLOWER at none."""

from __future__ import annotations

import pytest

from noyau.compiler.partition.costs import Traffic
from noyau.jobs.optimize.candidate import KEEPS, BindingTiming, Candidate, decide, decisive, overall
from noyau.timing.comparison import Comparison, Verdict
from tests.small_models import compared

FASTER, SAME, SLOWER, AMBIGUOUS = Verdict.FASTER, Verdict.SAME, Verdict.SLOWER, Verdict.AMBIGUOUS
NOISY = Comparison((0.5, 2.0) * 5, (1.0,) * 10)


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


def test_every_verdict_is_kept_or_not_by_every_wish():
    assert KEEPS["faster"] < KEEPS["not-slower"] < KEEPS["all"] == frozenset(Verdict)
    assert KEEPS["all"] - KEEPS["not-slower"] == {SLOWER}


@pytest.mark.parametrize(
    ("ratios", "keep", "kept", "reason"),
    [
        ((2,), "faster", True, ""),
        ((1, 2, 1), "faster", True, ""),
        ((2, 0.91, 3), "faster", False, "SLOWER at rows=1: 0.91x"),
        ((2, 0.91, 0.5), "not-slower", False, "SLOWER at rows=2: 0.50x"),
        ((1, 1), "faster", False, "SAME at rows=0: 1.00x"),
        ((1, 1), "not-slower", True, ""),
        ((0.5,), "all", True, ""),
        ((), "faster", False, "not timed"),
        ((), "all", True, "not timed"),
    ],
)
def test_what_is_kept_and_the_binding_that_it_does_not_win_at(ratios, keep, kept, reason):
    decision = decide(Candidate(None, timings=tuple(at(*each) for each in enumerate(ratios))), keep)
    assert (decision.kept, decision.reason) == (kept, reason)


def test_a_machine_too_noisy_to_judge_keeps_nothing_and_says_what_to_do():
    decision = decide(Candidate(None, timings=(BindingTiming({}, NOISY),)), "faster")
    assert not decision.kept
    assert decision.reason.startswith("AMBIGUOUS: 1.25x; the machine is too noisy, [0.50, 2.00]: end other work")
    assert decide(Candidate(None, timings=(BindingTiming({}, NOISY), at(1, 2))), "faster").kept


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
