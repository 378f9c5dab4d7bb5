"""Diagonals, pieces by conditions, the flat array, places as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from tests.frontends.numpy.traces import found, x


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize("dtype", ["f4", "i8", "?"])
def test_diag(k, dtype):
    found(lambda v: np.diag(v, k), x(4, dtype=dtype))
    found(lambda a: np.diag(a, k), x(3, 4, dtype=dtype))
    found(lambda a: np.diagflat(a, k), x(2, 2, dtype=dtype))


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 4)], ids=str)
def test_fill_diagonal(shape):
    def fill(a, v):
        one, other = a.copy(), a.copy()
        np.fill_diagonal(one, 7)
        np.fill_diagonal(other[:, ::-1], v)
        return one, other

    found(fill, x(*shape), x(6))
    found(fill, x(*shape, dtype=np.uint64) - np.uint64(3), x(6))  # large numbers, which no float has


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.piecewise(a, [a < 0, a >= 0], [-1, 1]),
        lambda a: np.piecewise(a, [a < 0, a > 1], [lambda v: -v, lambda v: v * 2, 9]),
        lambda a: np.piecewise(a[1], a[1] > 0, [lambda v: np.sqrt(v), 0]),
        lambda a: np.piecewise(a, [a > 0, a > 1], [lambda v, n: v + n, 3], 5),
        lambda a: np.piecewise(a, [a > 0], [lambda v: v - v.mean(), 0]),
        lambda a: np.piecewise(a[0, 0], [a[0, 0] > 0, a[0, 0] < 0], [lambda v: v, lambda v: -v]),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_piecewise(function, dtype):
    found(function, x(3, 4, dtype=dtype))


def through_flat(a):
    out = a * 2
    out.flat[1::3] = 7
    out.flat[[0, -1]] = 1
    out.T.flat[2] = -4
    np.put(out, [4, 5], [8, 9])
    out.put([3], 6)
    return out, out.flat[2:5], sum(out.flat)


def test_the_flat_array():
    found(through_flat, x(3, 4))


@pytest.mark.parametrize("order", ["C", "F"])
def test_places_as_numbers(order):
    k = np.array([[0, 5], [11, 23]])
    found(lambda i: np.unravel_index(i, (4, 6), order), k)
    found(lambda i, j: np.ravel_multi_index((i, j), (4, 6), order=order), k % 4, k % 6)
    found(lambda a, i: np.unravel_index(np.argmax(a), a.shape)[0] + i, x(4, 6), k)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: np.diag(a[None]), "np.diag takes a vector or a matrix"),
        (lambda a: np.fill_diagonal(a.copy(), 1, wrap=True), "np.fill_diagonal is traced for matrices, without wrap="),
        (lambda a: np.fill_diagonal(a, 1), "it writes into the argument a"),
        (lambda a: np.piecewise(a, [a > 0], [1, 2, 3]), "np.piecewise takes a function for each condition"),
        (lambda a: a.flat.__setitem__(0, 1), "it writes into the argument a"),
        (lambda a: np.put(a * 2, [0], 1, mode="clip"), "np.put is traced without mode="),
    ],
)
def test_what_is_refused(function, told):
    from noyau.dtypes import DType
    from noyau.frontends.numpy.trace import trace_shapes

    with pytest.raises(UnsupportedError, match="cannot be traced at line") as refusal:
        trace_shapes(function, {"a": (DType.F32, (4, 5))}, {})
    assert told in str(refusal.value)
