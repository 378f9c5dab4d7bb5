from __future__ import annotations

import numpy as np
import pytest

from noyau.jobs.bench.inputs import as_arguments, draw_by, usual_numbers, vary
from noyau.signatures.types import parse


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0),
        np.broadcast_to(np.arange(4.0), (3, 4)),
        np.broadcast_to(np.arange(3.0)[:, None], (3, 4)),
        np.arange(3.0)[:, None, None],
        np.array(2.0),
        np.zeros((0, 3)),
    ],
)
def test_an_argument_lies_in_memory_as_it_was_given(array):
    drawn = vary((array,), 0)
    (again,) = drawn.first
    np.testing.assert_array_equal(again, array)
    rotated = drawn.views.memory_as_given(tuple(each.copy() for each in drawn.draws[1]))[0]
    longer = [extent > 1 for extent in array.shape]
    assert [s for s, wide in zip(rotated.strides, longer, strict=True) if wide] == [
        s for s, wide in zip(array.strides, longer, strict=True) if wide
    ] or not array.size
    assert all(each.flags.c_contiguous for each in drawn.draws[0])


@pytest.mark.parametrize("array", [np.arange(12.0)[::2], np.arange(12.0)[::-1], np.zeros((4, 6))[:, :3]])
def test_gaps_are_left_out_and_that_is_said(array):
    drawn = vary((array,), 0)
    np.testing.assert_array_equal(drawn.first[0], array)
    assert drawn.notes[0] == "argument 0 is packed: arrays with gaps are timed without them"


def test_floats_of_a_user_are_varied_and_indices_are_not():
    drawn = vary((np.full(1000, 8.0, np.float32), np.arange(5), "word", 3.0), 0)
    first, second = drawn.draws[:2]
    assert np.all(first[0] == 8.0) and np.all(second[0] <= 8.0) and np.any(second[0] < 8.0)
    assert np.all(second[0] >= 7.8) and second[0].dtype == np.float32
    np.testing.assert_array_equal(first[1], second[1])
    assert drawn.views.arguments(second)[2:] == ("word", 3.0)
    assert drawn.notes == ()


def test_that_nothing_can_be_varied_is_said():
    assert "every call is given the same values" in vary((np.arange(5),), 0).notes[0]


def test_scalars_stay_what_they_are_in_all_draws():
    drawn = draw_by(lambda seed: (np.full(3, float(seed)), np.array(seed)))
    assert [int(draw[1]) for draw in drawn.draws] == [0, 0, 0]
    assert [float(draw[0][0]) for draw in drawn.draws] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "wanted", "sizes"),
    [
        ("f32[n] -> f32[n]", {}, {"n": 1 << 20}),
        ("f32[m, k], f32[k, n] -> f32[m, n]", {}, {"m": 1024, "k": 1024, "n": 1024}),
        ("f32[m, n] -> f32[m]", {"n": 7}, {"m": 1024, "n": 7}),
    ],
)
def test_the_largest_input_has_about_a_million_cells(text, wanted, sizes):
    assert usual_numbers(parse(text), {}, wanted) == sizes


class OfDlpack:
    """An array that says nothing of itself but how it is exchanged."""

    def __dlpack__(self, **_):
        return np.ones(3).__dlpack__()

    def __dlpack_device__(self):
        return np.ones(3).__dlpack_device__()


def test_an_array_of_any_package_is_the_only_argument():
    for array in (np.ones(3), np.float32(2), OfDlpack()):
        (given,) = as_arguments(array)
        assert given is array
