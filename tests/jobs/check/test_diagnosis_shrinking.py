from __future__ import annotations

import pytest

from noyau.errors import FindingKind
from noyau.jobs.check.diagnosis import Smallest, shrink, tail_of
from noyau.verify.failures import Failure


def failing(wrong, kind=FindingKind.UNWRITTEN):
    """What fails where `wrong` says so of the sizes."""
    return lambda sizes: Failure(kind, "case", str(sizes), "never wrote 1 cells") if wrong(**sizes) else None


@pytest.mark.parametrize(
    ("wrong", "sizes"),
    [
        (lambda rows, n: n >= 33, {"rows": 0, "n": 33}),
        (lambda rows, n: n >= 33 and rows > 2, {"rows": 3, "n": 33}),
        (lambda rows, n: n > 1000, {"rows": 0, "n": 1001}),
        (lambda rows, n: True, {"rows": 0, "n": 0}),
    ],
)
def test_the_smallest_sizes_are_found(wrong, sizes):
    at = failing(wrong)
    first = {"rows": 50, "n": 5000}
    found = shrink(Smallest(at(first), first), at)
    assert found.sizes == sizes
    assert found.failure == at(sizes)


def test_another_kind_of_failure_is_not_taken_for_it():
    def at(sizes):
        return Failure(FindingKind.CRASH if sizes["n"] < 7 else FindingKind.UNWRITTEN, "case", "", "")

    assert shrink(Smallest(at({"n": 90}), {"n": 90}), at).sizes == {"n": 7}


def test_a_value_that_is_near_is_of_the_kind_of_one_that_is_not():
    def at(sizes):
        return Failure.of_cell("case", "", "", "out", (0,), 2.0 if sizes["n"] > 5 else 1.00001, 1.0, 1e-6)

    assert shrink(Smallest(at({"n": 90}), {"n": 90}), at).sizes == {"n": 0}


@pytest.mark.parametrize("block", [2, 3, 4, 8, 32, 256])
def test_a_wrong_tail_is_told(block):
    at = failing(lambda rows, n: n % block != 0)
    told = tail_of(Smallest(at({"rows": 1, "n": 1}), {"rows": 1, "n": 1}), at)
    assert told == ("" if block == 3 else f"only where n is no multiple of {block}")


@pytest.mark.parametrize("wrong", [lambda n: True, lambda n: n > 20, lambda n: n == 1, lambda n: n < 40])
def test_what_is_wrong_otherwise_is_no_tail(wrong):
    smallest = next(n for n in range(100) if n and wrong(n))
    at = failing(wrong)
    assert tail_of(Smallest(at({"n": smallest}), {"n": smallest}), at) == ""
