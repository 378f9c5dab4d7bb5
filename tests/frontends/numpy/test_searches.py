"""Places among cells in order: searchsorted and what goes by it."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from tests.frontends.numpy.traces import found, x


def grown(count: int, dtype: object = np.float32) -> np.ndarray:
    return np.sort(x(count, dtype=dtype, seed=4))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 20])
def test_searchsorted(side, dtype, count):
    table = grown(count, dtype)
    asked = np.concatenate([x(3, 5, dtype=dtype).ravel(), table]).reshape(-1, 1)
    found(lambda a, v: np.searchsorted(a, v, side), table, asked)
    found(lambda v: np.searchsorted(table, v, side=side), asked)


def test_of_no_cells_and_of_missing_numbers():
    nan = np.float32(np.nan)
    found(lambda a, v: np.searchsorted(a[:0], v), grown(3), x(4))
    table, asked = np.array([1, 2, nan, nan], np.float32), np.array([0, 1, 5, nan], np.float32)
    for side in ("left", "right"):
        found(lambda a, v, side=side: a.searchsorted(v, side), table, asked)


def test_through_an_order():
    drawn = x(9)
    found(lambda a, k, v: np.searchsorted(a, v, sorter=k), drawn, np.argsort(drawn), x(3, 4))


def test_one_trace_serves_tables_of_as_many_bits():
    made = found(lambda a, v: np.searchsorted(a, v), grown(5), x(3, 4))
    assert not made.specialised


@pytest.mark.parametrize("bins", [[-1.0, 0.0, 0.5], [2.0, 0, 0, -1], [0.0], []])
@pytest.mark.parametrize("right", [False, True])
def test_digitize(bins, right):
    found(lambda a: np.digitize(a, bins, right), np.round(x(4, 5) * 2) / 2)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("ends", [{}, {"left": -9, "right": 9.5}])
def test_interp(count, ends):
    table, asked = np.unique(grown(count)), np.array([-9, -0.3, 0, 0.2, 9, np.nan, np.inf, -np.inf], np.float32)
    found(lambda v, a, b: np.interp(v, a, b, **ends), np.append(asked, table), table, x(len(table), seed=5))
    found(lambda v: np.interp(v, table, table**2), asked)


def test_interp_beside_infinities():
    table, values = np.array([0.0, 1, 2, 3]), np.array([np.inf, np.inf, 1, -np.inf])
    found(lambda v: np.interp(v, table, values), np.linspace(-1, 4, 21))


@pytest.mark.parametrize("known", [[1, 2], 0, [], [-3, 4, 4, 300], [0.5, 2.0]])
@pytest.mark.parametrize("dtype", ["i4", "u1", "f4"])
@pytest.mark.parametrize("invert", [False, True])
def test_isin(known, dtype, invert):
    found(lambda a: np.isin(a, known, invert=invert), x(3, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"bins": 4, "range": (-1, 1.5)},
        {"bins": [-2.0, -1, 0, 0, 0.5, 2]},
        {"bins": 3, "density": True},
    ],
    ids=str,
)
def test_histogram(dtype, said):
    found(lambda a: np.histogram(a, **said), x(7, 5, dtype=dtype))


@pytest.mark.parametrize("dtype", ["i8", "u1", "?"])
def test_bincount(dtype):
    numbers = np.abs(x(50) * 3).astype(dtype)
    found(lambda k: np.bincount(k, minlength=40), numbers)
    found(lambda k, w: np.bincount(k, w, minlength=len(w)), numbers, x(50))


def test_a_histogram_of_equal_cells_and_of_weights():
    found(lambda a: np.histogram(a, 3), np.full(5, 2.5, np.float32))
    found(lambda a, w: np.histogram(a, 3, weights=w), x(9), x(9, seed=2))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: np.digitize(a, a), "np.digitize is traced for known bins"),
        (lambda a: np.digitize(a, [0, 1, 0]), "bins must be monotonically increasing or decreasing"),
        (lambda a: np.interp(a, a, a, period=3), "np.interp is traced without period="),
        (lambda a: np.isin(a, a), "np.isin is traced for elements that are known"),
        (lambda a: np.bincount(a.astype(int)), "np.bincount is traced with minlength=, below which all numbers are"),
        (lambda a: np.bincount(a, minlength=3), "np.bincount takes a vector of whole numbers, not 1 axes of float32"),
        (lambda a: np.histogram(a, "auto")[0], "np.histogram is traced for a number of bins, or their edges"),
        (lambda a: np.searchsorted(a[None], a), "np.searchsorted looks into a vector"),
    ],
)
def test_what_is_refused(function, told):
    with pytest.raises(UnsupportedError, match="cannot be traced at line") as refusal:
        refused(function)
    assert told in str(refusal.value)


def refused(function) -> None:
    from noyau.dtypes import DType
    from noyau.frontends.numpy.trace import trace_shapes

    trace_shapes(function, {"a": (DType.F32, (4,))}, {})
