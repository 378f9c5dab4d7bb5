from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError, UnsupportedError
from noyau.ir.evaluation import evaluate
from tests.frontends.numpy.traces import agrees, traced, traced_only, x


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a[0], lambda a: a[-1, ..., 1], lambda a: a[:, None, 1:], lambda a: a[..., None],
        lambda a: a[..., :-1], lambda a: a[:, 1:-1], lambda a: a[::-1, ::2], lambda a: a[:, ::-2],
        lambda a: a[:, 3:0:-1], lambda a: a[1:2, 1:4:2, 0], lambda a: a[..., a.shape[-1] // 2 :],
        lambda a: a[..., : a.shape[-1] // 2], lambda a: a[..., -(a.shape[-1] // 2) :], lambda a: a[...],
        lambda a: a[np.int64(1)], lambda a: a[:, a.shape[1] - 1],
    ],
)  # fmt: skip
def test_slices(function):
    agrees(function, x(2, 5, 6))


def test_halves_that_turn():
    def rotate(a):
        half = a.shape[-1] // 2
        return np.concatenate([-a[..., half:], a[..., :half]], axis=-1)

    agrees(rotate, x(3, 8))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_arrays_of_indices(dtype):
    table, at = x(7, 4), np.array([[0, 6, 3], [2, 2, 1]]).astype(dtype)
    agrees(lambda a, k: a[k], table, at)
    agrees(lambda a, k: a[1:, k], table, at % 4)
    agrees(lambda a, k: np.take(a, k, axis=1) + a.take(k, axis=-1), table, at % 4)
    agrees(lambda a, k: np.take(a, k), table, at)
    agrees(lambda a: a[[0, -1]] + a[np.array([1, 1])], table)


def test_indices_below_0_count_from_the_end():
    agrees(lambda a, k: a[k], x(7, 4), np.array([-1, -7, 3]))


def test_indices_outside_are_refused():
    graph, _ = traced(lambda a, k: a[k], x(7, 4), np.array([1, 2, 3]))
    for at in ([1, 2, 7], [1, 2, -8]):
        with pytest.raises(InputError, match="outside"):
            evaluate(graph, {"x0": x(7, 4), "x1": np.array(at)})


def test_a_slice_beyond_its_axis_is_refused_when_it_runs():
    graph, _ = traced(lambda a: a[:, 1:3], x(2, 5))
    with pytest.raises(InputError, match="3 <= s5 does not hold where s2=2, s5=2"):
        evaluate(graph, {"x0": x(2, 2)})


def test_an_end_that_would_be_below_0_is_refused_when_it_runs():
    graph, _ = traced(lambda a: a[:, : a.shape[1] - a.shape[0]], x(2, 5))
    with pytest.raises(InputError, match="does not hold where s2=6, s5=5"):
        evaluate(graph, {"x0": x(6, 5)})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: a[a > 0], "what a mask of bools picks has an unknown shape; reduce it, write it back"),
        (lambda a: a[a], "an array of f32 is no index"),
        (lambda a: a[0, a[0] > 0], "a mask of bools beside other indices has a result of unknown shape"),
        (lambda a: a[0, 0, 0], "3 indices are given for an array of 2 axes"),
        (lambda a: a[..., ..., 0], "1 indices are given for an array of 2 axes"),
        (lambda a: a[:: a.shape[0]], "s2 is asked for its number, and it has none yet"),
        (lambda a: a["x"], "'x' is no index that is traced"),
        (lambda a: a[True], "True is no index that is traced"),
        (lambda a: a[1.5:], "an end of a slice is 1.5; it is an integer or a size"),
        (lambda a: np.take(a, [0], out=a), "np.take is traced without out="),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))
