"""Bools and casts: each rule turns a spelling into its one form, NaN and what wraps or rounds left alone."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.passes.algebra import simplify_algebra
from noyau.ir.graph import Iota, Map, constant
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.passes.cases import functions, grid
from tests.nodes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, at, given, graph, value, view


def compared(function, dtype=F32, then=()):
    """x function v, as a bool, and functions of bools after it."""
    nodes = [given("x", dtype, "n"), given("v", dtype, "n"), value("y0", Map(function), "x v", BOOL, "n")]
    for k, name in enumerate(then):
        nodes.append(value(f"y{k + 1}", Map(name), f"y{k}", BOOL, "n"))
    return graph(nodes[-1].output, *nodes)


@pytest.mark.parametrize(
    ("function", "then", "dtype", "form"),
    [
        ("greater", [], F32, ["less"]),
        ("greater_equal", [], F32, ["less_equal"]),
        ("equal", ["logical_not"], F32, ["not_equal"]),
        ("not_equal", ["logical_not"], F32, ["equal"]),
        ("less", ["logical_not"], I32, ["less_equal"]),
        ("greater", ["logical_not"], I32, ["less_equal"]),
        ("greater_equal", ["logical_not"], I32, ["less"]),
        ("less", ["logical_not"], F32, ["less", "logical_not"]),  # of NaN neither is true
        ("greater", ["logical_not"], F32, ["less", "logical_not"]),
        ("equal", ["logical_not", "logical_not"], F32, ["equal"]),
        ("less", ["logical_not", "logical_not"], F32, ["less"]),
    ],
)
def test_comparisons_have_one_form(function, then, dtype, form):
    made = compared(function, dtype, then)
    found = check(simplify_algebra(made))
    assert functions(found) == form
    inputs = grid(F32) if dtype is F32 else {"x": np.int32([1, 2, 3, -1]), "v": np.int32([2, 2, 2, 7])}
    (one,), (other,) = evaluate(made, inputs).values(), evaluate(found, inputs).values()
    assert np.array_equal(one, other)


def test_what_is_chosen_by_the_opposite_is_turned():
    made = graph(
        "y",
        given("c", BOOL, "n"),
        given("x", F32, "n", "m"),
        value("o", Map("logical_not"), "c", BOOL, "n"),
        value("w", view(at(0)), "o", BOOL, "n", "m"),
        value("m", Map("exp"), "x", F32, "n", "m"),
        value("y", Map("where"), "w x m", F32, "n", "m"),
    )
    found = check(simplify_algebra(made))
    assert functions(found) == ["exp", "where"]
    assert found["y"].inputs[1:] == ("m", "x")
    inputs = {"c": np.array([True, False]), "x": np.float32([[1, 2], [3, 4]])}
    assert np.array_equal(evaluate(made, inputs)["y"], evaluate(found, inputs)["y"])


def cast_twice(first, second, third):
    return graph(
        "y",
        given("x", first, "n"),
        value("a", Map("cast"), "x", second, "n"),
        value("b", Map("cast"), "a", third, "n"),
        value("y", Map("maximum"), "b b", third, "n"),
    )


def samples(dtype):
    """Numbers that a dtype holds, and that dtypes with fewer bits do not."""
    some = [0, 1, 2, 100, -3, -100, 1 << 15, (1 << 24) + 1, (1 << 53) + 1, 1 << 62]
    if dtype.is_float:
        return np.array([*some[:6], 0.3, 1e-3, 3e4], np.float64).astype(dtype.numpy)
    low, high = (0, 1) if dtype is BOOL else (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
    return np.array([x for x in some if low <= x <= high]).astype(dtype.numpy)


@pytest.mark.parametrize(
    ("dtypes", "count"),
    [
        ((F16, F32, F16), 0),
        ((BF16, F32, F64), 1),
        ((F32, F64, F32), 0),
        ((I8, I32, F32), 1),
        ((BOOL, I64, F32), 1),
        ((BOOL, F16, BOOL), 0),
        ((U8, I32, U8), 0),
        ((I32, F64, F32), 1),
        ((F32, F16, F32), 2),  # rounds
        ((F64, F32, F64), 2),
        ((F16, BF16, F32), 2),
        ((I64, F64, I64), 2),  # beyond 2 ** 53
        ((I32, F32, I32), 2),
        ((I64, I32, I64), 2),  # wraps
        ((I8, U8, I32), 2),
        ((I32, BOOL, I32), 2),
    ],
    ids=lambda dtypes: " ".join(dtype.value for dtype in dtypes) if isinstance(dtypes, tuple) else "",
)
def test_a_cast_on_the_way_goes_where_it_loses_nothing(dtypes, count):
    made = cast_twice(*dtypes)
    found = check(simplify_algebra(made))
    assert functions(found).count("cast") == count
    x = samples(dtypes[0])
    with np.errstate(all="ignore"):
        one, other = evaluate(made, {"x": x})["y"], evaluate(found, {"x": x})["y"]
    assert np.array_equal(one.astype(float), other.astype(float), equal_nan=True)


def test_an_index_as_another_dtype_is_an_index_of_that_dtype():
    made = graph("y", value("i", Iota(at(0) * 3), "", I64, 5), value("y", Map("cast"), "i", F32, 5))
    found = check(simplify_algebra(made))
    assert found["y"].kind == Iota(at(0) * 3)
    assert evaluate(found, {})["y"].tolist() == [0, 3, 6, 9, 12]
    other = graph("y", value("i", Iota(at(0)), "", U8, 300), value("y", Map("cast"), "i", F32, 300))
    assert simplify_algebra(other) == other  # it has wrapped


@pytest.mark.parametrize(("function", "neutral"), [("logical_and", True), ("logical_or", False)])
@pytest.mark.parametrize("operands", ["a c", "c a"])
def test_neutral_bools_go(function, neutral, operands):
    nodes = [
        given("x", BOOL, "n"),
        value("a", Map("logical_not"), "x", BOOL, "n"),
        constant("t", np.array(neutral)),
        value("c", view(), "t", BOOL, "n"),
    ]
    made = graph("y", *nodes, value("y", Map(function), operands, BOOL, "n"))
    assert functions(check(simplify_algebra(made))) == ["logical_not"]
    other = graph("y", *nodes, value("y", Map("logical_xor"), operands, BOOL, "n"))
    assert functions(simplify_algebra(other)) == ["logical_not", "logical_xor"]
