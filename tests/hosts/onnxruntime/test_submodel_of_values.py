"""Parts of models that make some values, and the values that a node or an input is needed for."""

from __future__ import annotations

from noyau.hosts.onnxruntime.submodel import lost_values, part_for
from tests.small_models import NODE, chain, model_of, twice, value, with_strange_operator


def test_what_the_values_do_not_need_is_not_in_the_part():
    part = part_for(twice(), ["a"])
    assert [node.op_type for node in part.graph.node] == ["Tanh", "Mul", "Sigmoid"]
    assert (len(part.graph.initializer), len(part.graph.output)) == (0, 1)
    assert len(part_for(twice(), ["b"]).graph.initializer) == 1


def test_what_nothing_reads_is_not_in_the_part():
    nodes = [*chain("x", "hidden"), NODE("MatMul", ["x", "x"], ["z"])]
    assert len(part_for(model_of(nodes, [value("x", (3, 3))], [value("z", (3, 3))]), ["z"]).graph.node) == 1


def test_what_needs_a_node_that_does_not_run_is_lost():
    assert lost_values(with_strange_operator(), [3], []) == {"v", "e", "y"}
