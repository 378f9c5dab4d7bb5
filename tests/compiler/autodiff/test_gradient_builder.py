from __future__ import annotations

import numpy as np

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Map, Select
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.autodiff.nodes import alone, given

X = given("x", ("n", "m"))


def writer() -> GradientBuilder:
    return GradientBuilder(alone(Map("exp"), [X], ("n", "m")))


def outcome(made: GradientBuilder, value, x):
    return evaluate(check(Graph(tuple(made.nodes), (value.output,))), {"x": x})[value.output]


def test_equal_values_are_one_also_with_those_of_the_graph():
    made = writer()
    assert made.call("exp", X).output == "y"
    assert made.call("negative", X) is made.call("negative", X)


def test_what_is_known_everywhere_is_calculated():
    made = writer()
    three = made.call("add", made.like(1.0, X), made.like(2.0, X))
    assert made.number_of(three) == 3
    assert made.number_of(made.cast(three, DType.F32)) == 3
    assert made.call("where", made.call("equal", three, three), X, three) is X


def test_names_are_new():
    made = writer()
    assert made.unused_name("y") != "y"
    assert len({made.unused_name("a_2"), made.unused_name("a"), made.unused_name("a"), made.unused_name("a_2")}) == 4


def test_pieces_of_nothing_are_left_out():
    made = writer()
    assert made.pad(X, 0, Dim.of(0), Dim.of("n")) is X
    longer = made.pad(X, 1, Dim.of(2), Dim.of("m") + 3)
    assert isinstance(longer.kind, Select)
    np.testing.assert_array_equal(outcome(made, longer, np.ones((1, 2))), [[0, 0, 1, 1, 0]])


def test_counts_of_sizes():
    made = writer()
    assert made.number_of(made.size(Dim.of(7), DType.F32, ())) == 7
    assert outcome(made, made.size(Dim.of("n") * 2, DType.F64, ()), np.ones((3, 1))) == 6


def test_sums_over_no_axes_are_the_value():
    made = writer()
    assert made.reduce("sum", X, []) is X
    np.testing.assert_array_equal(outcome(made, made.reduce("sum", X, [0]), np.ones((3, 2))), [3, 3])
