from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.trace import trace_shapes
from tests.frontends.numpy.traces import agrees, dtype_of, found, newer, traced_only, x


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all"])
def test_cells_that_count(name, dtype):
    more = {"initial": 0} if name in ("max", "min") else {}
    array = x(3, 4, dtype=dtype) if name != "prod" else np.abs(x(3, 4)).astype(dtype)
    agrees(lambda a: getattr(np, name)(a, axis=1, where=a != 0, **more), array)
    agrees(lambda a: getattr(np, name)(a, where=a[0] != 0, keepdims=True, **more), array)


def test_where_results_begin_and_go():
    agrees(lambda a: np.sum(a, axis=0, initial=5) + np.prod(a, axis=0, initial=2.0), x(3, 4))
    agrees(lambda a: np.max(a, axis=0, initial=0.5) + a.min(1, initial=-0.5, keepdims=True), x(3, 4))

    def put(a):
        out = np.zeros(4)
        np.sum(a, 0, out=out)
        a.max(0, out=out)
        return out + np.add.reduce(a, out=np.empty(4, np.float32))

    agrees(put, x(3, 4))


def test_a_maximum_of_nothing_has_a_beginning():
    found(lambda a: np.max(a, axis=1, initial=-1.0), x(3, 0))
    found(lambda a: a.sum(1) + a.prod(1) + a.any(1), x(3, 0))
    empty = x(3, 0)
    with pytest.raises(UnsupportedError, match="it needs 1 to be at most"):
        trace_shapes(lambda a: a.max(1), {"a": (dtype_of(empty), empty.shape)}, {})


@newer("2.0.0")
def test_variances_about_a_mean():
    agrees(lambda a: a.var(1, ddof=1, mean=a.mean(1, keepdims=True)) + np.var(a, 1, correction=1), x(3, 4))


def test_variances():
    with np.errstate(all="ignore"):
        found(lambda a: a.var(1, ddof=3), x(3, 4))


@pytest.mark.filterwarnings("ignore")
def test_averages_of_nothing_are_nan_where_there_are_some():
    agrees(lambda a: np.average(a[:, :0], axis=1, returned=True), x(3, 4))
    assert found(lambda a: np.average(a, axis=1), x(3, 4)).graph.demands


def test_averages():
    agrees(lambda a, w: np.average(a, axis=0, weights=abs(w) + 1, returned=True), x(3, 4), x(3))
    agrees(lambda a: np.average(a, axis=1, returned=True), x(3, 4, dtype=np.int32))
    agrees(lambda a, w: np.average(a, weights=abs(w) + 1, keepdims=True), x(3, 4), x(3, 4, dtype=np.int8))


def test_counts_are_numbers_of_python_where_numpy_s_are():
    agrees(lambda a: a * np.count_nonzero(a > 0), x(3, 4, dtype=np.float64))
    agrees(lambda a: np.count_nonzero(a > 0, axis=0, keepdims=True), x(3, 4))


@newer("2.0.0")
def test_counts_are_weak():
    agrees(lambda a: a * np.count_nonzero(a > 0), x(3, 4, dtype=np.float16))


def test_places_and_running_results():
    agrees(lambda a: (a.argmax(keepdims=True), np.cumsum(a > 0, axis=0), np.cumprod(a, 1, dtype=np.float64)), x(3, 4))
    agrees(lambda a: (a.argmin(0), np.cumsum(a, axis=-1), np.repeat(a, 2, axis=0), np.squeeze(a, 0)), x())


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: a.sum((0, 0)), r"the axes \(0, 0\) name one twice"),
        (lambda a: a.sum(True), "the axis True is outside of 2 axes"),
        (lambda a: a.mean(dtype=np.int32), "np.mean is traced in floats, not in i32"),
        (lambda a: np.average(a[:, :0], 1, weights=a[:, :0]), "it needs 1 to be at most 0"),
        (lambda a: np.average(a[:, :0], axis=0), "it needs 1 to be at most 0"),
        (lambda a: np.average(a, weights=a[0]), "np.average takes weights of the array's shape, or along one axis"),
        (lambda a: np.cumsum(a, out=a), "it writes into the argument x0"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


def test_places_and_sums_at_the_edge():
    found(lambda a: (np.argmax(a, keepdims=True), np.argmin(a), np.ascontiguousarray(a)), x())
    found(lambda a: sum(a), x(4))
    found(lambda a: sum(a, np.float32(2)), x(0))


def into(a):
    sums, places, rows = np.zeros(a.shape), np.zeros(a.shape[1], int), np.zeros((2, a.shape[1]), a.dtype)
    np.cumsum(a, axis=0, out=sums)
    a.argmax(0, out=places)
    np.take(a, [1, 0], axis=0, out=rows)
    return sums, places, rows


@pytest.mark.parametrize(
    "function",
    [
        into,
        lambda a: np.logical_or.accumulate(a > 1, axis=1),
        lambda a: np.logical_and.accumulate(a),
        lambda a: np.logical_xor.reduce(a > 0, axis=1),
        lambda a: np.add.reduceat(a, [0, 2, 1], axis=1),
        lambda a: np.maximum.reduceat(a, [1, 1], axis=0),
        lambda a: np.logical_or.reduceat(a[0] > 1, [0, 2]),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "i4", "u1"])
def test_methods_of_ufuncs_and_results_in_arrays(function, dtype):
    found(function, x(3, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i2", "i4", "i8", "f2", "f4"])
def test_logaddexp_of_integers_is_computed_as_numpy_computes_it(dtype):
    found(lambda a: np.logaddexp.reduce(a, axis=1), x(3, 4, dtype=dtype))


@pytest.mark.parametrize("axis", [0, -1, None])
def test_of_no_axes(axis):
    found(lambda a: a[0].sum(axis) + a[1].max(axis) + np.take(a[2], 0, axis=axis), x(3))
