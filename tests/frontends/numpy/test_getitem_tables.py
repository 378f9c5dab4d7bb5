from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.getitem import ConstantArray, as_table
from noyau.ir.graph import Gather
from tests.frontends.numpy.traces import agrees, traced_only, x

CODES = np.arange(12, dtype=np.float32).reshape(4, 3)
PLACES = np.array([[2, 0], [1, 1]])


@pytest.mark.parametrize(
    "function",
    [
        lambda k: np.eye(5, dtype=np.float32)[k],
        lambda k: CODES[k] * 2,
        lambda k: CODES[:, k],
        lambda k: CODES[k, -1],
        lambda k: CODES[k, k[::-1]],
        lambda k: (CODES.T + 1)[k],
        lambda k: np.array([3, 4, 5])[k] + np.arange(4)[k],
        lambda k: np.linspace(0, 1, 4)[k],
        lambda k: CODES.take(k, axis=1),
        lambda k, codes=CODES: codes[k],
    ],
)
def test_traced_indices_look_into_arrays_of_known_numbers(function):
    made = agrees(function, PLACES)
    assert any(isinstance(node.kind, Gather) for node in made.nodes)


def test_an_array_of_known_numbers_is_multiplied_with_traced_ones():
    agrees(lambda a: CODES.dot(a) + CODES @ a, x(3, 2))


def test_arrays_of_known_numbers_are_read_and_written_as_they_are():
    def squares(a):
        made = np.arange(4.0)
        made[1:] = made[:-1] ** 2
        return a + made[[0, 2, 1, 3]] + made.take([0, 1, 2, 3]) + made.dot(made)

    agrees(squares, x(4))


def test_what_is_traced_is_not_written_among_known_numbers():
    def written(a):
        made = np.arange(3.0)
        made[0] = a[0]
        return made

    with pytest.raises(UnsupportedError, match="it writes what is traced into an array whose numbers are known"):
        traced_only(written, x(3))


def test_other_classes_of_arrays_stay_as_they_are():
    masked = np.ma.masked_array([1, 2], [True, False])
    assert as_table(masked) is masked
    made = as_table(CODES)
    assert isinstance(made, ConstantArray)
    assert np.shares_memory(made, CODES)
