from __future__ import annotations

import math

import numpy as np
import pytest

from noyau.timing.verdict import interval_of_median


@pytest.mark.parametrize("count", [31, 30, 7, 6])
def test_the_interval_is_that_of_resampling(count):
    drawn = np.random.default_rng(3).lognormal(0, 0.1, 31)[:count]
    picked = np.random.default_rng(4).integers(0, count, (4000, count))
    wanted = np.quantile(np.median(drawn[picked], axis=1), [0.025, 0.975])
    assert interval_of_median(drawn, 0) == pytest.approx(tuple(wanted), abs=0.02)


def test_what_holds_nan_has_no_interval():
    assert all(map(math.isnan, interval_of_median(np.array([1.0, math.nan]), 0)))
