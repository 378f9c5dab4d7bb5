"""Values that no output needs are dropped, inputs are not."""

from __future__ import annotations

from noyau.compiler.passes.cleanup import drop_unused
from noyau.ir.graph import Map, Reduce
from tests.compiler.passes.cases import changed_bits
from tests.nodes import F32, given, graph, value


def test_what_no_output_needs_goes():
    made = graph(
        "y",
        given("x", F32, "n"),
        given("w", F32, "n"),
        value("a", Map("exp"), "x", F32, "n"),
        value("b", Map("exp"), "a", F32, "n"),
        value("c", Reduce("sum", (0,)), "b", F32),
        value("y", Map("negative"), "a", F32, "n"),
    )
    assert [node.output for node in drop_unused(made).nodes] == ["x", "w", "a", "y"]


def test_what_an_output_needs_at_any_remove_stays():
    made = graph("c", given("x", F32, "n"), *(value(b, Map("exp"), a, F32, "n") for a, b in ("xa", "ab", "bc")))
    assert drop_unused(made) == made


def test_an_input_may_be_the_output():
    made = graph("x", given("x", F32, "n"))
    assert drop_unused(made) == made


def test_random_graphs_compute_the_same_bits():
    assert changed_bits(drop_unused) == []
