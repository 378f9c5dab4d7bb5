"""Scalar functions of known numbers are done now, and get a name that no value of the model has."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.passes.cleanup import fold_constants
from noyau.compiler.passes.normal_form import normalise
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Input, Iota, Map, Reduce, constant
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.passes.cases import changed_bits
from tests.nodes import F16, F32, I8, I32, I64, U8, at, given, graph, value, view


def known(made, name):
    """The number that a value of a graph is, at any remove, or None."""
    node = made[name]
    while node.inputs:
        node = made[node.inputs[0]]
    return node.kind.value if isinstance(node.kind, Constant) else None


def scalar(name, number, dtype=F32):
    return constant(name, np.asarray(number).astype(dtype.numpy))


def test_maps_of_numbers_are_numbers():
    made = graph(
        "y",
        given("x", F32),
        scalar("a", 3.0),
        scalar("b", 4.0),
        value("c", Map("multiply"), "a b", F32),
        value("d", Map("sqrt"), "c", F32),
        value("y", Map("add"), "x d", F32),
    )
    found = fold_constants(made)
    assert known(found, found["y"].inputs[1]) == np.float32(np.sqrt(np.float32(12)))


def test_a_number_is_rounded_as_its_dtype_says():
    made = graph("y", scalar("a", 0.1, F16), scalar("b", 3.0, F16), value("y", Map("multiply"), "a b", F16))
    assert known(fold_constants(made), "y").item() == float(np.float16(0.1) * np.float16(3.0))


def test_views_of_a_number_and_fixed_indices_are_numbers():
    made = graph(
        "y",
        scalar("a", 7, I64),
        value("b", view(), "a", I64, 1, 1),
        value("i", Iota(Dim.of(5)), "", I64, 1, 1),
        value("y", Map("add"), "b i", I64, 1, 1),
    )
    assert known(fold_constants(made), "y").tolist() == [[12]]


def test_an_output_keeps_its_name():
    made = graph("y", scalar("a", 2.0), value("y", Map("exp"), "a", F32))
    assert evaluate(fold_constants(made), {})["y"] == np.exp(np.float32(2))


@pytest.mark.parametrize(
    "node",
    [
        value("y", Iota(at(0)), "", I64, 3),
        value("y", Iota(Dim.of("n")), "", I64),
        value("y", view(), "a", F32, 3),
    ],
    ids=["a range", "a size", "an expanded number"],
)
def test_what_is_more_than_one_number_stays(node):
    made = graph("y", given("x", F32, "n"), scalar("a", 2.0), node)
    assert fold_constants(made) == made


def test_what_was_folded_is_no_input_of_the_kernel():
    """Its value is made by an operator of the group, so there is nothing that the kernel could read."""
    made = graph(
        "y",
        given("x", F32, "n"),
        scalar("a", 0.3),
        value("r", Map("sqrt"), "a", F32),
        value("e", view(), "r", F32, "n"),
        value("y", Map("multiply"), "x e", F32, "n"),
    )
    assert [node.output for node in normalise(made).nodes if isinstance(node.kind, Input)] == ["x"]


@pytest.mark.parametrize(
    ("function", "operands", "dtype", "expected"),
    [
        ("multiply", (1 << 30, 4), I32, 0),
        ("add", (2147483647, 1), I32, -2147483648),
        ("subtract", (0, 1), U8, 255),
        ("negative", (-128,), I8, -128),
        ("power", (3, 21), I32, 1870418611),
        ("divide", (-7, 2), I32, -3),
        ("multiply", (-0.0, 3.0), F32, -0.0),
        ("add", (-0.0, -0.0), F32, -0.0),
        ("divide", (1.0, -0.0), F32, -np.inf),
        ("subtract", (np.inf, np.inf), F32, np.nan),
        ("maximum", (np.nan, 1.0), F32, np.nan),
        ("fmax", (np.nan, 1.0), F32, 1.0),
        ("multiply", (1e30, 1e30), F32, np.inf),
        ("multiply", (300.0, 300.0), F16, np.inf),
    ],
)
def test_numbers_wrap_overflow_and_keep_their_signs(function, operands, dtype, expected):
    nodes = [scalar(f"c{k}", operand, dtype) for k, operand in enumerate(operands)]
    names = " ".join(node.output for node in nodes)
    found = known(fold_constants(graph("y", *nodes, value("y", Map(function), names, dtype))), "y")
    assert found.dtype == dtype.numpy
    assert np.array_equal(found.astype(float), float(expected), equal_nan=True)
    assert np.isnan(expected) or np.signbit(found.astype(float)) == np.signbit(float(expected))


def test_a_cast_of_a_number_is_done_too():
    made = graph("y", scalar("a", 300.7), value("y", Map("cast"), "a", I32))
    assert known(fold_constants(made), "y").item() == 300


def test_arrays_and_reductions_of_numbers_stay():
    made = graph(
        "y z",
        constant("a", np.float32([2, 3])),
        value("y", Map("exp"), "a", F32, 2),
        value("z", Reduce("sum", (0,)), "a", F32),
    )
    assert fold_constants(made) == made


def test_random_graphs_compute_the_same_bits():
    assert changed_bits(fold_constants) == []
