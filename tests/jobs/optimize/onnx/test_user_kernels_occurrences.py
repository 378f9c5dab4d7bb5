"""The places of a model that compute the same as a path."""

from __future__ import annotations

import onnx
import pytest
from onnx import numpy_helper

from noyau.hosts.onnxruntime.source_model import open_model
from noyau.hosts.onnxruntime.subgraph import path_between
from noyau.jobs.optimize.onnx.user_kernels import places_of
from tests.jobs.extract.files import normed
from tests.small_models import NODE, chain, llama, model_of, value, written


def places(original, between) -> list[str]:
    return [str(path.ends) for path, _ in places_of(original, path_between(original, between))]


@pytest.mark.parametrize(
    ("between", "others"),
    [
        (
            "embedding,linear_3:add_306,mul_256",
            [
                "add_306,linear_6:add_356,mul_292",
                "add_356,linear_10:add_560,mul_450",
                "add_560,linear_13:add_610,mul_486",
            ],
        ),
        ("linear_4,linear_5:mul_269", ["linear_11,linear_12:mul_463"]),
        ("attention_mask:where", []),
    ],
)
def test_layers_of_a_llama_are_alike(between, others):
    original = open_model(llama("dynamo"))
    assert places(original, between) == [between, *others]


def test_places_take_their_inputs_in_one_order(tmp_path):
    original = open_model(written(normed(), tmp_path))
    found = places_of(original, path_between(original, "r,a:n,s"))
    assert [[node.output for node in graph.inputs] for _, graph in found] == [["r", "a", "w1"], ["r2", "s", "w2"]]
    assert [graph.outputs for _, graph in found] == [("n", "s"), ("n2", "s2")]


def test_another_constant_or_operator_is_another_path(tmp_path):
    model = normed()
    other = numpy_helper.from_array(numpy_helper.to_array(model.graph.initializer[0]) * 2, "eps2")
    model.graph.initializer.append(other)
    later = next(node for node in model.graph.node if node.output[0] == "n2_e")
    later.input[1] = "eps2"
    original = open_model(written(model, tmp_path))
    assert len(places(original, "a,r:s,n")) == 1
    later.input[1], later.op_type = "eps", "Sub"
    assert len(places(open_model(written(model, tmp_path)), "a,r:s,n")) == 1


def test_places_do_not_overlap(tmp_path):
    nodes = [NODE("Tanh", ["x" if k == 0 else f"t{k - 1}"], [f"t{k}"]) for k in range(5)]
    original = open_model(written(model_of(nodes, [value("x")], [value("t4")]), tmp_path))
    assert places(original, "x:t1") == ["x:t1", "t1:t3"]


def test_what_is_made_twice_of_one_value_is_two_places(tmp_path):
    nodes = [*chain("x", "y", "a"), *chain("x", "z", "b"), NODE("Add", ["y", "z"], ["s"])]
    original = open_model(written(model_of(nodes, [value("x")], [value("s")]), tmp_path))
    assert places(original, "x:y") == ["x:y", "x:z"]
    assert isinstance(original.model, onnx.ModelProto)
