from __future__ import annotations

import pytest

from noyau.checking.findings import Finding
from noyau.checking.watched import Seen, counted, explained


def finding(kind, severity="error"):
    return Finding("op", "k", "c", kind, "k.c:3", "n = 1", "told", severity=severity)


def kinds(found, *watched):
    seen = Seen(findings={each.kind: each for each in watched})
    return [each.kind for each in explained([finding(kind) for kind in found], seen)]


@pytest.mark.parametrize(
    ("found", "watched", "told"),
    [
        (["wrong-value"], [], ["wrong-value"]),
        (["wrong-value", "gradient"], [finding("race")], ["race", "gradient"]),
        (["wrong-value"], [finding("negative-index", "warning")], ["negative-index", "wrong-value"]),
        (["crash"], [finding("out-of-bounds")], ["out-of-bounds"]),
        (["crash"], [finding("unwritten")], ["crash"]),
        (["crash"], [finding("crash")], ["crash"]),
        (["mutated-input"], [finding("unwritten")], ["unwritten", "mutated-input"]),
    ],
)
def test_what_is_watched_stands_in_place_of_what_comes_of_it(found, watched, told):
    assert kinds(found, *watched) == told


@pytest.mark.parametrize(("number", "told"), [(0, "0"), (9_999, "9999"), (43_210, "43 k"), (2_100_000, "2.1 M")])
def test_counts_are_short(number, told):
    assert counted(number) == told


@pytest.mark.parametrize(
    ("shapes", "accesses", "told"),
    [(1, 1, "on 1 shape, 1 access"), (1, 7, "on 1 shape, 7 accesses"), (3, 20_000, "on 3 shapes, 20 k accesses")],
)
def test_how_much_was_seen_is_told_in_words(shapes, accesses, told):
    assert Seen(accesses=accesses, shapes=["n = 1"] * shapes).lines == (f"no race found {told}",)


def test_a_kernel_that_touches_nothing_is_not_said_to_be_free_of_races():
    """A generated kernel in Numba that is a call of BLAS alone."""
    told = "it touches no cell itself on 2 shapes: what it calls is not watched"
    assert Seen(shapes=["n = 1", "n = 2"]).lines == (told,)
