"""Outputs that lie in the loops of another with axes merged, or in another order."""

from __future__ import annotations

import pytest

from noyau.compiler.lowering.loop_nest import merge_axes
from noyau.compiler.lowering.nest import lower
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Map, Reduce
from tests.compiler.lowering.test_nest import assert_agrees, loops_of, noise
from tests.nodes import F32, at, given, graph, value, view

AXES = [(Dim.of(f"i{extent}"), Dim.of(extent)) for extent in ("b", "h", "s")] + [(Dim.of("d"), Dim.of(8))]
B, H, S, D = (index for index, _ in AXES)
SIZE = {name: Dim.of(name) for name in "bhs"}


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        (("b", "h", "s", 8), (B, H, S, D)),
        ((SIZE["b"] * "h", "s", 8), (B * "h" + H, S, D)),
        (("b", 1, "h", SIZE["s"] * 8), (B, Dim.of(0), H, S * 8 + D)),
        (("b", "s", "h", 8), (B, S, H, D)),
        (("b", "s", SIZE["h"] * 8), (B, S, H * 8 + D)),
        (("s", SIZE["b"] * "h", 8), (S, B * "h" + H, D)),
    ],
)
def test_axes_may_be_merged_or_in_another_order(shape, index):
    assert merge_axes(shape_of(shape), AXES) == index


@pytest.mark.parametrize(
    "shape",
    [
        ("b", "h", 8, "s"),  # its innermost axis is another one
        ("b", "h", "s"),
        ("b", "h", "s", 4),
        ("b", "h", "s", 8, 2),
        ("b", "h", "t", 8),
        (SIZE["b"] * "s", "h", 8),  # they are no neighbours
    ],
)
def test_what_does_not_fit_is_none(shape):
    assert merge_axes(shape_of(shape), AXES) is None


def split_in_heads():
    """Two halves of a row: one in heads, the other as it was, and both from one kernel."""
    return graph(
        "q k",
        given("x", F32, "b", "s", 32),
        value("e", Map("exp"), "x", F32, "b", "s", 32),
        value("k", view(at(0), at(1), at(2) + 16), "e", F32, "b", "s", 16),
        value("q", view(at(0), at(2), at(1) * 8 + at(3)), "e", F32, "b", 2, "s", 8),
    )


def test_heads_and_rows_are_one_nest():
    made = split_in_heads()
    assert_agrees(made, x=noise(2, 3, 32))
    assert len([depth for depth, _ in loops_of(lower(made, "k")) if depth == 0]) == 1


def test_a_row_is_written_as_a_matrix_beside_the_residual():
    """As GPT-2 has it, whose products take matrices."""
    rows = Dim.of("b") * "s"
    made = graph(
        "y z",
        given("x", F32, "b", "s", 8),
        value("t", Reduce("max", (2,)), "x", F32, "b", "s"),
        value("w", view(at(0), at(1)), "t", F32, "b", "s", 8),
        value("y", Map("exp"), "x", F32, "b", "s", 8),
        value("d", Map("subtract"), "x w", F32, "b", "s", 8),
        value("z", view(at(0) // "s", at(0) % "s", at(1)), "d", F32, rows, 8),
    )
    assert_agrees(made, x=noise(2, 3, 8))


def test_an_output_that_lies_across_is_refused():
    made = graph(
        "y z",
        given("x", F32, "b", "s", 8),
        value("y", Map("exp"), "x", F32, "b", "s", 8),
        value("z", view(at(0), at(2), at(1)), "y", F32, "b", 8, "s"),
    )
    with pytest.raises(UnsupportedError, match="does not fit the loops"):
        lower(made, "k")
