from __future__ import annotations

import functools
import math
import random
import time
from pathlib import Path

import numpy as np
import pytest
from numpy import arange, sqrt
from numpy.linalg import norm as length

import noyau
from noyau import functions
from noyau.errors import UnsupportedError
from noyau.functions import erf
from tests.frontends.numpy import scenery
from tests.frontends.numpy.traces import found, traced_only, x

WEIGHTS = np.array([0.5, 2.0, -1.0], np.float32)


def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


class Model:
    scale = 3.0

    def apply(self, a):
        return a * self.scale + np.zeros(a.shape[0], np.float32)


@noyau.op("f32[n] -> f32[n]")
def doubled(a):
    return a * 2


def test_functions_of_other_files_see_numpy_as_it_is_traced():
    made = found(scenery.softened, x(5))
    assert made.specialised == {}
    assert found(lambda a: scenery.cells(a) + scenery.TABLE.sum(), x(5)).specialised == {}


def test_names_and_aliases():
    assert found(lambda a: sqrt(abs(a)) + arange(a.shape[0]) + length(a), x(5)).specialised == {}


def test_arrays_around_are_constants():
    inner = np.arange(3.0)
    found(lambda a: a * WEIGHTS + inner, x(2, 3))


def test_helpers_closures_partials_methods_and_recursion():
    def power(a, k):
        return a if k == 0 else a * power(a, k - 1)

    tripled, apply = functools.partial(power, k=2), Model().apply

    def whole(a, *, helper=tripled):
        return helper(a) + factorial(3) + apply(a) * len(a)

    assert found(whole, x(5)).specialised == {}
    assert found(lambda a: Model().apply(a), x(5)).specialised == {"x0_0": 5}  # its methods see numpy itself


def test_ops_are_taken_apart():
    found(lambda a: doubled(a) + doubled(a + 1), x(5))


def test_functions_of_noyau():
    found(lambda a: erf(a) + functions.sigmoid(a) + functions.reduce("logsumexp", a, 0, keepdims=True), x(3, 4))
    found(lambda a: functions.cast(a, "f16") + functions.scan("sum", a, 1, exclusive=True), x(3, 4))
    found(lambda a, b: functions.truncate_divide(a, b + 20), x(5, dtype=np.int32), x(5, dtype=np.int32))
    found(lambda a: a * functions.erf(WEIGHTS), x(3))


def test_what_numba_compiles_is_traced_as_it_is_written():
    def plain(a):
        return a + np.ones(a.shape[0])

    compiled = functools.partial(plain)
    compiled.py_func = plain
    assert found(lambda a: compiled(a), x(5)).specialised == {}


def test_arrays_are_arrays():
    found(lambda a: a * (2 if isinstance(a, np.ndarray) else 3), x(5))
    found(lambda a: a * (2 if isinstance(a.sum(), np.ndarray) else 3), x(5))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: print(a) or a, "it prints, which would be done once, when it is traced; print what it returns"),
        (lambda a: a * len(input()), "it asks for input; give it as an argument"),
        (lambda a: a * len(open("x")), "it opens a file; read it outside"),  # noqa: SIM115
        (
            lambda a: a + np.random.default_rng().random(),
            "it draws random numbers; draw them outside, and give them as an argument",
        ),
        (lambda a: a + random.random(), "it draws random numbers"),
        (lambda a: a + time.time(), "it asks for the time, which would be asked once"),
        (lambda a: a + math.exp(a[0, 0]), "math.exp takes the number in an array; use np.exp"),
        (lambda a: a + np.ndarray(a.shape), "np.ndarray is not traced as a function; use np.zeros"),
        (lambda a: f"{a.sum():.2f}", "it puts the number in an array into a text"),
        (lambda a: functions.cast(a, "f7"), "there is no dtype 'f7'; the dtypes are: bool"),
        (lambda a: a if (a > 0).all() else -a, "it asks for the number in an array"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


def test_the_line_of_a_helper_is_named():
    with pytest.raises(UnsupportedError) as caught:
        traced_only(lambda a: scenery.sorted_ones(a), x(3))
    file = Path(scenery.__file__)
    line = file.read_text(encoding="utf-8").splitlines().index("    return xp.sort(values)") + 1
    assert f"at line {line} of {file}: np.sort is not among the functions that are traced: it sorts" in str(
        caught.value
    )


def test_a_list_of_arrays_is_an_array_to_a_ufunc():
    found(lambda a: np.minimum.reduce([a, 2 * a, a[::-1]]) + np.add.accumulate((a, a))[1], x(3))
    found(lambda a: np.exp([a, -a]) + np.add([a, a], 1) + np.linalg.norm([a, a], axis=(0, 1)), x(3))
