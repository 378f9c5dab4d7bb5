"""FASTER at one binding and SLOWER at none."""

from __future__ import annotations

import pytest

from noyau.jobs.optimize.pipeline import KEEPS, BindingTiming, Candidate, decide, losing
from noyau.timing.verdict import Comparison, Verdict
from tests.jobs.optimize.test_pipeline_candidate_binding_timing import at

FASTER, SAME, SLOWER, AMBIGUOUS = Verdict.FASTER, Verdict.SAME, Verdict.SLOWER, Verdict.AMBIGUOUS
NOISY = Comparison((0.5, 2.0) * 5, (1.0,) * 10)


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


def test_what_is_faster_at_one_size_and_may_be_far_slower_at_another_is_not_kept():
    bad = Comparison((0.3, 0.4) * 4 + (3.0, 3.0), (1.0,) * 10)
    assert bad.verdict is AMBIGUOUS and bad.speedup < 0.5
    decision = decide(Candidate(None, timings=(BindingTiming({"n": 8}, bad), at(1, 2))), "faster")
    assert not decision.kept and decision.reason.startswith("AMBIGUOUS at n=8: 0.40x; the machine is too noisy")
    assert decide(Candidate(None, timings=(BindingTiming({}, bad), at(1, 2))), "not-slower").kept
    assert losing([BindingTiming({}, bad)]).hot is bad and losing([at(1, 2), at(1, 1)]) is None
