"""Verdicts, and how they print."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.timing.verdict import FEWEST_PAIRS, Comparison, Verdict, latency_of, spell_s


@pytest.mark.parametrize(
    ("before_s", "verdict"),
    [
        ((1.0,) * 6, Verdict.SAME),
        ((1.03,) * 6, Verdict.FASTER),
        ((1.02,) * 6, Verdict.SAME),
        ((0.97,) * 6, Verdict.SLOWER),
        ((2.0,) * (FEWEST_PAIRS - 1), Verdict.AMBIGUOUS),
        ((1.0, 2.0) * 6, Verdict.AMBIGUOUS),
        ((0.9, 1.0, 1.1) * 2, Verdict.AMBIGUOUS),
        ((0.0,) * 6, Verdict.AMBIGUOUS),
        ((2.0,) * 11 + (0.0,), Verdict.AMBIGUOUS),
    ],
)
def test_the_verdict_follows_from_the_interval(before_s, verdict):
    assert Comparison(before_s, (1.0,) * len(before_s)).verdict is verdict


def test_it_prints_itself():
    found = Comparison((3e-3,) * 8, (2e-3,) * 8, calls=4)
    assert str(found) == "FASTER 1.50x [1.50, 1.50], 3 ms -> 2 ms (8 pairs of 4 calls)"


@pytest.mark.parametrize(
    ("time_s", "text"), [(2.5, "2.5 s"), (1234.0, "1234 s"), (0.0999, "99.9 ms"), (3.21e-5, "32.1 us"), (4e-9, "4 ns")]
)
def test_times_have_units_that_suit_them(time_s, text):
    assert spell_s(time_s) == text


def test_latencies_are_quantiles_and_calls_a_second():
    after = tuple(np.linspace(1e-3, 2e-3, 101))
    before, latency = Comparison((2e-3,) * 101, after, calls=3).latencies
    assert (before.p50_s, before.p99_s, before.calls_per_s) == pytest.approx((2e-3, 2e-3, 500.0))
    assert (latency.p50_s, latency.p90_s, latency.p99_s) == pytest.approx((1.5e-3, 1.9e-3, 1.99e-3))
    assert latency.calls == 3 and str(latency) == "p90 1.9 ms, p99 1.99 ms, 667 calls/s"
    assert np.isnan(latency_of([0.0]).calls_per_s)


def openings_of(*ratios: float, pairs: int = 100) -> Comparison:
    """A pair of sessions opened so often, in places that change, of which the first is 4 % slower; each opening has a
    ratio of its own, in all of its pairs."""
    placed = [ratio * (1 / 1.04 if at % 2 else 1.04) for at, ratio in enumerate(ratios)]
    before_s = tuple(ratio for ratio in placed for _ in range(pairs))
    return Comparison(before_s, (1.0,) * len(before_s), openings=(pairs,) * len(ratios))


def test_of_two_openings_the_pairs_count():
    found = openings_of(0.97, 0.97)
    assert (found.verdict, found.speedup, found.interval) == (
        Verdict.SLOWER,
        pytest.approx(0.97),
        pytest.approx((0.97, 0.97)),
    )


def test_of_several_openings_each_counts_once():
    """Many pairs tell how fast a session is, and nothing of the next one, which lies elsewhere in memory."""
    found = openings_of(0.96, 0.96, 1.0, 1.0, 1.02, 1.02)
    assert found.speedup == pytest.approx(1.0, abs=0.005)
    assert found.low < 0.98 and found.high > 1.01
    assert openings_of(1.04, 1.03, 1.05, 1.04, 1.03, 1.04).verdict is Verdict.FASTER
