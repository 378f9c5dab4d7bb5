"""The normal form: what it computes stays, what spelling adds goes, and numbers of the model become inputs."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.passes.algebra import simplify_algebra
from noyau.compiler.passes.cleanup import compose_views, drop_unused, fold_constants, merge_equal
from noyau.compiler.passes.normal_form import lift_scalars, normalise, order_ends, order_operands, own_sizes
from noyau.dtypes import DType
from noyau.ir.graph import Constant, Graph, Input, Map, Opaque, Part, Reduce, View, constant
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.passes.cases import changed_bits, changed_results
from tests.nodes import F32, I64, at, given, graph, value, view


def scaled(number, name="s"):
    """x times a number that stands in the model under a name."""
    return graph(
        "y",
        given("x", F32, "n"),
        constant(name, np.float32(number)),
        value("w", view(), name, F32, "n"),
        value("y", Map("multiply"), "x w", F32, "n"),
    )


@pytest.mark.parametrize("number", [1e-5, 0.35355338, -3.4028235e38, 0.1, np.nan, 100000.5])
def test_numbers_of_the_model_become_inputs(number):
    assert [node.output for node in lift_scalars(scaled(number)).inputs] == ["x", "s"]


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 64.0, 2.5, 0.125, -0.03125, np.inf, -np.inf])
def test_those_of_everyday_formulas_stay(number):
    made = scaled(number)
    assert lift_scalars(made) == made


def test_a_number_that_a_pass_has_made_stays():
    made = scaled(0.1, "s~1")
    assert lift_scalars(made) == made


def test_an_exponent_stays_also_where_it_is_expanded():
    made = graph(
        "y",
        given("x", F32, "n"),
        constant("e", np.float32(1.7)),
        value("w", view(), "e", F32, "n"),
        value("y", Map("power"), "x w", F32, "n"),
    )
    assert lift_scalars(made) == made


def test_an_output_stays_a_number():
    made = graph("s", constant("s", np.float32(0.1)))
    assert lift_scalars(made) == made


def test_integers_stay():
    made = graph("y", given("x", I64), constant("s", np.int64(3)), value("y", Map("add"), "x s", I64))
    assert lift_scalars(made) == made


def test_ends_come_in_an_order_of_their_own():
    """Neither names nor the order of nodes or outputs in the model matter."""

    def walk(names, order):
        x, z, a, b, c = names
        nodes = [
            given(x, F32, "n"),
            given(z, F32, "n", "m"),
            value(a, Map("exp"), x, F32, "n"),
            value(b, Map("sqrt"), z, F32, "n", "m"),
            value(c, Reduce("sum", (1,)), b, F32, "n"),
        ]
        outputs = {"ac": f"{a} {c}", "ca": f"{c} {a}"}[order]
        made = order_ends(graph(outputs, *([nodes[1], nodes[0], *nodes[2:]] if order == "ca" else nodes)))
        numbers = {node.output: k for k, node in enumerate(made.nodes)}
        rows = [(node.kind, [numbers[name] for name in node.inputs], node.shape) for node in made.nodes]
        return rows, [numbers[name] for name in made.outputs]

    assert walk("xzabc", "ac") == walk("pqrst", "ac") == walk("xzabc", "ca") == walk("zyxwv", "ca")


def test_inputs_that_nothing_needs_go():
    made = graph("y", given("x", F32, "n"), given("u", F32, "n"), value("y", Map("exp"), "x", F32, "n"))
    assert [node.output for node in normalise(made).nodes] == ["x", "y"]


def test_all_that_spelling_adds_goes():
    made = graph(
        "y",
        given("x", F32, "m", "n"),
        value("a", Map("cast"), "x", F32, "m", "n"),
        value("b", Map("identity"), "a", F32, "m", "n"),
        value("c", view(at(1), at(0)), "b", F32, "n", "m"),
        value("d", view(at(1), at(0)), "c", F32, "m", "n"),
        value("y", Map("exp"), "d", F32, "m", "n"),
    )
    found = check(normalise(made))
    assert [node.kind for node in found.nodes] == [Input(), Map("exp")]


def test_a_second_time_changes_nothing():
    for made in (scaled(0.1), scaled(2.0)):
        once = normalise(made)
        assert normalise(once) == once


def test_an_output_that_is_an_input_and_one_that_is_a_number():
    made = Graph((given("x", F32, "n"), constant("c", np.float32(0.1))), ("x", "c"))
    found = check(normalise(made))
    assert set(found.outputs) == {"x", "c"}
    assert isinstance(found["c"].kind, Constant | View)
    assert evaluate(found, {"x": np.float32([1, 2])})["c"] == np.float32(0.1)


def test_random_graphs_compute_the_same():
    assert changed_bits(lift_scalars) == []
    assert changed_results(order_ends) == []
    assert changed_results(normalise) == []


PASSES = (
    fold_constants,
    compose_views,
    simplify_algebra,
    lift_scalars,
    merge_equal,
    order_operands,
    drop_unused,
    order_ends,
    own_sizes,
    normalise,
)


def parted():
    """Two results of one boundary, one of them an output, beside a value of no cells and outputs that are equal."""

    def halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x[:2], x[2:]

    return graph(
        "p z u e",
        given("x", F32, 5),
        value("o", Opaque("halves", halves), "x", DType.OTHER),
        value("p", Part(0), "o", F32, 2),
        value("q", Part(1), "o", F32, 3),
        value("z", Map("negative"), "q", F32, 3),
        value("u", Map("negative"), "q", F32, 3),
        value("e", view(at(0)), "x", F32, 0),
    )


@pytest.mark.parametrize("change", PASSES, ids=lambda change: change.__name__)
def test_boundaries_and_outputs_are_left_as_they_are(change):
    x = np.float32([1, -0.0, np.nan, np.inf, 2])
    found = check(change(parted()))
    before, after = evaluate(parted(), {"x": x}), evaluate(found, {"x": x})
    assert set(found.outputs) == set(before)
    for name in before:
        assert before[name].tobytes() == after[name].tobytes()
    assert sum(isinstance(node.kind, Opaque) for node in found.nodes) == 1
    assert {node.kind for node in found.nodes if isinstance(node.kind, Part)} == {Part(0), Part(1)}


@pytest.mark.parametrize("change", PASSES, ids=lambda change: change.__name__)
def test_sizes_that_are_not_known_to_be_equal_are_two(change):
    """Though one would do for the values at hand."""
    made = graph(
        "y z",
        given("x", F32, "n"),
        given("w", F32, "m"),
        value("y", Map("exp"), "x", F32, "n"),
        value("z", Map("exp"), "w", F32, "m"),
    )
    found = check(change(made))
    assert {str(found["y"].shape[0]), str(found["z"].shape[0])} == {"n", "m"}
    assert [*found["y"].inputs, *found["z"].inputs] == ["x", "w"]
