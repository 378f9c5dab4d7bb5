from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from tests.frontends.numpy.traces import found, traced_only, x


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_reductions_of_what_a_mask_picks(name, dtype):
    array = x(4, 5, dtype=dtype)
    found(lambda a: getattr(a[a != 0], name)(), array)
    found(lambda a: getattr(np, name)(a[a == a]), array)


def test_axes_numbers_and_functions():
    found(lambda a: a[a[:, 0] > 0].sum(axis=0), x(6, 3))
    found(lambda a: np.sqrt(a[a > 0] * 2 + 1).sum() / a[a > 0].size, x(4, 5))
    found(lambda a: a[a > 0].astype(np.float64).var(ddof=1), x(4, 5))
    found(lambda a: np.add.reduce(a[a > 0]), x(4, 5))
    found(lambda a, b: (a[a > 0] * b[a > 0]).mean(), x(4, 5), x(4, 5, seed=1))


def test_what_is_written_by_a_mask():
    def clipped(a, b):
        out = a.copy()
        out[out < 0] = 0
        out[a > 1] = b[a > 1] * 2
        out[b > 0] += 1
        out[a[:, 0] > 0] = b[0]
        out[b < 0] = np.log(np.abs(out[b < 0]) + 1)
        return out

    found(clipped, x(4, 5), x(4, 5, seed=1))


def test_known_masks_are_places():
    found(lambda a: a[np.array([True, False, True])] + a[[False, True, True]], x(3, 2))
    found(lambda a: a[:, np.arange(4) % 2 == 0], x(3, 4))


def other_mask(a):
    out = a.copy()
    out[a > 0] = a[a < 0]
    return out


def as_many(a):
    out = a.copy()
    out[a > 0] = np.arange(3)
    return out


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: a[a > 0], "what a mask of bools picks has an unknown shape; reduce it, write it back"),
        (lambda a: a[a > 0][0], "has an unknown shape"),
        (lambda a: len(a[a > 0]), "has an unknown shape"),
        (lambda a: np.cumsum(a[a > 0]), "has an unknown shape"),
        (lambda a: a[a > 0] + a[0], "has an unknown shape"),
        (lambda a: a[a > 0].argmax(), "has an unknown shape"),
        (lambda a: a[a > 0].sum(1), "np.sum of what a mask picks is traced over all cells, or over axis 0"),
        (lambda a: a[a > 0].sum(keepdims=True), "traced with axis=, dtype= and ddof="),
        (lambda a: a[0][a > 0], "a mask of 2 axes does not fit an array of 1"),
        (lambda a: a[a > 0].size // 2 + np.zeros(a[a > 0].size), "is no shape of integers and sizes"),
        (other_mask, "what one mask picks is written where another one is; use np.where"),
        (as_many, "as many values as a mask is true, which is only known when it runs; give one number"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))
