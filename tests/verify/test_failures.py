"""Failures, in words."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import FindingKind
from noyau.verify.failures import Failure, extent_of


def test_numbers_that_differ_are_told_apart():
    told = str(Failure.of_cell("zeros", "x: f64[4]", "", "out", (0,), 0.1, 0.1 + 1e-12, 8.2e-13))
    assert "got 0.10000000000000001, want 0.10000000000100001 (float64)" in told


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.s_[:, 39:], "all of [:, 39:] is wrong"),
        (np.s_[-1], "all of [3, :] is wrong"),
        (np.s_[:, :1], "all of [:, 0] is wrong"),
        (np.s_[1:3, 5:9], "all of [1:3, 5:9] is wrong"),
        (np.s_[:, ::2], "84 of 164 cells are wrong, in [:, :]"),
    ],
)
def test_the_extent_of_what_is_wrong_in_words(mask, words):
    wrong = np.zeros((4, 41), bool)
    wrong[mask] = True
    assert extent_of(np.argwhere(wrong), wrong.shape) == words


def test_where_the_only_cell_is_wrong_nothing_more_is_said():
    assert extent_of(np.zeros((1, 0), np.int64), ()) == ""
    assert str(Failure(FindingKind.WRONG_VALUE, "as it is", "x: f32[2]", "", "out", (), 1, 2, 0.5)).endswith(
        "want 2 (float64), allowed 0.5"
    )
