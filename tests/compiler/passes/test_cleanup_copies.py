"""Outputs that are reshapes of each other are not written twice."""

from __future__ import annotations

import pytest

from noyau.compiler.passes.cleanup import judge_copies
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Map
from tests.nodes import F32, at, given, graph, value, view

N, FLAT = Dim.of("n"), at(0)


def both(other, *shape):
    """exp(x) of [n, 4, 6], and a view of it."""
    return graph(
        "y z",
        given("x", F32, "n", 4, 6),
        value("y", Map("exp"), "x", F32, "n", 4, 6),
        value("z", other, "y", F32, *shape),
    )


@pytest.mark.parametrize(
    ("other", "shape"),
    [
        (view(at(0), at(2), at(3)), ("n", 1, 4, 6)),
        (view(at(0), at(1) // 6, at(1) % 6), ("n", 24)),
        (view(at(0) // 24, (at(0) // 6) % 4, at(0) % 6), (N * 24,)),
    ],
)
def test_a_reshape_is_refused(other, shape):
    with pytest.raises(UnsupportedError, match="z would be written twice: it has the cells of y, in the same order"):
        judge_copies(both(other, *shape))


@pytest.mark.parametrize(
    ("other", "shape"),
    [
        (view(at(0), at(2), at(1)), ("n", 6, 4)),  # in another order
        (view(at(0), at(1), Dim.of(0)), ("n", 4)),  # a part of them
        (view(at(0), at(2), at(3)), ("n", 2, 4, 6)),  # more than once
        (view(at(0), at(1), at(2)), ("n", 4, 6)),  # equal values, which the model computes twice
    ],
)
def test_other_views_are_not(other, shape):
    judge_copies(both(other, *shape))


def test_views_of_one_input_are_compared():
    turned = view(at(0), at(2), at(1))
    made = graph(
        "y z",
        given("x", F32, "n", 4, 6),
        value("y", turned, "x", F32, "n", 6, 4),
        value("z", view(at(0), at(1) % 4, at(1) // 4), "x", F32, "n", 24),
    )
    with pytest.raises(UnsupportedError, match="z would be written twice"):
        judge_copies(made)
