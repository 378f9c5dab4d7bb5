"""Parts of models replaced by single nodes, and what must stay as it was."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from onnx import helper
from onnx.external_data_helper import set_external_data

from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.frontends.onnx_messages import reads
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.function_bodies import FusedNode, ValueType
from noyau.hosts.onnxruntime.write_back import refusals, write_back
from tests.hosts.kernels import STAND_INS, Arrays, build_library, kernel_text, model_of
from tests.hosts.models import (
    HOSTILE,
    NODE,
    constant,
    floats,
    node_types,
    random_parts,
    reshaped,
    run,
    same,
    tiny_llama,
    two_norms,
    with_outer_shape,
)

# The two norms of `two_norms`.
FIRST = FusedNode("norm_1f", tuple(range(6)), ("x", "w"), ("y",))
SECOND = FusedNode("norm_1f", tuple(range(7, 13)), ("t", "w"), ("z",))


def test_equal_parts_share_one_function() -> None:
    model = two_norms()
    parts = [FIRST, SECOND]
    found = write_back(model, parts)
    assert node_types(found) == ["norm_1f", "Tanh", "norm_1f"]
    assert [(each.domain, each.name, len(each.input)) for each in found.functions] == [("noyau", "norm_1f", 2)]
    assert [node.op_type for node in found.functions[0].node][-6:] == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]
    assert len({node.name for node in found.graph.node}) == 3
    assert [tensor.name for tensor in found.graph.initializer] == ["w"]
    assert same(model, found)


def test_the_model_given_is_unchanged() -> None:
    model = two_norms()
    before = model.SerializeToString(deterministic=True)
    write_back(model, [FIRST])
    assert model.SerializeToString(deterministic=True) == before


def test_without_parts_the_model_is_the_same() -> None:
    model = tiny_llama("dynamo")
    assert write_back(model, []).SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_another_spelling_may_share_a_function() -> None:
    """A kernel does not ask how its part was spelt: the first body is right for both."""
    nodes = [NODE("Div", ["x", "s"], ["y"]), NODE("Reciprocal", ["s"], ["r"]), NODE("Mul", ["y", "r"], ["z"])]
    model = model_of(nodes, [floats("x", "n", 8)], [floats("z", "n", 8)], [constant("s", np.float32(4))])
    parts = [FusedNode("over_1f", (0,), ("x", "s"), ("y",)), FusedNode("over_1f", (1, 2), ("y", "s"), ("z",))]
    found = write_back(model, parts)
    assert node_types(found) == ["over_1f", "over_1f"]
    assert len(found.functions[0].node) == 1
    assert same(model, found)


def feeds_of_shape() -> Arrays:
    return {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32), "ids": np.zeros(3, np.int64)}


def test_what_only_the_body_reads_becomes_an_extra_input() -> None:
    model = with_outer_shape(reshaped("b", "x", "z", "shape"), ["y", "z"])
    parts = [FusedNode("tanh_1f", (2, 3), ("x",), ("y",)), FusedNode("tanh_1f", (4, 5), ("x",), ("z",))]
    found = write_back(model, parts)
    assert [list(node.input) for node in found.graph.node[2:]] == [["x", "shape"], ["x", "shape"]]
    assert len(found.functions) == 1
    assert same(model, found, feeds_of_shape())


def test_a_body_that_reads_what_the_kernel_reads_is_preferred() -> None:
    own_shape = [NODE("Shape", ["x"], ["full"]), NODE("Tanh", ["x"], ["bt"]), NODE("Reshape", ["bt", "full"], ["z"])]
    model = with_outer_shape(own_shape, [])
    model.graph.output.extend([floats("y", None, None), floats("z", None, None)])
    model.graph.initializer[0].CopyFrom(constant("rest", np.array([8])))
    parts = [FusedNode("tanh_1f", (2, 3), ("x",), ("y",)), FusedNode("tanh_1f", (5, 6), ("x",), ("z",))]
    found = write_back(model, parts)
    assert node_types(found) == ["tanh_1f", "tanh_1f"]
    assert [list(node.input) for node in found.graph.node] == [["x"], ["x"]]
    assert same(model, found, feeds_of_shape())


def test_parts_that_cannot_share_a_body_are_refused() -> None:
    other = [
        NODE("Concat", ["rest", "size"], ["back"], axis=0),
        NODE("Reshape", ["x", "back"], ["bt"]),
        NODE("Tanh", ["bt"], ["z"]),
    ]
    model = with_outer_shape(other, ["y", "z"])
    parts = [FusedNode("tanh_1f", (2, 3), ("x",), ("y",)), FusedNode("tanh_1f", (5, 6), ("x",), ("z",))]
    assert list(refusals(model, parts)) == [1]
    with pytest.raises(GraphError, match=r"tanh_1f.*cannot share a body"):
        write_back(model, parts)
    assert same(model, write_back(model, parts[:1]), feeds_of_shape())


def test_shape_arithmetic_of_its_own_inputs_is_part_of_the_body() -> None:
    nodes = [NODE("Shape", ["x"], ["size"], start=0, end=1), NODE("Concat", ["size", "rest"], ["shape"], axis=0)]
    nodes += reshaped("a", "x", "y", "shape")
    model = model_of(
        nodes, [floats("x", "n", 8)], [floats("y", None, None, None)], [constant("rest", np.array([2, 4]))]
    )
    found = write_back(model, [FusedNode("tanh_1f", (2, 3), ("x",), ("y",))])
    assert node_types(found) == ["tanh_1f"]
    assert list(found.graph.node[0].input) == ["x"]
    assert same(model, found)


def test_a_large_constant_stays_an_input() -> None:
    nodes = [NODE("Add", ["x", "big"], ["y"])]
    model = model_of(
        nodes, [floats("x", "n", 8)], [floats("y", None, 8)], [constant("big", np.ones((1000, 8), np.float32))]
    )
    found = write_back(model, [FusedNode("add_1f", (0,), ("x",), ("y",))])
    assert list(found.graph.node[0].input) == ["x", "big"]
    assert found.ByteSize() < model.ByteSize() + 500
    assert same(model, found, {"x": np.ones((1, 8), np.float32)})


def test_a_value_that_something_outside_still_reads_is_still_made() -> None:
    nodes = [
        NODE("Exp", ["x"], ["e"]),
        NODE("Neg", ["e"], ["m"]),
        NODE("Tanh", ["m"], ["y"]),
        NODE("Sqrt", ["e"], ["z"]),
    ]
    model = model_of(nodes, [floats("x", "n", 8)], [floats("y", "n", 8), floats("z", "n", 8)])
    found = write_back(model, [FusedNode("both_1f", (0, 1, 2), ("x",), ("y",))])
    assert node_types(found) == ["Exp", "both_1f", "Sqrt"]
    assert same(model, found)
    exposed = write_back(model, [FusedNode("both_1f", (0, 1, 2), ("x",), ("y", "e"))])
    assert node_types(exposed) == ["both_1f", "Sqrt"]
    assert same(model, exposed)


def test_parts_may_overlap() -> None:
    """A producer that is cheap to compute again may be in two parts."""
    nodes = [NODE("Exp", ["x"], ["e"]), NODE("Neg", ["e"], ["y"]), NODE("Sqrt", ["e"], ["z"])]
    model = model_of(nodes, [floats("x", "n", 8)], [floats("y", "n", 8), floats("z", "n", 8)])
    found = write_back(model, [FusedNode("a_1f", (0, 1), ("x",), ("y",)), FusedNode("b_1f", (0, 2), ("x",), ("z",))])
    assert sorted(node_types(found)) == ["a_1f", "b_1f"]
    assert same(model, found)


def test_a_value_that_only_a_subgraph_reads_is_still_made() -> None:
    branches = [
        helper.make_graph([NODE("Neg", ["e"], [name])], name, [], [floats(name, None, None)])
        for name in ("then", "other")
    ]
    nodes = [NODE("Exp", ["x"], ["e"]), NODE("Tanh", ["e"], ["y"])]
    nodes.append(NODE("If", ["yes"], ["z"], then_branch=branches[0], else_branch=branches[1]))
    model = model_of(nodes, [floats("x", "n", 8)], [floats("y", "n", 8), floats("z", "n", 8)], [constant("yes", True)])
    assert reads(nodes[2]) == {"yes", "e"}
    found = write_back(model, [FusedNode("both_1f", (0, 1), ("x",), ("y",))])
    assert sorted(node_types(found)) == ["Exp", "If", "both_1f"]
    assert same(model, found)


def test_one_output_of_a_node_may_be_given_and_another_kept() -> None:
    nodes = [
        NODE("Split", ["x"], ["l", "r"], axis=1, num_outputs=2),
        NODE("Neg", ["l"], ["y"]),
        NODE("Exp", ["r"], ["z"]),
    ]
    model = model_of(nodes, [floats("x", "n", 8)], [floats("y", "n", 4), floats("z", "n", 4), floats("l", "n", 4)])
    found = write_back(model, [FusedNode("half_1f", (0, 1), ("x",), ("y", "l"))])
    assert node_types(found) == ["Split", "half_1f", "Exp"] or node_types(found) == ["half_1f", "Split", "Exp"]
    assert same(model, found)


def test_nodes_are_put_where_order_allows() -> None:
    nodes = [
        NODE("Exp", ["x"], ["a"]),
        NODE("Neg", ["a"], ["o"]),
        NODE("Tanh", ["a"], ["y"]),
        NODE("Abs", ["x"], ["q"]),
    ]
    nodes.append(NODE("Add", ["o", "q"], ["z"]))
    model = model_of(nodes, [floats("x", "n", 8)], [floats("y", "n", 8), floats("z", "n", 8)])
    found = write_back(model, [FusedNode("two_1f", (0, 2), ("x",), ("a", "y"))])
    assert node_types(found) == ["two_1f", "Neg", "Abs", "Add"]
    assert same(model, found)


def test_a_part_that_is_not_convex_is_refused() -> None:
    nodes = [NODE("Exp", ["x"], ["a"]), NODE("Neg", ["a"], ["b"]), NODE("Add", ["a", "b"], ["y"])]
    model = model_of(nodes, [floats("x", "n", 8)], [floats("y", "n", 8)])
    with pytest.raises(GraphError, match="'bad_1f' cannot be put back into the model: a path leaves it and c"):
        write_back(model, [FusedNode("bad_1f", (0, 2), ("x", "b"), ("a", "y"))])


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (FusedNode("a_1f", (), ("x",), ("y",)), "no nodes"),
        (FusedNode("a_1f", (99,), ("x",), ("y",)), "no nodes"),
        (FusedNode("a_1f", tuple(range(6)), ("x", "x"), ("y",)), "an input .* twice"),
        (FusedNode("a_1f", tuple(range(6)), ("x", ""), ("y",)), "an input has no name"),
        (FusedNode("a_1f", tuple(range(6)), ("x",), ()), "no outputs"),
        (FusedNode("a_1f", tuple(range(6)), ("x",), ("z",)), "'z' is not made inside"),
        (FusedNode("a_1f", tuple(range(6)), ("x", "a1"), ("y",)), "'a1' is made inside"),
        (FusedNode("a_1f", (6,), ("y",), ("t",), (ValueType(DType.F32, ("n", 8)),) * 2), "one type for each output"),
        (FusedNode("a*/", (6,), ("y",), ("t",)), "letters, digits and _"),
    ],
)
def test_a_wrong_part_is_refused(part: FusedNode, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        write_back(two_norms(), [part])


def test_an_output_given_twice_is_refused() -> None:
    parts = [FusedNode("a_1f", (6,), ("y",), ("t",)), FusedNode("b_1f", (6,), ("y",), ("t",))]
    assert list(refusals(two_norms(), parts)) == [1]


def test_a_node_with_a_subgraph_is_refused() -> None:
    branch = helper.make_graph([NODE("Neg", ["x"], ["b"])], "branch", [], [floats("b", None, None)])
    nodes = [NODE("If", ["yes"], ["z"], then_branch=branch, else_branch=branch)]
    model = model_of(nodes, [floats("x", "n", 8)], [floats("z", "n", 8)], [constant("yes", True)])
    with pytest.raises(GraphError, match="has a subgraph"):
        write_back(model, [FusedNode("a_1f", (0,), ("x", "yes"), ("z",))])


def test_names_of_the_model_do_not_reach_the_function() -> None:
    names = ["x", *HOSTILE, "z"]
    nodes = [NODE("Exp" if number % 2 else "Tanh", [a], [b], name=a) for number, (a, b) in enumerate(pairwise(names))]
    for node in nodes:
        node.doc_string = "*/ hostile"
    model = model_of(nodes, [floats("x", "n", 8)], [floats("z", "n", 8)])
    found = write_back(model, [FusedNode("chain_1f", tuple(range(len(nodes))), ("x",), ("z", HOSTILE[0], HOSTILE[3]))])
    function = found.functions[0]
    assert not function.doc_string
    for node in function.node:
        assert not node.doc_string
        for name in (*node.input, *node.output):
            assert name.isascii()
            assert name.isidentifier()
            assert len(name) < 80
    assert len({name for node in function.node for name in node.output}) == len(nodes)
    assert same(model, found)


def test_what_no_part_covers_stays_as_it_was() -> None:
    model = two_norms()
    between = model.graph.node[6]
    between.doc_string = "kept"
    dead = NODE("Neg", ["x"], ["nobody"], name="dead", doc_string="kept too")
    model.graph.node.insert(7, dead)
    model.graph.initializer.append(constant("unused", np.float32(3)))
    model.graph.value_info.append(floats("a0", "n", 8))
    model.graph.value_info.append(floats("t", "n", 8))
    model.metadata_props.add(key="author", value="somebody")
    model.producer_name = "exporter"
    found = write_back(model, [FIRST])
    assert [node.SerializeToString() for node in found.graph.node][1:] == [
        node.SerializeToString() for node in model.graph.node[6:]
    ]
    assert list(found.graph.initializer) == list(model.graph.initializer)
    assert [value.name for value in found.graph.value_info] == ["t"]
    assert list(found.metadata_props) == list(model.metadata_props)
    assert found.producer_name == "exporter"
    assert found.graph.input == model.graph.input
    assert same(model, found)


def test_external_data_stays_in_its_file(tmp_path: Path) -> None:
    model = two_norms()
    stored = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in stored.graph.initializer:
        if tensor.name in ("w", "eps"):
            set_external_data(tensor, "m.data")
    onnx.save(stored, tmp_path / "m.onnx")
    light = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    found = write_back(light, [FIRST], tmp_path)
    assert list(found.graph.node[0].input) == ["x", "w"]
    assert list(found.graph.initializer) == list(light.graph.initializer)
    onnx.save(found, tmp_path / "found.onnx")
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}
    session = sessions.open_session(tmp_path / "found.onnx", threads=1, optimized=False)
    assert_array_equal(runs.run(session, feeds)["z"], run(model, feeds)["z"])


def test_the_models_own_functions_are_kept_and_may_be_called_from_a_body() -> None:
    double = helper.make_function(
        "own", "Double", ["a"], ["b"], [NODE("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    nodes = [NODE("Double", ["x"], ["y"], domain="own"), NODE("Neg", ["y"], ["z"])]
    model = model_of(nodes, [floats("x", "n", 8)], [floats("z", "n", 8)], functions=[double])
    found = write_back(model, [FusedNode("both_1f", (0, 1), ("x",), ("z",))])
    assert [(each.domain, each.name) for each in found.functions] == [("own", "Double"), ("noyau", "both_1f")]
    assert found.functions[0] == double
    assert same(model, found)


def test_versions_are_raised_to_what_functions_need() -> None:
    model = two_norms()
    model.ir_version = 7
    found = write_back(model, [FIRST])
    assert found.ir_version == 8
    assert {entry.domain: entry.version for entry in found.opset_import} == {"": 18, "noyau": 1}
    model.ir_version = 10
    assert write_back(model, [FIRST]).ir_version == 10


def test_a_model_may_be_written_back_again() -> None:
    """A part that holds nodes which are fused already has their bodies in its own."""
    parts = [FIRST, SECOND]
    once = write_back(two_norms(), parts)
    more = write_back(once, [FusedNode("more_2e", (0, 1), ("x", "w"), ("t",))])
    assert node_types(more) == ["more_2e", "norm_1f"]
    assert {node.op_type for node in more.functions[1].node} >= {"Pow", "Tanh"}
    assert same(two_norms(), more)
    alike = write_back(
        once, [FusedNode("norm_1f", (0,), ("x", "w"), ("y",)), FusedNode("norm_1f", (2,), ("t", "w"), ("z",))]
    )
    assert node_types(alike) == ["norm_1f", "Tanh", "norm_1f"]
    assert len(alike.functions) == 1
    assert same(two_norms(), alike)


def test_a_name_that_the_model_uses_otherwise_is_refused() -> None:
    once = write_back(two_norms(), [FIRST])
    with pytest.raises(GraphError, match="the model has an operator of this name already"):
        write_back(once, [FusedNode("norm_1f", (1,), ("y",), ("t",))])
    replaced = write_back(once, [FusedNode("norm_1f", (0, 1), ("x", "w"), ("t",))])
    assert len(replaced.functions) == 1
    assert same(two_norms(), replaced)


def test_a_fused_node_that_stays_does_not_get_the_function_of_another() -> None:
    once = write_back(two_norms(), [FIRST])
    once.graph.output.append(floats("y", "n", 8))
    with pytest.raises(GraphError, match="a node of the model has an operator of this name"):
        write_back(once, [FusedNode("norm_1f", (0, 1), ("x", "w"), ("t",))])


def test_a_fused_node_without_a_body_is_refused() -> None:
    once = write_back(two_norms(), [FIRST])
    del once.functions[:]
    with pytest.raises(GraphError, match="no body that noyau could have written"):
        write_back(once, [FusedNode("more_2e", (0, 1), ("x", "w"), ("t",))])


def test_dtypes_and_ranks_of_outputs_are_written() -> None:
    """More would make onnxruntime fuse the bodies otherwise than what was there before."""
    kinds = (ValueType(DType.F32, ("n", 8)),)
    model = two_norms()
    found = write_back(model, [FusedNode("norm_1f", tuple(range(6)), ("x", "w"), ("y",), kinds)])
    assert list(found.graph.value_info) == [floats("y", None, None)]
    model.graph.value_info.append(floats("y", "rows", 8))
    found = write_back(model, [FusedNode("norm_1f", tuple(range(6)), ("x", "w"), ("y",), kinds)])
    assert list(found.graph.value_info) == [floats("y", "rows", 8)]


def test_the_kernel_replaces_the_body_in_a_written_model(tmp_path: Path) -> None:
    stand_in = STAND_INS["scale_add"]
    nodes = [
        NODE("Neg", ["x"], ["n"]),
        NODE("Mul", ["n", "w"], ["p"]),
        NODE("Add", ["p", "s"], ["q"]),
        NODE("Abs", ["q"], ["out"]),
    ]
    inputs, outputs = stand_in.types()
    model = model_of(nodes, inputs, outputs)
    found = write_back(model, [FusedNode("scale_add_1f", (1, 2), ("n", "w", "s"), ("q",))])
    build_library({"scale_add_1f": kernel_text(stand_in.text, "scale_add_1f", 1000)}, tmp_path / "m.so")
    feeds = stand_in.feeds(np.random.default_rng(0), 4)
    wanted = run(model, feeds)["out"]
    assert_array_equal(run(found, feeds)["out"], wanted)
    assert run(found, feeds, tmp_path / "m.so")["out"].min() > 900


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["dynamo", "torchscript"])
def test_random_parts_of_a_llama_change_nothing(name: str, seed: int) -> None:
    model = tiny_llama(name)
    parts = random_parts(model, seed)
    assert len(parts) > 5
    found = write_back(model, parts)
    assert len(found.graph.node) < len(model.graph.node)
    rng = np.random.default_rng(seed)
    feeds = {"input_ids": rng.integers(0, 100, (2, 7)), "attention_mask": np.ones((2, 7), np.int64)}
    assert same(model, found, feeds)
