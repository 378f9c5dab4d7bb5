from __future__ import annotations

import math

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.ops.higher_order.closures import MATH
from noyau.ops.higher_order.ops import over_arrays

X = np.array([-2.5, -0.5, 0.0, 0.3, 0.9])
BELOW = 0.25


def damped(x):
    return math.exp(-abs(x)) * BELOW


def calls_another(x, scale=2.0, *, shift=1.0):
    return max(damped(x), 0.1) * scale + shift


def recursive(x, depth=2):
    return x if depth == 0 else recursive(x * x, depth - 1)


def test_math_and_python_s_functions_become_numpy_s():
    assert np.array_equal(over_arrays(damped, 1, "map")(X), np.exp(-np.abs(X)) * BELOW)
    made = over_arrays(calls_another, 1, "map")
    assert np.array_equal(made(X), np.maximum(np.exp(-np.abs(X)) * BELOW, 0.1) * 2 + 1)
    assert over_arrays(recursive, 1, "map")(X) == pytest.approx(X**4)


def test_the_function_of_the_user_stays_as_it_was():
    over_arrays(damped, 1, "map")
    assert damped(1.0) == math.exp(-1.0) * BELOW
    assert damped.__globals__["math"] is math


@pytest.mark.parametrize("name", sorted(MATH))
def test_each_function_of_math_means_the_same_over_arrays(name):
    function = getattr(math, name)
    two = name in ("atan2", "pow", "hypot", "copysign", "fmod")
    made = over_arrays((lambda x, y: function(x, y)) if two else (lambda x: function(x)), 2 if two else 1, "map")
    numbers = np.array([1.25, 1.5, 2.75] if name == "acosh" else [0.25, 0.5, 0.75])
    given = (numbers, numbers + 1) if two else (numbers,)
    want = [function(*each) for each in zip(*given, strict=True)]
    assert made(*given) == pytest.approx(np.array(want), rel=1e-14)
    assert made(*given).dtype == np.asarray(want).dtype


def test_constants_of_math_and_logarithms_with_a_base():
    assert np.array_equal(over_arrays(lambda x: x * math.pi, 1, "map")(X), X * math.pi)
    assert over_arrays(lambda x: math.log(x, 3), 1, "map")(np.array([9.0])) == pytest.approx([2.0])


def test_max_and_min_keep_nan():
    assert np.isnan(over_arrays(lambda x: max(0.0, x, -1.0), 1, "map")(np.array([math.nan])))
    assert np.isnan(over_arrays(lambda x: min(x, 1.0), 1, "map")(np.array([math.nan])))
    assert np.array_equal(over_arrays(max, 2, "zip")(X, -X), np.abs(X))


def test_a_function_of_math_without_a_counterpart():
    with pytest.raises(UnsupportedError, match=r"math.gamma is not traced; write it with functions of NumPy"):
        over_arrays(lambda x: math.gamma(x), 1, "map")(X)
    with pytest.raises(UnsupportedError, match=r"math.gamma is not traced"):
        over_arrays(math.gamma, 1, "map")
