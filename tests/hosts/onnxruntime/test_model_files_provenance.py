from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose
from onnx import helper

import noyau
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.function_bodies import FusedNode
from noyau.hosts.onnxruntime.model_files import Provenance, library_state, provenance_of, sha256_of, sign, take_apart
from noyau.hosts.onnxruntime.write_back import write_back
from tests.small_models import NODE, arrays_for, model_of, plain, twice, value


def fused_twice() -> onnx.ModelProto:
    """Two places of one operator, and one of another."""
    places = [
        ("chain_0_1f", (0, 1, 2), "x", "a"),
        ("chain_0_1f", (4, 5, 6), "b", "c"),
        ("minus_1_2e", (8, 9), "d", "y"),
    ]
    return write_back(twice(), [FusedNode(name, nodes, (read,), (made,)) for name, nodes, read, made in places])


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def signed(tmp_path: Path) -> onnx.ModelProto:
    (tmp_path / "source.onnx").write_bytes(b"the source")
    (tmp_path / "m.so").write_bytes(b"the library")
    model = fused_twice()
    sign(model, tmp_path / "source.onnx", "x86-64-v3", {"chain_0_1f": "int x;"}, tmp_path / "m.so")
    return model


def test_a_model_says_where_it_comes_from(signed: onnx.ModelProto) -> None:
    assert {entry.key: entry.value for entry in signed.metadata_props} == {
        "noyau.version": noyau.__version__,
        "noyau.target": "x86-64-v3",
        "noyau.source_sha256": sha256(b"the source"),
        "noyau.library_sha256": sha256(b"the library"),
    }
    told = provenance_of(onnx.load_from_string(signed.SerializeToString()))
    assert told == Provenance(noyau.__version__, "x86-64-v3", sha256(b"the source"), sha256(b"the library"))
    assert provenance_of(twice()) is None


def test_a_function_says_which_text_it_stands_for(signed: onnx.ModelProto) -> None:
    told = {each.name: {entry.key: entry.value for entry in each.metadata_props} for each in signed.functions}
    assert told["chain_0_1f"] == {"noyau.target": "x86-64-v3", "noyau.text_sha256": sha256(b"int x;")}
    assert told["minus_1_2e"] == {}


def test_what_the_user_has_in_the_metadata_stays(tmp_path: Path) -> None:
    model = fused_twice()
    model.metadata_props.add(key="author", value="me")
    model.metadata_props.add(key="noyau.version", value="0.0.1")
    (tmp_path / "m.so").write_bytes(b"")
    for _ in range(2):
        sign(model, tmp_path / "m.so", "x86-64", {}, tmp_path / "m.so")
    assert [entry.key for entry in model.metadata_props][:2] == ["author", "noyau.version"]
    assert len(model.metadata_props) == 5
    assert provenance_of(model).version == noyau.__version__


def test_a_model_without_kernels_is_left_as_it_is(tmp_path: Path) -> None:
    model = plain()
    sign(model, tmp_path / "missing", "x86-64", {}, None)
    assert model == plain()


def test_a_signed_model_runs(signed: onnx.ModelProto) -> None:
    feeds = arrays_for(twice())
    found = runs.run(sessions.open_session(signed.SerializeToString()), feeds)["y"]
    assert_allclose(found, runs.run(sessions.open_session(twice().SerializeToString()), feeds)["y"], rtol=1e-5)


def test_the_library_is_known_by_its_bytes(tmp_path: Path, signed: onnx.ModelProto) -> None:
    told = provenance_of(signed)
    assert library_state(tmp_path / "m.onnx", told) == "as written"
    (tmp_path / "m.so").write_bytes(b"the librarz")
    assert library_state(tmp_path / "m.onnx", told) == "another one"
    (tmp_path / "m.so").unlink()
    assert library_state(tmp_path / "m.onnx", told) == "missing"


def test_a_digest_is_that_of_the_whole_file(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(tmp_path / "file") == sha256(content)


def test_taken_apart_it_is_the_model_that_it_was(signed: onnx.ModelProto) -> None:
    apart = take_apart(signed)
    onnx.checker.check_model(apart, full_check=True)
    assert [node.op_type for node in apart.graph.node] == [node.op_type for node in twice().graph.node]
    assert (list(apart.functions), provenance_of(apart)) == ([], None)
    assert [entry.domain for entry in apart.opset_import] == [""]
    names = [name for node in apart.graph.node for name in node.output]
    assert len(set(names)) == len(names)
    feeds = arrays_for(twice())
    found = runs.run(sessions.open_session(apart.SerializeToString()), feeds)["y"]
    assert_allclose(found, runs.run(sessions.open_session(twice().SerializeToString()), feeds)["y"], rtol=1e-5)
    assert len(signed.functions) == 2  # the model itself is unchanged


def test_a_model_without_fused_nodes_is_itself() -> None:
    model = twice()
    assert take_apart(model) is model


def test_shapes_that_a_body_reads_besides_are_found_again() -> None:
    nodes = [NODE("Shape", ["like"], ["shape"]), NODE("Exp", ["x"], ["e"]), NODE("Neg", ["e"], ["n"])]
    nodes.append(NODE("Reshape", ["n", "shape"], ["y"]))
    model = model_of(nodes, [value("x", ("n",)), value("like", ("a", "b"))], [value("y", ("a", "b"))])
    fused = write_back(model, [FusedNode("minus_0_1f", (1, 2, 3), ("x",), ("y",))])
    assert len(fused.graph.node[-1].input) == 2
    feeds = {"x": np.arange(6, dtype=np.float32), "like": np.zeros((2, 3), np.float32)}
    apart = take_apart(fused)
    assert [node.op_type for node in apart.graph.node] == ["Shape", "Exp", "Neg", "Reshape"]
    assert_allclose(runs.run(sessions.open_session(apart.SerializeToString()), feeds)["y"].ravel(), -np.exp(feeds["x"]))


def claimed(**changes: object) -> onnx.ModelProto:
    """A node of noyau's domain with a function that noyau cannot have written."""
    body = [NODE("Neg", ["a"], ["b"])]
    given = {
        "inputs": ["a"],
        "outputs": ["b"],
        "nodes": body,
        "opset_imports": [helper.make_opsetid("", 18)],
        **changes,
    }
    function = helper.make_function("noyau", "mine", **given)
    return model_of([NODE("mine", ["x"], ["y"], domain="noyau")], [value("x")], [value("y")], functions=[function])


BRANCH = helper.make_graph([NODE("Neg", ["a"], ["c"])], "branch", [], [value("c")])


@pytest.mark.parametrize(
    "model",
    [
        claimed(attributes=["alpha"]),
        claimed(opset_imports=[helper.make_opsetid("", 17)]),
        claimed(nodes=[NODE("other", ["a"], ["b"], domain="noyau")]),
        claimed(nodes=[NODE("If", ["a"], ["b"], then_branch=BRANCH, else_branch=BRANCH)]),
        model_of([NODE("gone", ["x"], ["y"], domain="noyau")], [value("x")], [value("y")]),
    ],
)
def test_what_noyau_cannot_have_written_stays(model: onnx.ModelProto) -> None:
    assert take_apart(model) is model


def test_branches_are_taken_apart_too_and_a_function_that_another_calls_stays() -> None:
    model = fused_twice()
    then = helper.make_graph([NODE("minus_1_2e", ["x"], ["t"], domain="noyau")], "then", [], [value("t", None)])
    other = helper.make_graph([NODE("Neg", ["x"], ["o"])], "other", [], [value("o", None)])
    model.graph.input.append(value("c", (), onnx.TensorProto.BOOL))
    model.graph.node.append(NODE("If", ["c"], ["z"], then_branch=then, else_branch=other))
    apart = take_apart(model)
    inner = [node.op_type for attribute in apart.graph.node[-1].attribute for node in attribute.g.node]
    assert "minus_1_2e" not in inner and inner.count("Neg") > 0 and not apart.functions
    assert [entry.domain for entry in apart.opset_import] == [""]

    opsets = [helper.make_opsetid("noyau", 1)]
    call = NODE("minus_1_2e", ["x"], ["t"], domain="noyau")
    model.functions.append(helper.make_function("own", "caller", ["x"], ["t"], [call], opsets))
    apart = take_apart(model)
    assert [function.name for function in apart.functions] == ["minus_1_2e", "caller"]
    assert [entry.domain for entry in apart.opset_import] == ["", "noyau"]


def test_hostile_bodies_do_no_harm() -> None:
    """A body that reads what nothing makes, more values than it is given, and names that the model has already."""
    nodes = [NODE("Add", ["a", "nothing"], ["y"]), NODE("Neg", ["y"], ["x"]), NODE("Neg", ["x"], ["b"])]
    apart = take_apart(claimed(nodes=nodes))
    names = [name for node in apart.graph.node for name in node.output]
    assert len({*names, "x"}) == 4
    assert names[-1] == "y"
    assert apart.graph.node[0].input[0] == "x"
