from __future__ import annotations

import numpy as np
import pytest

from noyau.jobs.check.diagnosis import spread

ONE = np.array([1.0, 2.0, 3.0], np.float32)


def test_what_is_alike_has_no_spread():
    assert spread([ONE], [ONE.copy()]) is None
    nan = np.array([np.nan], np.float32)
    assert spread([nan], [nan.copy()]) is None
    assert spread([], []) is None


def test_a_spread_is_in_ulp():
    other = ONE.copy()
    other[1] = np.nextafter(np.nextafter(other[1], np.float32(9)), np.float32(9))
    found = spread([ONE, ONE], [ONE, other])
    assert (found.differing, found.cells, found.output, found.cell, found.worst) == (1, 6, 1, (1,), 2.0)
    assert str(found) == "in 1 of 6 cells, by at most 2 ulp"


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (np.array([1, 5]), np.array([1, 9]), "in 1 of 2 cells, by at most 4 units"),
        (np.array([True]), np.array([False]), "in 1 of 1 cells, by at most 1 units"),
        (np.array([0.0, 1.0]), np.array([np.nan, 1.0]), "in 1 of 2 cells, one of them NaN or infinite"),
        (np.array([0.0]), np.array([-0.0]), "in 1 of 1 cells, by at most 0 ulp"),
    ],
)
def test_how_it_is_told(one, other, told):
    assert str(spread([one], [other])) == told
