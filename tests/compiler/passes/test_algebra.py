"""Each rule turns a spelling into its one form, and on special numbers nothing new overflows or comes out as NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.compiler.passes.algebra import simplify_algebra
from noyau.ir.graph import Constant, Input, Map, View, constant
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.passes.cases import changed_results, functions, grid, spelt
from tests.nodes import BF16, F16, F32, F64, I32, at, given, graph, value, view

FLOATS = (F32, F64, F16, BF16)


RULES = {
    "x / sqrt(v)": (["r sqrt v", "y divide x r"], ["rsqrt", "multiply"]),
    "x * (1 / sqrt(v))": (["r sqrt v", "i reciprocal r", "y multiply x i"], ["rsqrt", "multiply"]),
    "(1 / sqrt(v)) * x": (["r sqrt v", "i divide 1 r", "y multiply i x"], ["rsqrt", "multiply"]),
    "1 / sqrt(v)": (["r sqrt v", "y divide 1 r"], ["rsqrt"]),
    "1 / x": (["y divide 1 x"], ["reciprocal"]),
    "x / 1": (["a negative x", "y divide a 1"], ["negative"]),
    "x * 1": (["a negative x", "y multiply a 1"], ["negative"]),
    "1 * x": (["a negative x", "y multiply 1 a"], ["negative"]),
    "x - 0": (["a negative x", "y subtract a 0"], ["negative"]),
    "x ** 1": (["a negative x", "y power a 1"], ["negative"]),
    "x ** 2": (["y power x 2"], ["multiply"]),
    "x ** 3": (["y power x 3"], ["multiply", "multiply"]),
    "x ** 4": (["y power x 4"], ["multiply", "multiply"]),
    "x ** -1": (["y power x -1"], ["reciprocal"]),
    "x + -0": (["a negative x", "y add a -0.0"], ["negative"]),
    "-0 + x": (["a negative x", "y add -0.0 a"], ["negative"]),
    "x / 8": (["y divide x 8"], ["multiply"]),
    "x / -0.25": (["y divide x -0.25"], ["multiply"]),
    "x * -1": (["y multiply x -1"], ["negative"]),
    "-1 * x": (["y multiply -1 x"], ["negative"]),
    "x + -v": (["n negative v", "y add x n"], ["subtract"]),
    "-v + x": (["n negative v", "y add n x"], ["subtract"]),
    "x - -v": (["n negative v", "y subtract x n"], ["add"]),
    "- -x": (["n negative x", "m negative n", "y abs m"], ["abs"]),
    "v^2 ** 0.5": (["q multiply v v", "y power q 0.5"], ["multiply", "sqrt"]),
    "v^2 ** 1.5": (["q multiply v v", "y power q 1.5"], ["multiply", "sqrt", "multiply"]),
    "v^2 ** -0.5": (["q multiply v v", "y power q -0.5"], ["multiply", "rsqrt"]),
    "x * v^2 ** -0.5": (["q multiply v v", "p power q -0.5", "y multiply x p"], ["multiply", "rsqrt", "multiply"]),
    "x / v^2 ** 0.5": (["q multiply v v", "p power q 0.5", "y divide x p"], ["multiply", "rsqrt", "multiply"]),
    "an idle cast": (["a negative x", "y cast a"], ["negative"]),
    "identity": (["a negative x", "y identity a"], ["negative"]),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule(rule, dtype):
    steps, form = RULES[rule]
    made, inputs = spelt(dtype, *steps), grid(dtype)
    found = check(simplify_algebra(made))
    assert functions(found) == form
    assert_alike(evaluate(made, inputs)["y"], evaluate(found, inputs)["y"])


def assert_alike(before, after):
    """NaN, infinities and the signs of zeros are the same; other numbers differ by rounding."""
    one, other = before.astype(np.float64), after.astype(np.float64)
    info = ml_dtypes.finfo(before.dtype)
    assert np.array_equal(np.isnan(one), np.isnan(other))
    with np.errstate(all="ignore"):
        near = np.abs(one - other) <= 4 * float(info.eps) * np.abs(one) + 2 * float(info.smallest_subnormal)
    assert (near | (one == other) | np.isnan(one)).all()
    zeros = (one == 0) & (other == 0)
    assert np.array_equal(np.signbit(one[zeros]), np.signbit(other[zeros]))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda dtype: dtype.value)
def test_a_product_with_a_reciprocal_is_a_quotient_and_overflows_later(dtype):
    """1 / v can overflow, or lose bits, where x / v and the truth do not: never the other way round."""
    made, inputs = spelt(dtype, "i reciprocal v", "y multiply i x"), grid(dtype)
    found = check(simplify_algebra(made))
    assert functions(found) == ["divide"]
    before, after, truth = (evaluate(one, inputs, wide=wide)["y"] for one, wide in ((made, 0), (found, 0), (made, 1)))
    assert not (np.isfinite(before) & ~np.isfinite(after)).any()
    changed = np.isfinite(after) & ~np.isfinite(before)
    assert changed.any()
    assert np.array_equal(after[changed].astype(float), truth[changed].astype(after.dtype).astype(float))


def test_in_float64_such_a_product_stays():
    made = spelt(F64, "i reciprocal v", "y multiply i x")
    assert simplify_algebra(made) == made


LOGISTIC = {
    "x / (1 + exp(-v))": ["n negative v", "e exp n", "a add 1 e", "y divide x a"],
    "x / (exp(-v) + 1)": ["n negative v", "e exp n", "a add e 1", "y divide x a"],
    "x * (1 / (1 + exp(-v)))": ["n negative v", "e exp n", "a add e 1", "r reciprocal a", "y multiply x r"],
    "x * (1 / (1 + exp(-1 * v)))": ["n multiply v -1", "e exp n", "a add e 1", "r divide 1 a", "y multiply r x"],
}


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("spelling", LOGISTIC)
def test_the_logistic_function_is_known_and_is_not_0_where_exp_overflows(spelling, dtype):
    made, inputs = spelt(dtype, *LOGISTIC[spelling]), grid(dtype)
    found = check(simplify_algebra(made))
    assert sorted(functions(found)) == ["multiply", "sigmoid"]
    before, after, truth = (
        evaluate(one, inputs, wide=wide)["y"].astype(float) for one, wide in ((made, 0), (found, 0), (made, 1))
    )
    assert not (np.isfinite(before) & ~np.isfinite(after)).any()
    assert not (~np.isnan(before) & np.isnan(after)).any()
    info = ml_dtypes.finfo(dtype.numpy)
    usual = np.isfinite(truth) & (np.abs(truth) > info.smallest_normal * 8) & (np.abs(truth) < info.max)
    assert usual.sum() > 50
    x = np.abs(inputs["x"].astype(float))[usual]  # the sigmoid itself may be a denormal
    near = 8 * float(info.eps) * np.abs(truth)[usual] + x * float(info.smallest_subnormal)
    assert (np.abs(after[usual] - truth[usual]) <= near).all()


def test_a_sigmoid_that_is_spelt_alone_is_one_too_and_in_float64_it_stays():
    steps = ["e exp v", "a add e 1", "y reciprocal a"]
    assert functions(check(simplify_algebra(spelt(F32, *steps)))) == ["negative", "sigmoid"]
    assert functions(simplify_algebra(spelt(F64, *steps))) == ["exp", "add", "reciprocal"]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_a_quotient_by_a_power_of_two_is_a_product_to_the_last_bit(dtype):
    """As far as its inverse is a normal number."""
    info, inputs = ml_dtypes.finfo(dtype.numpy), grid(dtype)
    found = {}
    for exponent in (0, 1, -1, 6, -9, info.maxexp - 1, info.maxexp - 2, info.minexp, info.minexp + 1, info.minexp - 2):
        number = 2.0**exponent
        made = spelt(dtype, f"y divide x {number!r}")
        simple = check(simplify_algebra(made))
        found[exponent] = functions(simple)
        one, other = evaluate(made, inputs)["y"], evaluate(simple, inputs)["y"]
        assert np.array_equal(one.astype(float), other.astype(float), equal_nan=True)
        assert np.array_equal(np.signbit(one[~np.isnan(one)]), np.signbit(other[~np.isnan(one)]))
    kept = [exponent for exponent, names in found.items() if names == ["divide"]]
    assert kept == [info.maxexp - 1, info.minexp - 2]
    assert found.pop(0) == []
    assert all(names == ["multiply"] for exponent, names in found.items() if exponent not in kept)


@pytest.mark.parametrize(
    "steps",
    [
        ["a negative x", "y subtract a -0.0"],  # -0 - -0 is 0
        ["a tanh x", "y add a 0"],  # -0 + 0 is 0
        ["y subtract 0 x"],  # 0 - 0 is 0
        ["y divide x 3"],
        ["y multiply x -2"],
        ["y power x 1.5"],  # likewise
        ["y power x 0.5"],  # of -inf inf, where the root is NaN
        ["y power x -0.5"],
        ["y multiply x 0"],
        ["y divide x v"],
        ["y subtract x v"],
    ],
    ids=lambda steps: steps[-1],
)
def test_what_is_not_the_same_stays(steps):
    made = spelt(F32, *steps)
    assert functions(simplify_algebra(made)) == functions(made)


def test_integers_are_not_divided_by_a_rule():
    one = constant("o", np.array(1, np.int32))
    wide = value("w", view(), "o", I32, "n")
    made = graph("y", given("x", I32, "n"), one, wide, value("y", Map("divide"), "w x", I32, "n"))
    assert functions(simplify_algebra(made)) == ["divide"]


@pytest.mark.parametrize("function", ["add", "subtract"])
def test_0_of_integers_has_no_sign(function):
    nodes = [given("x", I32, "n"), constant("o", np.array(0, np.int32)), value("z", view(), "o", I32, "n")]
    made = graph("y", *nodes, value("y", Map(function), "x z", I32, "n"))
    assert functions(simplify_algebra(made)) == []


@pytest.mark.parametrize(("number", "form"), [(2, ["multiply"]), (3, ["multiply", "multiply"]), (1, [])])
def test_integer_powers(number, form):
    nodes = [given("x", I32, "n"), constant("c", np.array(number, np.int32)), value("w", view(), "c", I32, "n")]
    made = graph("y", *nodes, value("y", Map("power"), "x w", I32, "n"))
    found = check(simplify_algebra(made))
    assert functions(found) == form
    x = {"x": np.array([-46341, -3, -1, 0, 1, 2, 46340], np.int32)}  # the first one wraps
    assert np.array_equal(evaluate(made, x)["y"], evaluate(found, x)["y"])


def test_rules_see_through_views():
    """x[m, n] / sqrt(v)[m, 1], as a norm has it."""
    made = graph(
        "y",
        given("x", F32, "m", "n"),
        given("v", F32, "m"),
        value("r", Map("sqrt"), "v", F32, "m"),
        value("k", view(at(0)), "r", F32, "m", 1),
        value("w", view(at(0), 0), "k", F32, "m", "n"),
        value("y", Map("divide"), "x w", F32, "m", "n"),
    )
    found = check(simplify_algebra(made))
    assert functions(found) == ["rsqrt", "multiply"]
    inputs = {"x": np.ones((3, 4), np.float32), "v": np.array([1, 4, 16], np.float32)}
    assert evaluate(found, inputs)["y"][:, 1].tolist() == [1, 0.5, 0.25]


def test_the_identity_view_goes_and_others_stay():
    nodes = [given("x", F32, "m", "n"), value("a", Map("exp"), "x", F32, "m", "n")]
    made = graph(
        "y", *nodes, value("b", view(at(0), at(1)), "a", F32, "m", "n"), value("y", Map("exp"), "b", F32, "m", "n")
    )
    assert [type(node.kind) for node in simplify_algebra(made).nodes] == [Input, Map, Map]
    flipped = graph("y", *nodes, value("y", view(2 - at(0), at(1)), "a", F32, 3, "n"))
    assert [type(node.kind) for node in simplify_algebra(flipped).nodes] == [Input, Map, View]


def test_a_root_that_is_also_an_output_stays_beside_its_inverse():
    made = spelt(F32, "r sqrt v", "y divide x r")
    both = graph("r y", *made.nodes)
    found = check(simplify_algebra(both))
    assert sorted(functions(found)) == ["multiply", "rsqrt", "sqrt"]
    assert found.outputs == ("r", "y")


def test_random_graphs_compute_the_same_but_for_rounding():
    assert changed_results(simplify_algebra) == []


def test_constants_are_left_alone():
    made = graph("y", constant("y", np.float32([1.0, 2.0])))
    assert isinstance(simplify_algebra(made)["y"].kind, Constant)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("steps", [["t tanh v", "a add 1 t"], ["t tanh v", "a add t 1"]])
def test_one_and_a_hyperbolic_tangent_is_a_logistic_function_that_does_not_cancel(steps, dtype):
    made, inputs = spelt(dtype, *steps, "h multiply 0.5 x", "y multiply h a"), grid(dtype)
    found = check(simplify_algebra(made))
    assert sorted(functions(found)) == ["multiply", "multiply", "sigmoid"]  # x sigmoid(2 v): both halves are gone
    before, after, truth = (
        evaluate(one, inputs, wide=wide)["y"].astype(float) for one, wide in ((made, 0), (found, 0), (made, 1))
    )
    assert not (~np.isnan(before) & np.isnan(after)).any()  # inf * 0 may be gone
    assert not (np.isfinite(before) & ~np.isfinite(after)).any()
    info = ml_dtypes.finfo(dtype.numpy)
    usual = np.isfinite(truth) & np.isfinite(after) & np.isfinite(before)
    after, before, truth = after[usual], before[usual], truth[usual]
    x = np.abs(inputs["x"].astype(float))[usual]
    near = 8 * float(info.eps) * np.abs(truth) + (x + 1) * 2 * float(info.smallest_subnormal)
    worse = np.abs(after - truth) > near
    assert not worse[np.abs(inputs["v"].astype(float))[usual] < 4].any()
    assert (np.abs(after - truth) <= np.abs(before - truth) + near).all()


def test_in_float64_and_with_other_numbers_a_hyperbolic_tangent_stays():
    assert functions(simplify_algebra(spelt(F64, "t tanh v", "y add t 1"))) == ["tanh", "add"]
    assert functions(simplify_algebra(spelt(F32, "t tanh v", "y add t 2"))) == ["tanh", "add"]


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda dtype: dtype.value)
def test_powers_of_two_that_cancel_are_gone(dtype):
    made = spelt(dtype, "a multiply x 4", "b multiply 0.25 v", "y multiply a b")
    found = check(simplify_algebra(made))
    assert functions(found) == ["multiply"]
    inputs = grid(dtype)
    before, after, truth = (
        evaluate(one, inputs, wide=wide)["y"].astype(float) for one, wide in ((made, 0), (found, 0), (made, 1))
    )
    known = np.isfinite(before) & np.isfinite(truth)
    assert (np.abs(after[known] - truth[known]) <= np.abs(before[known] - truth[known])).all()
    kept = spelt(dtype, "a multiply x 4", "b multiply 0.5 v", "y multiply a b")
    assert functions(simplify_algebra(kept)) == ["multiply"] * 3
