from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import SignatureError, UnsupportedError
from noyau.ir.monoids import MONOIDS, STEPS
from noyau.ops.higher_order.ops import over_arrays, way_of

F32, I32, BOOL = (np.dtype(each) for each in ("f4", "i4", "?"))


@pytest.fixture(autouse=True)
def _no_folds_are_left():
    before = set(STEPS)
    yield
    for name in set(STEPS) - before:
        del MONOIDS[name], STEPS[name]


def way(function, start, dtype=F32):
    return way_of(over_arrays(function, 2, "reduce"), start, dtype, "it")


@pytest.mark.parametrize(
    ("function", "start", "monoid"),
    [
        (operator.add, 0.0, "sum"),
        (lambda state, x: x + state, 0, "sum"),
        (lambda state, x: state + x * x, 0.0, "sum"),
        (lambda state, x: math.exp(x) / 2 + state, 0.0, "sum"),
        (lambda state, x: state - x, 0.0, "sum"),
        (lambda maximum, minimum: maximum * minimum, 1.0, "prod"),
        (max, -math.inf, "max"),
        (lambda a, b: np.maximum(b, a), -math.inf, "max"),
        (lambda a, b: max(a, abs(b)), 0.0, "max"),
        (min, math.inf, "min"),
        (np.logaddexp, -math.inf, "logsumexp"),
        (lambda a, b: np.logaddexp(b, a), -math.inf, "logsumexp"),
    ],
)
def test_a_monoid_is_told_from_the_graph(function, start, monoid):
    found = way(function, start)
    assert (found.monoid, found.dtype) == (monoid, F32)


@pytest.mark.parametrize(("function", "start", "monoid"), [(np.logical_or, False, "any"), (operator.and_, True, "all")])
def test_bools(function, start, monoid):
    found = way(function, start, BOOL)
    assert (found.monoid, found.dtype) == (monoid, BOOL)


def test_or_of_numbers_has_a_bool_for_its_state():
    found = way(np.logical_or, False)
    assert (found.monoid, found.dtype) == ("any", BOOL)
    assert found.neutral is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda add, x: add * 0.5 + x,
        lambda state, x: x - state,
        lambda state, x: x / state,
        lambda state, x: state / x,
        lambda state, x: np.where(x > state, x, state),
        lambda state, x: state + state * x,
        lambda state, x: state,
        lambda state, x: x,
        math.hypot,
    ],
)
def test_anything_else_is_a_fold_in_order(function):
    assert MONOIDS[way(function, 1.0).monoid].ordered


def test_neither_name_nor_text_matter():
    def maximum(state, x):
        return state + x

    assert way(maximum, 0.0).monoid == "sum"


def test_what_is_joined_is_made_by_the_step_itself():
    assert way(operator.add, 0.0).neutral is None
    lifted = way(lambda state, x: state + x * x, 0.0)
    assert math.copysign(1, lifted.neutral) == -1  # -0.0 + y is y, for -0.0 too
    assert way(lambda state, x: state - x, 0.0).neutral == 0
    assert way(lambda state, x: min(state, abs(x)), 9).neutral == math.inf


def test_the_start_is_joined_where_it_is_not_neutral():
    assert not way(operator.add, 0).closes
    assert way(operator.add, 5).closes and way(operator.add, 5).join(5, 2) == 7
    assert way(max, 0.0).closes


@pytest.mark.parametrize(
    ("dtype", "start", "state"),
    [
        ("f4", 0.0, "f4"),
        ("f4", 0, "f4"),
        ("i4", 0, "i4"),
        ("i4", 0.0, "f8"),
        ("i4", -math.inf, "f8"),
        ("f2", 0.0, "f2"),
        ("f4", np.float64(0), "f8"),
        ("i1", 0, "i1"),
    ],
)
def test_the_dtype_of_the_state_is_numpy_s(dtype, start, state):
    function = operator.add if start == 0 else max
    assert way(function, start, np.dtype(dtype)).dtype == np.dtype(state)


def test_a_state_that_grows_settles():
    assert way(lambda state, x: state * 0.5 + x, 0, I32).dtype == np.dtype("f8")


def test_a_fold_of_halves_steps_in_float32():
    found = way(lambda state, x: state * 0.5 + x, 0.0, np.dtype("f2"))
    assert found.dtype == np.dtype("f2")
    assert {node.dtype for node in STEPS[found.monoid].nodes} == {DType.F32}


def test_a_state_that_never_settles():
    with pytest.raises(UnsupportedError, match=r"it: .*cast what the function gives"):
        way(lambda state, x: x > state, 0.0)


def test_dtypes_that_noyau_has_not():
    with pytest.raises((SignatureError, UnsupportedError), match="complex64"):
        way(operator.add, 0.0, np.dtype("c8"))
