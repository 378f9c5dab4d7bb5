"""Drawings of graphs, and what is collapsed of large ones."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from noyau.jobs.page.document import MOST
from noyau.jobs.page.graphs import FEWEST, clusters, draw, model_drawing, scope_of
from noyau.jobs.show.model import show
from tests.small_models import NODE, chain, model_of, twice, value, written


def plain(position, node):
    return node


def test_nodes_inputs_and_outputs_are_joined_by_values():
    drawing = model_drawing("M", model_of(chain("x", "y"), [value("x")], [value("y")]), plain)
    assert [each["lines"][0] for each in drawing["nodes"]] == ["Tanh", "Mul", "Sigmoid", "x", "y"]
    edges = {(start, end): text for start, end, text, _ in drawing["edges"]}
    assert edges == {(3, 0): "x", (3, 1): "x", (0, 1): "tanh", (1, 2): "product", (2, 4): "y"}


def test_constants_and_tensors_of_the_model_are_not_drawn():
    constant = NODE("Constant", [], ["c"], value=numpy_helper.from_array(np.float32(2)))
    model = model_of([constant, NODE("Mul", ["x", "c"], ["y"])], [value("x")], [value("y")])
    assert [each["lines"][0] for each in model_drawing("M", model, plain)["nodes"]] == ["Mul", "x", "y"]


def test_a_plan_colours_nodes_and_says_why_they_are_cut(tmp_path):
    shown = show(written(twice(), tmp_path))
    drawing = next(each for each in shown._page().sections if each["kind"] == "graphs")["drawings"][0]
    groups = {each["group"] for each in drawing["nodes"] if each.get("group")}
    assert groups == {each.operator for each in shown.plan.kernels}
    products = [each for each in drawing["nodes"] if each["lines"][0] == "MatMul"]
    assert products and all(each["facts"]["not fused"] for each in products)


def test_a_reason_is_on_the_edge_of_its_cut():
    graph = model_of([NODE("Exp", ["x"], ["e"]), NODE("Neg", ["e"], ["y"])], [value("x")], [value("y")]).graph
    drawing = draw("M", graph, plain, {"e": "f32[n]"}, {(0, 1): "too large"})
    assert [0, 1, "e: f32[n]", "too large"] in drawing["edges"]


def test_small_graphs_are_drawn_as_they_are():
    assert clusters(dict.fromkeys(range(MOST), ("a",))) == ({k: (k,) for k in range(MOST)}, "")


def test_a_large_graph_is_collapsed_by_its_scopes_and_said():
    scopes = {k: ("model", f"layer{k // 100}", "attention" if k % 2 else "mlp", f"op{k}") for k in range(10_000)}
    keys, note = clusters(scopes)
    assert keys[0] == ("model", "layer0", "mlp") and len(set(keys.values())) == 200
    assert note == "10000 nodes are collapsed into 200, by the scopes in the names of their nodes."


def test_a_hundred_thousand_nodes_without_scopes_are_collapsed_in_runs():
    keys, note = clusters(dict.fromkeys(range(100_000), ()))
    assert FEWEST <= len(set(keys.values())) <= MOST and "in runs of 134" in note
    assert list(keys.values()) == sorted(keys.values())


def test_a_collapsed_node_says_what_it_holds():
    count = MOST + 100
    nodes = [NODE("Exp" if k % 2 else "Neg", [f"v{k}"], [f"v{k + 1}"], name=f"/l{k // 50}/op{k}") for k in range(count)]
    model = model_of(nodes, [value("v0")], [value(f"v{count}")])
    drawing = model_drawing("M", model, plain)
    first = drawing["nodes"][0]
    assert (first["lines"], first["holds"], first["facts"]["operators"]) == (["l0", "50 nodes"], 50, "25 Neg, 25 Exp")
    assert len(drawing["edges"]) == len(drawing["nodes"]) - 1


def test_scopes_are_those_of_torch_or_of_a_name():
    node = NODE("Exp", ["x"], ["y"], name="/model/layer.0/Exp")
    assert scope_of(node) == ("model", "layer.0", "Exp")
    node.metadata_props.append(
        helper.onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value="['', 'a', 'b']")
    )
    assert scope_of(node) == ("a", "b")
    node.metadata_props[0].value = "__import__('os')"
    assert scope_of(node) == ("model", "layer.0", "Exp")
