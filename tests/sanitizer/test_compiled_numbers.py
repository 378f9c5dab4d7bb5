from __future__ import annotations

import math

import numpy as np
import pytest

from noyau.sanitizer.compiled_numbers import BUILTINS, MATH


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


def test_a_number_that_is_rounded_to_more_digits_than_it_has_stays():
    for number in (np.finfo(np.float32).max, np.finfo(np.float64).max, 1e300):
        assert BUILTINS["round"](number, 300) == number
    assert BUILTINS["round"](2.5) == 2 and BUILTINS["round"](np.float64(0.125), 2) == 0.12
    assert BUILTINS["round"](1234, -2) == 1200 and math.isnan(BUILTINS["round"](math.nan, 3))
