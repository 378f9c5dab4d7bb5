"""Pairs of models: what differs is named, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, version_converter

from noyau.errors import InputError, ModelError
from noyau.jobs.diff.render import ModelsDiff
from noyau.jobs.diff.run import diff
from tests.small_models import FLOAT, INT64, NODE, chain, llama, model_of, twice, value, with_branches, written


def compared(one: onnx.ModelProto, other: onnx.ModelProto, folder: Path) -> ModelsDiff:
    return diff(written(one, folder, "one.onnx"), written(other, folder, "other.onnx"))


def copy(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with other names for all nodes and values, and for the size `rows`."""
    result = copy(model)
    for number, node in enumerate(result.graph.node):
        node.name = f"other{number}"
        node.input[:] = [f"{name}_2" if name else "" for name in node.input]
        node.output[:] = [f"{name}_2" for name in node.output]
    for each in (*result.graph.input, *result.graph.output, *result.graph.initializer):
        each.name += "_2"
    for each in (*result.graph.input, *result.graph.output):
        for dim in each.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param += "_2"
    return result


def test_a_model_is_itself(tmp_path):
    result = compared(twice(), twice(), tmp_path)
    assert result.same and not result.is_renamed
    assert result.values and not any(each.error for each in result.values)


def test_inputs_that_do_not_fit_are_an_error(tmp_path):
    model = written(twice(), tmp_path)
    np.savez(tmp_path / "empty.npz")
    for wrong in ({"inputs": tmp_path / "empty.npz"}, {"dims": {"cows": [3]}}):
        with pytest.raises(InputError, match=r"empty\.npz|cows"):
            diff(model, model, **wrong)


def test_a_renamed_graph_is_no_difference(tmp_path):
    result = compared(twice(), renamed(twice()), tmp_path)
    assert result.same and result.is_renamed
    assert {each.value for each in result.values} >= {"y", "b", "d"}


def test_nodes_in_another_order_are_no_difference(tmp_path):
    nodes = [*chain("x", "a", "a"), *chain("x", "b", "b"), NODE("Add", ["a", "b"], ["y"])]
    ends = [value("x", ("rows", 6))], [value("y", ("rows", 6))]
    other = [*chain("x", "b", "b"), *chain("x", "a", "a"), NODE("Add", ["b", "a"], ["y"])]
    assert compared(model_of(nodes, *ends), model_of(other, *ends), tmp_path).same


def test_a_changed_weight_is_named_with_how_much(tmp_path):
    other = twice()
    array = numpy_helper.to_array(other.graph.initializer[0]).copy()
    array[1, 2] += 0.5
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    result = compared(twice(), other, tmp_path)
    assert not (result.added or result.removed or result.facts)
    assert {each.node for each in result.changed} == {"MatMul#3", "MatMul#7"}
    assert {each.changes for each in result.changed} == {("weight w: 1 of 36 cells differ, by at most 0.5",)}
    assert result.apart[0].made_by == "MatMul#3" and result.apart[-1].is_output


def test_a_changed_attribute_is_named(tmp_path):
    ends = [value("x", (4, 6))], [value("y", (4, 6))]
    one, other = (
        model_of([NODE("Exp", ["x"], ["e"]), NODE("Softmax", ["e"], ["y"], axis=axis)], *ends) for axis in (-1, 0)
    )
    result = compared(one, other, tmp_path)
    assert [(each.node, each.changes) for each in result.changed] == [("Softmax#1", ("axis: -1 -> 0",))]
    assert [each.value for each in result.apart] == ["y"]


def test_a_default_that_is_spelt_is_no_difference(tmp_path):
    ends = [value("x", (4, 6))], [value("y", (4, 6))]
    one, other = (model_of([NODE("Softmax", ["x"], ["y"], **axis)], *ends) for axis in ({}, {"axis": -1}))
    assert compared(one, other, tmp_path).same


def test_an_inserted_node_is_all_that_differs(tmp_path):
    ends = [value("x", ("rows", 6))], [value("y", ("rows", 6))]
    one = model_of([*chain("x", "a", "a"), *chain("a", "y", "y")], *ends)
    other = model_of([*chain("x", "a", "a"), NODE("Relu", ["a"], ["r"]), *chain("r", "y", "y")], *ends)
    result = compared(one, other, tmp_path)
    assert (result.added, result.removed, result.changed, result.facts) == (("Relu#3",), (), (), ())
    assert not result.apart, "a sigmoid is positive"


def test_an_operator_in_place_of_another_is_one_removed_and_one_added(tmp_path):
    ends = [value("x", ("rows", 6))], [value("y", ("rows", 6))]
    one, other = (
        model_of([NODE("Tanh", ["x"], ["t"]), NODE(kind, ["t"], ["u"]), NODE("Exp", ["u"], ["y"])], *ends)
        for kind in ("Relu", "Abs")
    )
    result = compared(one, other, tmp_path)
    assert (result.removed, result.added, result.changed) == (("Relu#1",), ("Abs#1",), ())
    assert [each.value for each in result.apart] == ["y"]


def test_an_operand_from_elsewhere_is_named(tmp_path):
    ends = [value("x", ("rows", 6))], [value("y", ("rows", 6))]
    first = [NODE("Tanh", ["x"], ["t"]), NODE("Exp", ["x"], ["e"])]
    one, other = (
        model_of([*first, NODE("Sub", names, ["s"]), NODE("Mul", ["s", "e"], ["y"])], *ends)
        for names in (["t", "e"], ["e", "t"])
    )
    result = compared(one, other, tmp_path)
    assert [(each.node, each.changes) for each in result.changed] == [
        ("Sub#2", ("reads t, there e", "reads e, there t"))
    ]


def test_one_constant_is_named(tmp_path):
    ends = [value("x", ("rows", 6))], [value("y", ("rows", 6))]
    one, other = (
        model_of(
            [NODE("Mul", ["x", "c"], ["m"]), NODE("Exp", ["m"], ["y"])],
            *ends,
            [helper.make_tensor("c", FLOAT, (), [c])],
        )
        for c in (0.5, 0.25)
    )
    result = compared(one, other, tmp_path)
    assert [(each.node, each.changes) for each in result.changed] == [
        ("Mul#0", ("weight c: 1 of 1 cells differ, by at most 0.25",))
    ]


def test_the_shape_of_an_input_is_a_fact(tmp_path):
    one, other = (model_of(chain("x", "y"), [value("x", (n, 6))], [value("y", (n, 6))]) for n in ("rows", 3))
    result = compared(one, other, tmp_path)
    assert result.facts == ("input x: float[n0, 6] -> float[3, 6]", "output y: float[n0, 6] -> float[3, 6]")
    assert not (result.added or result.removed or result.changed)


def test_inputs_and_outputs_in_another_order_are_paired_by_name(tmp_path):
    """Also their symbolic sizes, which are numbered in order, and their values."""
    nodes = [*chain("x", "a", "a"), NODE("Abs", ["k"], ["b"])]
    ins, outs = (
        [value("x", ("rows", 6)), value("k", ("keys",), INT64)],
        [value("a", ("rows", 6)), value("b", ("keys",), INT64)],
    )
    result = compared(model_of(nodes, ins, outs), model_of(nodes, ins[::-1], outs[::-1]), tmp_path)
    assert result.same and not (result.facts or result.is_renamed or result.changed)
    assert {each.value for each in result.values if each.is_output} == {"a", "b"}
    assert result.notes == tuple(
        f"their {word} stand in another order, and are compared by name" for word in ("inputs", "outputs")
    )


def test_what_an_opset_moved_from_an_attribute_to_an_operand_is_no_difference(tmp_path):
    node = NODE("Squeeze", ["x"], ["s"], axes=[1])
    one = model_of([node, NODE("Exp", ["s"], ["y"])], [value("x", (4, 1))], [value("y", (4,))], opset=11)
    result = compared(one, version_converter.convert_version(one, 13), tmp_path)
    assert result.facts == ("opset of ai.onnx: 11 -> 13",)
    assert not (result.added or result.removed or result.changed or result.apart)


def test_defaults_that_no_schema_has_and_those_of_attributes_with_capitals_are_no_difference(tmp_path):
    weight = helper.make_tensor("w", FLOAT, (2, 3, 1, 1), [0.5] * 6)
    ends = [value("x", (1, 3, 4, 4))], [value("y", (2, 2))]
    said = ({}, {}), ({"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4}, {"transA": 0, "alpha": 1.0})
    one, other = (
        model_of(
            [
                NODE("Conv", ["x", "w"], ["c"], **of_conv),
                NODE("GlobalMaxPool", ["c"], ["p"]),
                NODE("Flatten", ["p"], ["f"]),
                NODE("Gemm", ["f", "f"], ["y"], transB=1, **of_gemm),
            ],
            *ends,
            [weight],
        )
        for of_conv, of_gemm in said
    )
    assert compared(one, other, tmp_path).same


def test_operands_that_changed_places_bear_the_names_of_the_first_model(tmp_path):
    ends = [value("x", (4,))], [value("y", (4,))]
    one, other = (
        model_of([NODE("Exp", ["x"], [a]), NODE("Sin", ["x"], [b]), NODE("Sub", ["u", "v"], ["y"])], *ends)
        for a, b in ("uv", "vu")
    )
    result = compared(one, other, tmp_path)
    assert [each.changes for each in result.changed] == [("reads u, there v", "reads v, there u")]


def test_a_body_of_a_branch_that_differs_is_named(tmp_path):
    other = with_branches()
    branch = next(node for node in other.graph.node if node.op_type == "If")
    branch.attribute[0].g.node[0].op_type = "Cos"
    result = compared(with_branches(), other, tmp_path)
    assert compared(with_branches(), with_branches(), tmp_path).same
    assert not (result.added or result.removed)
    assert len(result.changed) == 1 and "branch" in result.changed[0].changes[0]


def test_after_onnxruntimes_optimizer_what_it_joined_is_named_and_values_are_alike(tmp_path):
    before, after = written(twice(), tmp_path, "before.onnx"), tmp_path / "after.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(after)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(str(before), options, providers=["CPUExecutionProvider"])
    result = diff(before, after)
    kinds = [node.op_type for node in onnx.load(after).graph.node]
    assert len(result.removed) - len(result.added) == len(twice().graph.node) - len(kinds)
    assert all(text.startswith("opset of ") for text in result.facts)
    assert result.values and not result.apart


@pytest.mark.long
def test_an_exporter_against_the_other(tmp_path):
    result = diff(llama("dynamo"), llama("torchscript"))
    assert result.added and result.removed and not result.same
    assert [each for each in result.values if each.is_output] and not [each for each in result.apart if each.is_output]


def test_other_inputs_are_said_and_nothing_runs(tmp_path):
    ends = [value("y", ("rows", 6))]
    one = model_of(chain("x", "y"), [value("x", ("rows", 6))], ends)
    other = model_of(chain("x", "y"), [value("x", ("rows", 6)), value("z", (1,), INT64)], ends)
    result = compared(one, other, tmp_path)
    assert result.facts == ("1 input -> 2",) and not result.values
    assert result.notes == ("their values are not compared: they take other inputs or give other outputs",)


def test_what_is_no_model_is_one_line(tmp_path):
    (tmp_path / "a.onnx").write_text('{"schema_version": 99}')
    with pytest.raises(ModelError, match="no ONNX model"):
        diff(tmp_path / "a.onnx", tmp_path / "a.onnx")


def test_the_record_is_plain_data(tmp_path):
    record = json.loads(json.dumps(compared(twice(), renamed(twice()), tmp_path).to_json()))
    assert record["schema_version"] == 1 and record["same"] is True and record["values"][0]["error"] == 0


def test_constants_among_many_operands_keep_their_places(tmp_path):
    tensors = [helper.make_tensor(name, INT64, (1,), [number]) for number, name in enumerate(("a", "b"))]
    ends = [value("x", (1,), INT64)], [value("y", (3,), INT64)]
    one, other = (
        model_of([NODE("Concat", names, ["y"], axis=0)], *ends, tensors) for names in (["a", "x", "b"], ["b", "x", "a"])
    )
    result = compared(one, other, tmp_path)
    assert [each.node for each in result.changed] == ["Concat#0"] and [each.value for each in result.apart] == ["y"]
