"""What passes share: graphs rebuilt node by node, names that nobody has, Dims changed everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.compiler.passes.rewrite import (
    Rebuilder,
    nameless,
    rebuild,
    same_as,
    sizes_in_order,
    through_views,
    with_dims,
)
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Gather, Input, Iota, Lookup, Map, Scatter, Select, dims_of
from noyau.ir.graph_verifier import check
from noyau.ir.sizes import Demand
from tests.nodes import F32, I64, at, given, graph, value, view


def chain():
    return graph(
        "y z",
        given("x", F32, "n"),
        value("a", Map("exp"), "x", F32, "n"),
        value("y", Map("identity"), "a", F32, "n"),
        value("z", Map("negative"), "y", F32, "n"),
    )


def test_nothing_changes_where_nothing_is_changed():
    assert rebuild(chain(), lambda node, made: (node,)) == chain()


def test_a_value_can_be_another_ones_name_and_an_output_keeps_its_own():
    found = check(rebuild(chain(), lambda node, made: node.inputs[0] if node.output == "y" else (node,)))
    assert found["y"].kind == view(at(0))
    assert (found["y"].inputs, found["z"].inputs) == (("a",), ("a",))


def test_a_node_can_become_several():
    def twice(node, made):
        if node.kind != Map("exp"):
            return (node,)
        first = replace(node, output=made.fresh(node.output))
        return first, replace(node, inputs=(first.output,))

    found = check(rebuild(chain(), twice))
    assert [node.output for node in found.nodes] == ["x", "a~1", "a", "y", "z"]
    assert found["a"].inputs == ("a~1",)


def test_what_is_renamed_twice_has_the_last_name():
    made = graph("c", given("x", F32), *(value(b, Map("identity"), a, F32) for a, b in ("xa", "ab", "bc")))
    found = rebuild(made, lambda node, made: node.inputs[0] if node.inputs else (node,))
    assert found["c"].inputs == ("x",)


def test_a_fresh_name_is_nobodys():
    made = Rebuilder(graph("a~1", given("a~1", F32)))
    assert [made.fresh("a"), made.fresh("a"), made.fresh("b")] == ["a~2", "a~3", "b~1"]


def test_same_as_is_the_other_value_under_its_own_name():
    node = same_as(value("y", Map("exp"), "x", F32, "n", 4), given("a", F32, "n", 4))
    assert (node.output, node.inputs, node.kind) == ("y", ("a",), view(at(0), at(1)))


def test_views_are_seen_through():
    made = graph(
        "b",
        given("x", F32, "n"),
        value("a", view(at(1)), "x", F32, 3, "n"),
        value("b", view(at(1), at(0)), "a", F32, "n", 3),
    )
    assert through_views(made.by_name, "b").kind == Input()


@pytest.mark.parametrize(
    "node",
    [
        value("y", Iota(Dim.of("n")), "", I64),
        value("y", view(at(0) + "n"), "x", F32, "n"),
        value("y", Select(0, shape_of([0, "n"])), "x x", F32, Dim.of("n") * 2),
        value("y", Gather((Lookup(1, shape_of([at(0) * "n"])), Dim.of("n") - 1)), "x i", F32, "n"),
        value("y", Scatter((Lookup(1, shape_of([at(0) * "n"])),), None), "x i u", F32, "n"),
        value("y", Map("exp"), "x", F32, "n"),
    ],
    ids=lambda node: type(node.kind).__name__,
)
def test_every_dim_of_a_node_is_seen_and_changed(node):
    assert {name for dim in dims_of(node) for name in dim.names} - {"#0"} == {"n"}
    other = with_dims(node, lambda dim: dim.replace({"n": "m"}))
    assert {name for dim in dims_of(other) for name in dim.names} - {"#0"} == {"m"}
    assert with_dims(other, lambda dim: dim.replace({"m": "n"})) == node


def named(x, a, y, n, m):
    """exp of a slice, under any names."""
    nodes = [
        given(x, F32, n, m),
        value(a, view(at(1), at(0)), x, F32, m, n),
        value(y, Map("exp"), a, F32, m, n),
    ]
    made = graph(y, *(replace(node, sources=(x, y)) for node in nodes))
    return replace(made, demands=(Demand(Dim.of(n), Dim.of(m) * 2, "at most"),))


def test_without_names_graphs_that_differ_in_them_are_equal():
    one, other = named("x", "a", "y", "n", "m"), named("y", "x", "a", "m", "n")
    found = check(nameless(one))
    assert found == nameless(other)
    assert [node.output for node in found.nodes] == ["v0", "v1", "v2"]
    assert (found.outputs, found["v0"].shape, found["v0"].sources) == (("v2",), shape_of(["s0", "s1"]), ())
    assert found.demands == (Demand(Dim.of("s0"), Dim.of("s1") * 2, "at most"),)
    assert nameless(found) == found


def test_sizes_come_as_they_stand_alone_then_in_formulas():
    made = graph("x", given("x", F32, Dim.of("c") + "a", "b", Dim.of("d") * 2))
    assert sizes_in_order(made) == ("b", "a", "c", "d")


def test_what_differs_in_more_than_names_stays_apart():
    other = named("x", "a", "y", "n", "n")
    assert nameless(named("x", "a", "y", "n", "m")) != nameless(other)
    flat = replace(other, demands=())
    assert nameless(other) != nameless(flat)
