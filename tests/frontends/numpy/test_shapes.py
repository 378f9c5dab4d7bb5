from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.trace import trace_shapes
from tests.frontends.numpy.traces import agrees, found, traced_only, x


def test_axes_move():
    agrees(lambda a: np.moveaxis(a, [0, -1], [1, 0]) + np.rollaxis(a, 2), x(2, 3, 4)[:, :2])
    agrees(lambda a: np.rollaxis(a, 0, 3) + np.rollaxis(a, -1, -3).T.T.transpose(1, 2, 0), x(2, 2, 2))


def test_turns_and_ranks():
    agrees(lambda a: tuple(np.rot90(a, k) for k in range(-1, 4)), x(2, 3))
    agrees(lambda a: np.rot90(a, 1, (1, 2)), x(2, 3, 4))
    agrees(lambda a: (np.atleast_3d(a), np.atleast_3d(a[0]), np.atleast_3d(a[0, 0]), *np.atleast_2d(a, a[0])), x(2, 3))


def test_diagonals():
    for offset in (-5, -1, 0, 2, 4):
        found(lambda a, by=offset: (np.diagonal(a, by), np.trace(a, by)), x(3, 4))
    found(lambda a: np.diagonal(a, 1, -1, 0) + np.trace(a, axis1=1, axis2=2)[:1], x(3, 2, 4))
    agrees(lambda a: (np.tril(a, -1), np.triu(a, 1), np.tril(a[0, 0])), x(2, 3, 4))


def test_broadcasts():
    agrees(lambda a, b: tuple(np.broadcast_arrays(a, b, 2.5)), x(2, 3), x(3))
    agrees(lambda a: np.broadcast_to(a, (4, *a.shape)) + np.broadcast_to(a[:, :1], a.shape), x(2, 3))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: np.reshape(a, a.sum()), "is no shape of integers and sizes"),
        (lambda a: np.moveaxis(a, [0, 1], [0]), "`source` and `destination` arguments must have the same number"),
        (lambda a: np.broadcast_to(a, (3,)), "np.broadcast_to of 2 axes cannot give fewer axes"),
        (lambda a: np.diagonal(a, 0, 1, 1), "np.diagonal takes two axes"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


@pytest.mark.parametrize("shape", [(3, 1), (1, 2), (0, 1), (1, 1)])
def test_axes_of_one_cell_are_dropped_where_they_are_of_one(shape):
    made = found(lambda a: np.squeeze(a[: a.shape[0]]), x(*shape))
    assert all(demand.relation == "at most" for demand in made.graph.demands)


def test_no_extent_stands_beside_none():
    found(lambda a: a.reshape(a.shape[0], -1), x(2, 0))
    with pytest.raises(UnsupportedError, match="it needs 1 to be at most"):  # NumPy refuses it too
        trace_shapes(lambda a: a.reshape(a.shape[0], -1), {"a": (DType.F32, (0, 3))}, {})
