from __future__ import annotations

import math

import numpy as np
import pytest

from noyau.sanitizer.compiled_numbers import MATH


@pytest.mark.parametrize("name", ["sqrt", "log", "log2", "acos", "acosh", "asin"])
def test_what_is_not_defined_is_nan(name):
    with np.errstate(all="ignore"):
        assert math.isnan(getattr(MATH, name)(-5.0))


def test_what_is_too_large_is_infinite_and_the_rest_is_as_in_python():
    with np.errstate(all="ignore"):
        assert MATH.exp(1e4) == math.inf
        assert MATH.log(0.0) == -math.inf
    assert MATH.sqrt(4.0) == 2
    assert MATH.pi == math.pi
