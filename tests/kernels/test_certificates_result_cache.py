from __future__ import annotations

import datetime

import numpy as np
import pytest

from noyau.kernels import certificates
from noyau.kernels.certificates import (
    certificate_key,
    keep_late,
    keep_timing,
    recall_certificate,
    recall_late,
    recall_timing,
    timing_key,
    today,
)
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain import cache
from noyau.toolchain.cache import OLDEST_DAYS
from noyau.verify.certificate import Certificate
from tests.compiler.partition.test_costs import softmax

KEY = cache.digest("anything")
FOUND = Comparison((2.0, 3.0) * 4, (1.0, 1.5) * 4, 3, 7, (4, 4))


def test_a_comparison_comes_back_with_every_sample(empty_cache):
    assert recall_timing(KEY) is None
    keep_timing(KEY, FOUND)
    found = recall_timing(KEY)
    assert (found.comparison, found.timed_on) == (FOUND, today())
    assert found.comparison.verdict is FOUND.verdict


def test_what_was_ambiguous_is_no_answer_and_takes_the_place_of_an_older_one(empty_cache):
    keep_timing(KEY, FOUND)
    keep_timing(KEY, Comparison((0.5, 2.0) * 5, (1.0,) * 10))
    assert recall_timing(KEY) is None
    assert recall_timing(KEY, ambiguous=True).comparison.pairs == 10


def test_what_was_ambiguous_since_the_sides_are_nearly_the_same_is_an_answer(empty_cache):
    found = Comparison((1.0, 1.07) * 8, (1.0,) * 16)
    assert (found.verdict, found.is_nearly_same) == (Verdict.AMBIGUOUS, True)
    keep_timing(KEY, found)
    assert recall_timing(KEY).comparison == found


def test_what_would_take_too_long_does_so_for_as_short_a_time_and_for_a_month(empty_cache, monkeypatch):
    assert not recall_late(KEY, 5.0)
    keep_late(KEY, 5.0)
    assert recall_late(KEY, 4.0)
    assert not recall_late(KEY, 5.0) and not recall_late(KEY, 6.0)
    monkeypatch.setattr(cache, "today", lambda: "2100-01-01")
    assert not recall_late(KEY, 4.0)


@pytest.mark.parametrize(("days", "there"), [(0, True), (OLDEST_DAYS, True), (OLDEST_DAYS + 1, False)])
def test_an_old_one_is_forgotten(days, there, empty_cache, monkeypatch):
    keep_timing(KEY, FOUND)
    later = datetime.date.fromisoformat(today()) + datetime.timedelta(days)
    monkeypatch.setattr(cache, "today", later.isoformat)
    assert (recall_timing(KEY) is not None) is there


@pytest.mark.parametrize("told", [[], {}, {"timed_on": "x"}, {"timed_on": "2100-01-01", "comparison": {}}, "text", 3])
def test_what_is_no_record_is_none(told, empty_cache):
    cache.keep(KEY, told)
    assert recall_timing(KEY) is None and not recall_late(KEY, 1.0)
    certificate = Certificate("it", ())
    assert recall_certificate(KEY, "it", lambda: certificate) is certificate


def test_keys_differ_where_a_part_does():
    x = {"x": np.ones((2, 3), np.float32)}
    parts = [
        (("a", b"b"), x, 1),
        (("a", b"c"), x, 1),
        (("a", b"b"), {"y": x["x"]}, 1),
        (("a", b"b"), {"x": x["x"].T}, 1),
        (("a", b"b"), {"x": x["x"].astype(np.float64)}, 1),
        (("a", b"b"), x, 2),
    ]
    assert len({timing_key(*each) for each in parts}) == len(parts)
    assert timing_key(("a",), x, 1) == timing_key(("a",), {"x": x["x"] + 1}, 1)


def test_a_graph_is_told_in_full():
    one = certificate_key("library", softmax(), [], False, 0)
    assert one == certificate_key("library", softmax(), [], False, 0)
    assert one != certificate_key("other", softmax(), [], False, 0)
    other = type(softmax())(softmax().nodes, ("e",))
    assert one != certificate_key("library", other, [], False, 0)


def test_the_code_that_judges_is_a_part_of_the_key():
    assert certificates._code(("verify",)) != certificates._code(("ir",))
    assert len(list(certificates._files(certificates.files("noyau").joinpath("timing")))) > 10
