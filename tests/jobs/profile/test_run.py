from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

import noyau
from noyau.errors import InputError, ModelError
from noyau.hosts.onnxruntime.model_files import Provenance
from noyau.jobs.profile import run as profile_run
from noyau.jobs.profile.run import ProfileOptions, profile
from tests.control_flow import arrays, control_flow
from tests.jobs.profile.near import USUAL
from tests.small_models import BARE, KINDS, NODE, llama, model_of, plain, twice, value, written

QUICK = 0.02  # seconds of the clock: nothing here depends on what it says
UNFED = ("strings", "sequence in", "any rank")  # inputs that cannot be made up


@pytest.fixture
def quick(near, monkeypatch):
    """No process is started, and what the profiler adds is not measured."""
    monkeypatch.setattr(profile_run, "measure_overhead", lambda bench: USUAL)


def profiled(model: onnx.ModelProto, folder, **wishes):
    return profile(written(model, folder), ProfileOptions(budget_s=QUICK, **wishes))


@pytest.mark.parametrize(
    "kind", sorted({*KINDS, *BARE} - {*UNFED, "strange operator", "a newer opset", "strings alone"})
)
def test_models_of_every_kind_are_profiled(kind, quick, tmp_path):
    made = profiled({**KINDS, **BARE}[kind], tmp_path)
    (at,) = made.at
    assert sum(node.time_s for node in at.nodes) + at.between_s == pytest.approx(at.run_s)
    assert all(node.stands_for for node in at.nodes)
    assert bool(at.paths) == (kind in KINDS and kind != "no inputs")  # what is computed once is no path
    assert json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert str(made).startswith("model.onnx: ")


@pytest.mark.parametrize("kind", ["branches", "loop", "function"])
def test_operators_of_subgraphs_and_functions_are_in_the_file(kind, quick, tmp_path):
    made = profiled(KINDS[kind], tmp_path)
    assert [row.operator for row in made.at[0].operators if not row.in_file] == []


def test_an_llama_s_nodes_are_all_known(quick):
    made = profile(llama("torchscript"), ProfileOptions(budget_s=QUICK, dims={"sequence": 7}))
    (at,) = made.at
    assert all(node.stands_for for node in at.nodes)
    assert at.sizes == {"batch": 1, "sequence": 7}
    assert [path for path in at.paths if path.bytes is None] == []
    assert sum(path.places for path in at.paths) > len(at.paths) > 5
    assert at.memory.largest[0].name == "logits"
    assert at.memory.weights > 800_000
    covered = {name for node in at.nodes for name in node.stands_for}
    assert len(covered) + at.removed == made.nodes


def test_sizes_one_after_the_other(quick, tmp_path):
    made = profiled(plain(), tmp_path, dims={"rows": [1, 128]})
    assert [at.sizes for at in made.at] == [{"rows": 1}, {"rows": 128}]
    assert [path.bytes for at in made.at for path in at.paths] == [2 * 6 * 4, 128 * 2 * 6 * 4]


def test_inputs_of_one_s_own(quick, tmp_path):
    np.savez(tmp_path / "f.npz", x=np.ones(4, np.float32), s=np.array(["a", "b", "c"]))
    made = profiled(KINDS["strings"], tmp_path, inputs=tmp_path / "f.npz")
    assert {"x f32[4]: from f.npz", "s other[3]: from f.npz"} <= set(made.at[0].notes)
    with pytest.raises(InputError, match=r"gives every size: leave out --dim n=N, or the arrays"):
        profiled(KINDS["strings"], tmp_path, inputs=tmp_path / "f.npz", dims={"n": 3})


def test_a_model_that_noyau_has_fused(quick, tmp_path):
    original = profile_run.open_model(written(twice(), tmp_path))
    provenance = Provenance("1", "x86-64-v3", "", "")
    assert list(profile_run.remarks(original, [], 0, "")) == []
    (told,) = profile_run.remarks(replace(original, written=provenance), [], 0, "")
    assert "profiled as it was before" in told


def test_outputs_that_nobody_reads_and_values_that_nobody_needs(quick, tmp_path):
    nodes = [NODE("Split", ["x"], ["a", "b"], num_outputs=2), NODE("Exp", ["a"], ["y"]), NODE("Neg", ["b"], ["unused"])]
    nodes += [NODE("TopK", ["y", "k"], ["v", "unread"])]
    count = onnx.numpy_helper.from_array(np.array([2]), "k")
    made = profiled(model_of(nodes, [value("x", (8,))], [value("v", (2,))], [count]), tmp_path)
    assert {node.stands_for for node in made.at[0].nodes} >= {("Exp#1",), ("TopK#3",)}
    assert len({name for node in made.at[0].nodes for name in node.stands_for}) + made.at[0].removed == 4


def test_optional_values(quick, tmp_path):
    tensor = onnx.helper.make_tensor_type_proto(1, ("n",))
    given = onnx.helper.make_value_info("o", onnx.helper.make_optional_type_proto(tensor))
    nodes = [NODE("Optional", ["x"], ["o"]), NODE("OptionalGetElement", ["o"], ["e"]), NODE("Exp", ["e"], ["y"])]
    model = model_of(nodes, [value("x")], [value("y")])
    model.graph.value_info.append(given)
    assert profiled(model, tmp_path).at[0].run_s > 0


@pytest.mark.parametrize("kind", UNFED)
def test_inputs_that_cannot_be_made_up(kind, quick, tmp_path):
    with pytest.raises(InputError, match="is of a type that cannot be made up: give the inputs with --inputs F"):
        profiled(KINDS[kind], tmp_path)


def test_an_operator_that_onnxruntime_does_not_have(quick, tmp_path):
    with pytest.raises(
        ModelError, match=r"model.onnx cannot be profiled: com.example::Strange is no operator of plain"
    ):
        profiled(KINDS["strange operator"], tmp_path)


def test_a_model_that_does_not_run_with_its_inputs(quick, tmp_path):
    nodes = [NODE("Reshape", ["x", "s"], ["y"])]
    shape = onnx.numpy_helper.from_array(np.array([7, -1]), "s")
    model = model_of(nodes, [value("x")], [value("y", None)], [shape])
    with pytest.raises(InputError, match=r"with its inputs of n=5: .* other sizes \(--dim NAME=N\) or arrays of"):
        profiled(model, tmp_path, dims={"n": 5})
    assert profiled(model, tmp_path, dims={"n": 14}).at[0].nodes


def test_sizes_that_do_not_run_are_replaced_by_others_as_optimize_does(quick, tmp_path):
    """It ended with the message that other sizes may do, where optimize found them."""
    nodes = [NODE("Reshape", ["x", "s"], ["y"])]
    shape = onnx.numpy_helper.from_array(np.array([7, 32]), "s")
    made = profiled(model_of(nodes, [value("x")], [value("y", None)], [shape]), tmp_path)
    assert made.at[0].sizes == {"n": 224}


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"threads": -1}, "threads=-1 is no whole number from 0 to 4096"),
        ({"budget_s": -1}, "budget_s=-1 is no number of seconds from 0 on"),
        ({"budget_s": float("nan")}, "budget_s=nan is no number of seconds from 0 on"),
        ({"seed": -1}, "seed=-1 is no whole number from 0 on"),
        ({"top": 0}, "top=0 is no number of rows"),
        ({"dims": {"rows": []}}, "sizes need one value each, or as many as each other: rows has 0"),
        ({"dims": {"rows": [1, 2], "n": [1, 2, 3]}}, "rows has 2, n has 3"),
        ({"dims": {"columns": 3}}, "the model has no size columns; its sizes are: rows"),
        ({"dims": {"rows": -1}}, "sizes are 0 or more"),
        ({"inputs": "missing.npz"}, "missing.npz cannot be read"),
        ({"between": "x:nowhere"}, "nowhere"),
    ],
)
def test_wishes_that_mean_nothing(wishes, message, quick, tmp_path):
    with pytest.raises(InputError, match=message):
        profile(written(plain(), tmp_path), ProfileOptions(**{"budget_s": QUICK, **wishes}))


def test_one_path_alone(quick, tmp_path):
    whole = profiled(twice(), tmp_path).at[0]
    first = twice().graph.node[2].output[0]
    part = profiled(twice(), tmp_path, between=(["x"], [first])).at[0]
    assert [path.places for path in whole.paths if path.replaces[0] == "Tanh"] == [2]
    assert [path.places for path in part.paths] == [1]
    assert len(part.nodes) == len(whole.nodes)


def test_what_is_told_on_the_way(quick, tmp_path):
    said: list[str] = []
    profile(written(plain(), tmp_path), ProfileOptions(budget_s=QUICK, dims={"rows": 3}), said.append)
    assert said == [
        "reading model.onnx",
        "measuring what onnxruntime's profiler adds to each node",
        "running the model with rows=3",
    ]


def test_nodes_that_are_not_known_are_told_of(tmp_path):
    original = profile_run.open_model(written(twice(), tmp_path))
    lost = profile_run.NodeTime("Odd\n", (), True, 1, 1.0)
    told = list(profile_run.remarks(original, [lost, lost], 3, "the host took 2 s away"))
    assert told == [
        "2 nodes of onnxruntime's optimizer cannot be traced to nodes of the file: 'Odd\\n'",
        "3 nodes of the file did not run: computed beforehand by onnxruntime, or left out",
        "the times are doubtful: the host took 2 s away",
    ]


def test_weights_of_every_type_count(tmp_path):
    tensors = [onnx.numpy_helper.from_array(np.ones((3, 5), np.float16), "h")]
    tensors.append(onnx.TensorProto(name="q", data_type=onnx.TensorProto.FLOAT8E4M3FN, dims=[7], raw_data=bytes(7)))
    nodes = [NODE("Identity", ["h"], ["y"])]
    model = model_of(nodes, [], [value("y", (3, 5), onnx.TensorProto.FLOAT16)], tensors)
    original = profile_run.open_model(written(model, tmp_path))
    assert profile_run.weights_bytes(original) == 30 + 7


def test_a_profile_in_processes_of_its_own(tmp_path):
    """The whole, as it is used; the twin of it that crashes is in the tests of workers."""
    made = noyau.profile(written(twice(), tmp_path), dims={"rows": 500}, budget_s=QUICK)
    (at,) = made.at
    assert {node.operator for node in at.nodes} == {"Tanh", "Mul", "Sigmoid", "MatMul", "Exp", "Neg"}
    assert at.memory.running > at.memory.started > 1 << 20
    assert at.traced_s > 0
    with pytest.raises(ModelError, match=r"the process that runs the model: onnxruntime does not open '.*model.onnx'"):
        noyau.profile(written(BARE["a newer opset"], tmp_path), budget_s=QUICK)


def test_what_runs_in_bodies_has_paths_and_a_loop_all_of_its_iterations(quick, tmp_path):
    np.savez(tmp_path / "f.npz", **arrays(64, True, 12))
    made = profiled(control_flow(), tmp_path, inputs=tmp_path / "f.npz")
    (at,) = made.at
    moved = {path.replaces[:2]: path.bytes for path in at.paths}
    cells, row = 64 * 8 * 4, 8 * 4
    assert moved["Cast", "Add"] == 12 * (3 * cells + 8)  # the state, x and the result; and the iteration
    assert moved["Sub", "Abs"] == 12 * 3 * cells
    assert moved["Sub", "Mul"] == 64 * 4 * row
    labels = {name for node in at.nodes for name in node.stands_for}
    assert {"Relu#0", "If_1/then_branch/Mul#0", "Scan_6/body/Sqrt#3", "Loop_4/body/If_5/then_branch/Abs#1"} <= labels
    assert not any("else_branch" in name for name in labels) and len(labels) + at.removed == made.nodes
    assert {each.name for each in at.memory.largest} >= {"zs", "y"}
    sigmoid = next(node for node in at.nodes if node.stands_for == ("Loop_4/body/Sigmoid#4",))
    assert sigmoid.calls == 12 and sigmoid.kernel and not sigmoid.made_by_optimizer
