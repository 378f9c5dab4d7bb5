"""First calls of contenders."""

from __future__ import annotations

import time

import numpy as np
import pytest

from noyau.errors import CheckError
from noyau.timing.sides import Contender, first_run
from tests.timing.test_sides_rotating_side import draws


def test_what_compiles_in_the_first_call_is_told_apart():
    first = [True]

    def late(x: np.ndarray) -> np.ndarray:
        if first:
            first.clear()
            time.sleep(0.2)
        return np.exp(x)

    assert first_run(Contender("b", late), draws()[0])[1] >= 0.2


def test_memory_that_is_taken_beside_the_outputs_is_told():
    def wasteful(x: np.ndarray) -> np.ndarray:
        return (np.zeros((100, x.size), x.dtype) + x)[0] * 1

    peaks = [first_run(Contender("it", each), draws()[0])[2] for each in (np.copy, wasteful)]
    assert peaks[1] > 50 * 2000 > peaks[0]


def test_what_a_candidate_raises_is_told_by_its_name():
    with pytest.raises(CheckError, match=r"b does not run on float32\[500\]: ZeroDivisionError"):
        first_run(Contender("b", lambda x: 1 / 0), draws()[0])
