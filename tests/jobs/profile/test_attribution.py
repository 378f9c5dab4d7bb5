from __future__ import annotations

import onnx
import pytest
from onnx import numpy_helper

from noyau.hosts.onnxruntime.sessions import OPTIMIZED, open_session
from noyau.jobs.profile.attribution import attributions_of, with_numbers, with_subgraphs
from tests.hosts.models import HOSTILE
from tests.small_models import KINDS, NODE, chain, model_of, twice, value, with_branches, with_loop


def optimized(model: onnx.ModelProto, folder) -> dict[str, tuple[str, set[int], bool]]:
    """What the nodes stand for that onnxruntime makes of a model: by name, operator, positions, made."""
    given = with_numbers(model)
    open_session(given.SerializeToString(), trace=folder)
    made = onnx.load(folder / OPTIMIZED, load_external_data=False)
    kinds = {node.name: node.op_type for node in made.graph.node}
    return {
        name: (kinds[name], set(each.positions), each.is_new) for name, each in attributions_of(given, made).items()
    }


def of(nodes, *names: str) -> onnx.ModelProto:
    """The nodes as the optimized twin of a model whose outputs they make."""
    return model_of([NODE(*node[:3], name=name) for node, name in zip(nodes, names, strict=True)], [value("x")], [])


def test_nodes_are_named_after_their_positions_at_every_depth():
    model = with_branches()
    before = model.SerializeToString()
    named = with_numbers(model)
    assert [node.name for node in named.graph.node] == [f"n{k}" for k in range(6)]
    inner = [[node.name for node in attribute.g.node] for attribute in named.graph.node[3].attribute]
    assert sorted(inner) == [["n3_0"], ["n3_0", "n3_1", "n3_2"]]
    assert [node.name for node in with_numbers(KINDS["function"]).functions[0].node] == ["f0_0", "f0_1", "f0_2"]
    assert model.SerializeToString() == before


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_are_gone(name):
    model = twice()
    for node in model.graph.node:
        node.name = name
    assert name not in {node.name for node in with_numbers(model).graph.node}


def test_what_is_kept_stands_for_itself(tmp_path):
    assert optimized(twice(), tmp_path) == {
        f"n{k}": (node.op_type, {k}, False) for k, node in enumerate(twice().graph.node)
    }


def test_what_is_fused_stands_for_all_that_it_replaces(tmp_path):
    """x sigmoid(x) becomes one operator of onnxruntime's own."""
    nodes = [NODE("Exp", ["x"], ["e"]), NODE("Sigmoid", ["e"], ["s"]), NODE("Mul", ["e", "s"], ["y"])]
    found = optimized(model_of(nodes, [value("x")], [value("y")]), tmp_path)
    assert sorted(found.values()) == [("Exp", {0}, False), ("QuickGelu", {1, 2}, True)]


def test_what_is_computed_beforehand_stands_for_nothing(tmp_path):
    weight = numpy_helper.from_array(numpy_helper.to_array(twice().graph.initializer[0]), "w")
    nodes = [NODE("Exp", ["w"], ["e"]), NODE("Neg", ["e"], ["f"]), NODE("MatMul", ["x", "f"], ["y"])]
    found = optimized(model_of(nodes, [value("x", ("n", 6))], [value("y", ("n", 6))], [weight]), tmp_path)
    assert list(found.values()) == [("MatMul", {2}, False)]


def test_casts_that_are_put_in_stand_for_what_they_are_put_in_for(tmp_path):
    found = optimized(KINDS["float16"], tmp_path)
    casts = [positions for operator, positions, made in found.values() if operator == "Cast" and made]
    assert casts
    assert all(positions <= {0, 1, 2} and positions for positions in casts)
    assert {operator for operator, _, made in found.values() if not made} == {"Tanh", "Mul", "Sigmoid"}


def test_the_nodes_of_a_function_stand_for_its_call(tmp_path):
    found = optimized(KINDS["function"], tmp_path)
    assert sorted(operator for operator, positions, _ in found.values() if positions == {0}) == [
        "Mul",
        "Sigmoid",
        "Tanh",
    ]
    assert [operator for operator, positions, _ in found.values() if positions == {1}] == ["Exp"]


def test_a_value_that_the_optimizer_named_leads_to_those_who_read_it():
    original = with_numbers(model_of(chain("x", "y"), [value("x")], [value("y")]))
    made = of([("Odd", ["x"], ["odd"]), ("Even", ["odd"], ["y"])], "odd", "even")
    assert {name: set(each.positions) for name, each in attributions_of(original, made).items()} == {
        "odd": {0, 1, 2},
        "even": {0, 1, 2},
    }


def test_a_name_that_begins_with_that_of_a_node_is_a_hint():
    original = with_numbers(model_of(chain("x", "y"), [value("x")], [value("y")]))
    made = of([("Odd", ["x"], ["odd"])] * 4, "n1/OddFusion/", "n12", "n3", "xn1")
    assert [set(each.positions) for each in attributions_of(original, made).values()] == [{1}, set(), set(), set()]


def test_a_walk_ends_at_values_that_are_still_there():
    nodes = [NODE("Exp", ["x"], ["a"]), NODE("Neg", ["a"], ["b"]), NODE("Mul", ["b", "a"], ["y"])]
    original = with_numbers(model_of(nodes, [value("x")], [value("y")]))
    made = of([("Exp", ["x"], ["a"]), ("MulNeg", ["a"], ["y"])], "n0", "fused")
    assert [set(each.positions) for each in attributions_of(original, made).values()] == [{0}, {1, 2}]


def test_nodes_with_subgraphs_are_found():
    assert list(with_subgraphs(with_numbers(with_loop()).graph)) == ["n3"]
    assert list(with_subgraphs(with_numbers(twice()).graph)) == []
