from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from tests.frontends.numpy.traces import agrees, found, traced_only, x


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "reflect", "symmetric"])
@pytest.mark.parametrize("width", [1, (2, 1), ((0, 2), (1, 0)), ((1,), (2,)), {0: 2, -1: (0, 1)}], ids=str)
def test_pads(mode, width):
    if isinstance(width, dict) and np.lib.NumpyVersion(np.__version__) < "2.2.0":
        pytest.skip("this NumPy does not take a dict")
    agrees(lambda a: np.pad(a, width, mode=mode), x(3, 4))


def test_nothing_has_no_edge():
    with pytest.raises(UnsupportedError, match="it needs 1 to be at most 0"):
        traced_only(lambda a: np.pad(a[:0], 1, mode="edge"), x(3, 4))


def test_pads_of_several_values():
    agrees(lambda a: np.pad(a, ((1, 2), (0, 1)), constant_values=((1, 2), (3, 4.5))), x(3, 4, dtype=np.int32))


def test_shifts_and_copies():
    for shift in (0, 1, -2, 7, -9):
        found(lambda a, by=shift: np.roll(a, by, axis=1) + np.roll(a, by), x(3, 4))
    agrees(lambda a: np.roll(a, (1, -1), axis=(0, 1)) + np.roll(a, a.shape[1] // 2, axis=1), x(3, 4))
    agrees(lambda a: np.tile(a, 2) + np.tile(a[0], (a.shape[0], 2)), x(3, 4))
    agrees(lambda a: np.repeat(a, a.shape[1]) * np.repeat(a, 4, axis=0).ravel(), x(3, 4))


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_shifts_of_nothing(shape):
    found(lambda a: (np.roll(a, 2), np.roll(a, -5, axis=0), np.roll(a, 1, axis=-1)), x(*shape))


def test_differences():
    agrees(lambda a: np.diff(a) + np.diff(a, axis=-1), x(3, 4))
    agrees(lambda a: np.diff(a, n=3, axis=0, append=a[:2], prepend=1), x(3, 4))
    agrees(lambda a: np.diff(a > 0), x(3, 4))


def test_parts():
    agrees(lambda a: tuple(np.split(a, [1, 3], axis=1)), x(3, 5))
    found(lambda a: tuple(np.array_split(a, 3)), x(7, 2))
    found(lambda a: tuple(np.split(a, 2)), x(4, 2))


def test_stacks_of_numbers_and_vectors():
    agrees(lambda a: np.stack([a[0, 0], a[1].sum(), 3.0]) + np.hstack([a[0, :2], 1]), x(3, 4))
    agrees(lambda a: np.vstack([a, a[0]]) - np.column_stack([a.T, a[0]]).T, x(3, 4))
    agrees(lambda a: np.append(a, 1) + np.concatenate([a, [[1, 2, 3, 4]]], axis=None)[:13], x(3, 4))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: np.stack([a, a[0]]), "np.stack takes arrays of one shape"),
        (lambda a: np.roll(a, 1, axis=()), "np.roll along no axis is refused by NumPy too"),
        (lambda a: np.repeat(a, a[0] > 0), "np.repeat is traced for numbers of repeats that are known, or sizes"),
        (lambda a: np.insert(a, [0, 1], 5), "np.insert is traced for one place; use np.concatenate"),
        (lambda a: np.roll(a, a[0, 0]), "np.roll is traced for shifts that are integers or sizes"),
        (lambda a: np.pad(a, 1, mode="linear_ramp"), "np.pad is traced with mode= one of constant, edge, reflect"),
        (lambda a: np.split(np.stack([a, a]), 3), "np.split makes no 3 equal parts of 2 cells; nor does NumPy"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.resize(a, (5, 3)),
        lambda a: np.resize(a, a.shape[0] * 2 + 1),
        lambda a: np.resize(a[:0], (2, 3)),
        lambda a: np.insert(a, 1, 7, axis=1),
        lambda a: np.insert(a, -1, a[0], axis=0),
        lambda a: np.insert(a, a.shape[0], 0.5),
        lambda a: np.delete(a, 1),
        lambda a: np.delete(a, -2, axis=1),
        lambda a: np.repeat(a, [1, 0, 2], axis=0),
        lambda a: np.repeat(a[0], (2, 1, 0, 3)),
        lambda a: np.pad(a, (1, 2), "mean"),
        lambda a: np.pad(a, ((0, 2), (1, 0)), "maximum"),
        lambda a: np.pad(a, 2, "minimum"),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_cells_put_in_and_taken_out(function, dtype):
    found(function, x(3, 4, dtype=dtype))
