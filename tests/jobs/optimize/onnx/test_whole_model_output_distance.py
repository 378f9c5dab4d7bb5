from __future__ import annotations

import math

import numpy as np
import pytest

from noyau.jobs.optimize.onnx.whole_model import output_distance


class Drawn:
    """A run that writes what it is given, one after another, and the last again and again."""

    def __init__(self, *values: object) -> None:
        self.values, self.outputs = list(values), {}

    def __call__(self) -> None:
        self.outputs = {"y": np.asarray(self.values[0] if len(self.values) == 1 else self.values.pop(0))}

    def results(self) -> dict[str, np.ndarray]:
        return self.outputs


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([1.0, -2.0], [1.0, -2.0], 0.0),
        ([1.0, -4.0], [1.5, -4.0], 0.125),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.nan, 1.0], [1.0, np.nan], math.inf),
        ([np.inf, 1.0], [-np.inf, 1.0], math.inf),
        ([0.0, 0.0], [0.25, 0.0], 0.25),
        (np.array([1, 2]), np.array([1, 2]), 0.0),
        (np.array([1, 2]), np.array([1, 3]), math.inf),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0.0),
        (np.zeros(3), np.zeros(4), math.inf),
    ],
)
def test_how_far_outputs_are_apart(before, after, found):
    assert output_distance(Drawn(before), Drawn(after)) == found


def test_a_model_that_draws_numbers_is_apart_from_itself():
    assert output_distance(Drawn([1.0], [2.0]), Drawn([3.0])) is None
