from __future__ import annotations

import pytest

from noyau.jobs.bench.record import FILLING, RETURNING, CandidateTimes
from noyau.timing.verdict import Verdict
from tests.jobs.bench.samples import at


def test_the_fastest_as_users_call_it_is_the_best():
    found = at({("a", RETURNING): 2.0, ("b", RETURNING): 1.0, ("a", FILLING): 0.5})
    assert [row.name for row in found.ranked] == ["b", "a"]
    assert found.best == "b"
    assert found.least_s("a") == 0.5
    assert found.comparison("b").speedup == 2.0


def test_what_is_out_has_no_rank_and_is_not_compared_with():
    rows = (CandidateTimes("a", fault="wrong"), CandidateTimes("c", skipped="no GPU"), CandidateTimes("b"))
    found = at({("b", RETURNING): 1.0}, *rows)
    assert found.against == found.best == "b"
    assert [row.out for row in rows] == ["wrong", "no GPU", ""]


def test_nothing_is_ranked_where_nothing_is_right():
    found = at({}, CandidateTimes("a", fault="wrong"))
    assert found.ranked == () and found.against == found.best == ""


@pytest.mark.parametrize(("hot", "cold", "verdict"), [(1.0, 0.5, Verdict.FASTER), (0.5, 1.0, Verdict.SAME)])
def test_the_cold_verdict_goes_before_the_hot_one(hot, cold, verdict):
    found = at({("a", RETURNING): 1.0, ("b", RETURNING): hot}, cold={"a": 1.0, "b": cold})
    assert found.verdict("b") is verdict


def test_a_kernel_is_titled_with_its_language():
    assert CandidateTimes("by_rows", "c").title == "by_rows [c]"
    assert CandidateTimes("generated c", "c").title == "generated c"
    assert CandidateTimes("reference").title == "reference"
