"""What is never below 0 is so in every cell, and the usual denominators are known to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.compiler.passes.algebra import is_natural
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Gather, Iota, Lookup, Map, Reduce, Select, constant
from noyau.ir.graph_interpreter import evaluate
from tests.nodes import BOOL, F16, F32, I32, I64, U8, at, given, graph, value, view
from tests.random_graphs import generate

X, N = given("x", F32, "n"), Dim.of("n")
SQUARE = value("q", Map("multiply"), "x x", F32, "n")


def natural(*nodes):
    made = graph(nodes[-1].output, *nodes)
    return is_natural(made.by_name, nodes[-1].output)


def mean_square(*more):
    return natural(
        X,
        SQUARE,
        value("s", Reduce("sum", (0,)), "q", F32),
        value("c", Iota(N), "", F32),
        value("m", Map("divide"), "s c", F32),
        *more,
    )


def test_a_mean_of_squares_with_an_epsilon_is():
    assert mean_square(constant("e", np.float32(1e-6)), value("y", Map("add"), "m e", F32))
    assert not mean_square(constant("e", np.float32(-1e-6)), value("y", Map("add"), "m e", F32))
    assert not mean_square(given("e", F32), value("y", Map("add"), "m e", F32))


@pytest.mark.parametrize("number", [0.0, 1e-45, 3.0, np.inf, np.nan, -0.0, -1e-45, -3.0, -np.inf])
def test_a_number_is_where_it_has_no_sign(number):
    expected = not np.signbit(number) or np.isnan(number)
    assert natural(constant("c", np.float32(number))) == expected
    assert natural(constant("c", np.float32([1, number]))) == expected


@pytest.mark.parametrize("function", ["abs", "exp", "exp2", "cosh", "sigmoid", "softplus"])
def test_functions_that_always_are(function):
    assert natural(X, value("y", Map(function), "x", F32, "n"))


@pytest.mark.parametrize("function", ["negative", "log", "tanh", "sqrt", "reciprocal", "identity", "rsqrt"])
def test_functions_of_anything_that_are_not(function):
    """The root of -0 is -0."""
    assert not natural(X, value("y", Map(function), "x", F32, "n"))


@pytest.mark.parametrize("function", ["sqrt", "rsqrt", "reciprocal", "identity", "cast"])
def test_functions_of_what_is(function):
    dtype = F16 if function == "cast" else F32
    assert natural(X, SQUARE, value("y", Map(function), "q", dtype, "n"))


@pytest.mark.parametrize("function", ["add", "multiply", "divide", "maximum", "minimum", "subtract", "power", "fmod"])
def test_functions_of_two(function):
    both = natural(X, SQUARE, value("y", Map(function), "q q", F32, "n"))
    one = natural(X, SQUARE, value("y", Map(function), "q x", F32, "n"))
    assert both == (function in ("add", "multiply", "divide", "maximum", "minimum"))
    assert not one


@pytest.mark.parametrize(("monoid", "expected"), [("sum", True), ("prod", True), ("max", False), ("logsumexp", False)])
def test_reductions(monoid, expected):
    """Of no cells the max is -inf."""
    assert natural(X, SQUARE, value("y", Reduce(monoid, (0,)), "q", F32)) == expected
    assert not natural(X, value("y", Reduce(monoid, (0,)), "x", F32))


def test_what_moves_cells_is_as_natural_as_they_are():
    assert natural(X, SQUARE, value("y", view(at(1)), "q", F32, 3, "n"))
    assert not natural(X, value("y", view(at(1)), "x", F32, 3, "n"))
    assert natural(X, SQUARE, value("y", Select(0, shape_of([0, "n"])), "q q", F32, N * 2))
    assert not natural(X, SQUARE, value("y", Select(0, shape_of([0, "n"])), "q x", F32, N * 2))
    rows = Gather((Lookup(1, (at(0),)),))
    assert natural(X, SQUARE, given("i", I64, 4), value("y", rows, "q i", F32, 4))
    assert not natural(X, given("i", I64, 4), value("y", rows, "x i", F32, 4))


def test_a_choice_is_where_both_are_whatever_chooses():
    assert natural(X, SQUARE, given("c", BOOL, "n"), value("y", Map("where"), "c q q", F32, "n"))
    assert not natural(X, SQUARE, given("c", BOOL, "n"), value("y", Map("where"), "c q x", F32, "n"))


def test_integers_may_wrap_and_those_without_a_sign_are():
    assert not natural(given("x", I32, "n"), value("y", Map("multiply"), "x x", I32, "n"))
    assert not natural(given("x", I32, "n"), value("y", Map("abs"), "x", I32, "n"))
    assert natural(given("x", U8, "n"))
    assert natural(given("x", BOOL, "n"))
    assert natural(given("x", U8, "n"), value("y", Map("cast"), "x", F32, "n"))


def test_indices():
    assert natural(value("i", Iota(at(0) * 2 + N), "", F32, "n"))
    assert not natural(value("i", Iota(at(0) - 1), "", F32, "n"))


def test_long_chains_are_no_deeper_than_short_ones():
    nodes = [X, replace(SQUARE, output="v0")]
    nodes += [value(f"v{k + 1}", Map("sqrt"), f"v{k}", F32, "n") for k in range(5000)]
    assert natural(*nodes)


def test_random_graphs_keep_what_is_said_of_them():
    told = 0
    for seed in range(200):
        case = generate(seed)
        names = [n.output for n in case.graph.nodes if n.dtype.is_float and is_natural(case.graph.by_name, n.output)]
        told += len(names)
        found = evaluate(replace(case.graph, outputs=tuple(names)), case.inputs, sizes=case.sizes)
        for name, array in found.items():
            wide = array.astype(np.float64)
            assert (np.isnan(wide) | ~np.signbit(wide)).all(), (seed, name)
    assert told > 100
