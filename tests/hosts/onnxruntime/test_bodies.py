from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest

from noyau.codegen import plan as codegen_plan
from noyau.frontends.onnx_messages import every_node
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.bodies import laid_flat, restore_bodies
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.model_files import take_apart
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.hosts.onnxruntime.write_back import installable, library, put_back
from noyau.toolchain.c import compiler as c_compiler
from tests.control_flow import arrays, control_flow
from tests.small_models import written

GROWING = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,8] x, int64 trip) => (float[m,8] y) {{
  y = Loop (trip, , x) <body = b (int64 i, bool go, h) => (bool go2, h2) {{
    go2 = Identity (go)
    u = Sigmoid (h)
    v = Mul (u, h)
    {last}
  }}>
}}"""


def kernels_of(original: SourceModel) -> codegen_plan.Plan:
    plan = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level())
    return installable(plan, original.model, original.folder)


@dataclass
class Fused:
    original: SourceModel
    plan: codegen_plan.Plan
    model: onnx.ModelProto
    sessions: list

    def outputs(self, feeds) -> list[dict[str, np.ndarray]]:
        """Of the model as it came, then of the fused one with its library and without."""
        return [runs.run(session, feeds) for session in self.sessions]


def fused(model: onnx.ModelProto, folder) -> Fused:
    original = open_model(written(model, folder), flat=True)
    plan = kernels_of(original)
    result = restore_bodies(put_back(original.model, plan.kernels, original.folder), original.bodies)
    built = library(plan.kernels, c_compiler.DEFAULTS, result)
    content = result.SerializeToString()
    opened = [sessions.open_session(original.path, optimized=False)]
    opened += [sessions.open_session(content, built), sessions.open_session(content)]
    return Fused(original, plan, result, opened)


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Fused:
    return fused(control_flow(), tmp_path_factory.mktemp("bodies"))


def test_bodies_lie_behind_the_main_graph_and_go_back_as_they_were(everything):
    original = everything.original
    names = [body.name for body in original.bodies]
    assert names == [
        "If_1/then_branch",
        "If_1/else_branch",
        "always/then_branch",
        "always/else_branch",
        "Loop_4/body",
        "Scan_6/body",
        "Loop_4/body/If_5/then_branch",
        "Loop_4/body/If_5/else_branch",
    ]
    assert original.operators[:7] == ("Relu", "If", "Constant", "If", "Loop", "Constant", "Scan")
    assert original.labels[7:9] == ("If_1/then_branch/Mul#0", "If_1/then_branch/Sigmoid#1")
    assert {label for label in original.labels if original.labels.count(label) > 1} == {""}  # what enters a body
    assert restore_bodies(original.model, original.bodies).SerializeToString() == control_flow().SerializeToString()
    assert original.runnable.SerializeToString() == original.before.SerializeToString()
    inputs = {node.output for node in original.feed_model.graph.inputs}
    assert inputs - original.feed_model.initializers.keys() == {"x", "c", "trip"}


def test_no_kernel_reaches_into_a_body_or_out_of_one(everything):
    kernels = [everything.original.locate(kernel) for kernel in everything.plan.kernels]
    assert [kernel.replaces for kernel in kernels] == [
        ("If_1/then_branch: Mul", "Sigmoid"),
        ("If_1/else_branch: Mul", "Tanh"),
        ("always/then_branch: Tanh", "Exp"),
        ("Loop_4/body: Cast", "Add", "Mul", "Sigmoid"),
        ("Scan_6/body: Sub", "Mul", "ReduceMean", "Sqrt", "Add", "Identity"),
        ("Loop_4/body/If_5/then_branch: Sub", "Abs"),
    ]
    cuts, labels = everything.original.cut().cuts, everything.original.labels
    reason = "one of them is in a body of control flow, and the other is not in it"
    pairs = {(labels[cut.producer], labels[cut.consumer]) for cut in cuts if cut.reason == reason}
    assert ("Relu#0", "If_1/then_branch/Mul#0") in pairs
    assert ("Loop_4/body/Sigmoid#4", "Loop_4/body/If_5/then_branch/Sub#0") in pairs
    assert all(labels[cut.producer] for cut in cuts)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("trips", [0, 1, 4])  # of a Loop that does not run, the shape of what it would have made
def test_fused_bodies_give_the_same_with_the_library_and_without(everything, taken, trips):
    first, *others = everything.outputs(arrays(5, taken, trips))
    for other in others:
        for name, wanted in first.items():
            np.testing.assert_allclose(other[name], wanted, rtol=1e-5, atol=1e-6, strict=True)


def test_the_library_runs_in_bodies(everything):
    spoilt = onnx.ModelProto.FromString(everything.model.SerializeToString())
    for function in spoilt.functions:
        function.node[-1].op_type, function.node[-1].input[1:] = "Neg", []
    content = spoilt.SerializeToString()
    built = library(everything.plan.kernels, c_compiler.DEFAULTS, everything.model)
    wanted, found = everything.outputs(arrays(3, True, 2))[0], {}
    found = runs.run(sessions.open_session(content, built), arrays(3, True, 2))
    np.testing.assert_allclose(found["z"], wanted["z"], rtol=1e-5)
    assert not np.allclose(runs.run(sessions.open_session(content), arrays(3, True, 2))["z"], wanted["z"])


def test_a_fused_body_is_taken_apart_and_fused_again(everything, tmp_path):
    apart = take_apart(everything.model)
    assert not any(is_own(node.domain) for node in every_node(apart.graph.node)) and not apart.functions
    again = kernels_of(open_model(written(apart, tmp_path), flat=True))
    assert {each.replaces for each in again.kernels} == {each.replaces for each in everything.plan.kernels}


@pytest.mark.parametrize(
    ("last", "extents", "reason"),
    [
        ("h2 = Concat <axis = 0> (v, h)", ["2*d0", "8"], ""),
        ("k = Constant <value_ints = [0]> () h2 = Unsqueeze (v, k)", None, "the type or the rank of Loop_0/body/h"),
        ("h2 = Identity (v)", ["n", "8"], ""),
    ],
    ids=["more rows", "more axes", "as it was"],
)
def test_a_loop_takes_for_known_what_it_keeps(last, extents, reason, tmp_path):
    model = onnx.parser.parse_model(GROWING.format(last=last))
    one = fused(model, tmp_path) if "Concat" in last else None
    original = one.original if one else open_model(written(model, tmp_path), flat=True)
    (groups, cuts) = original.cut().groups, original.cut().cuts
    shapes = [[str(dim) for dim in group.graph[group.outputs[0]].shape] for group in groups]
    if extents is None:
        assert not groups and any(cut.reason.startswith(reason) for cut in cuts)
        return
    assert shapes[0] == extents
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    for found in one.outputs({"x": x, "trip": np.array(3)})[1:] if one else ():
        np.testing.assert_allclose(found["y"], one.outputs({"x": x, "trip": np.array(3)})[0]["y"], rtol=1e-5)


def test_names_that_begin_as_those_of_a_body_do_are_no_trouble():
    model = control_flow()
    model.graph.node[0].output[0] = "If_1/then_branch/u"
    for body in (attribute.g for attribute in model.graph.node[1].attribute):
        body.node[0].input[0] = "If_1/then_branch/u"
    model.graph.node[3].name = "Loop_4"
    flat, bodies = laid_flat(model, ())
    names = [body.name for body in bodies][::2]
    assert names[:3] == ["If_1_2/then_branch", "Loop_4/then_branch", "Loop_4_2/body"]
    assert restore_bodies(flat, bodies).SerializeToString() == model.SerializeToString()


def test_a_body_that_is_not_well_formed_is_not_looked_into(tmp_path):
    model = control_flow()
    body = model.graph.node[4].attribute[0].g
    body.node.append(body.node[0])  # it makes a value twice
    original = open_model(written(model, tmp_path), flat=True)
    assert original.bodies == () and original.runnable is original.model
    model = control_flow()
    next(each for each in model.graph.node[6].attribute if each.name == "num_scan_inputs").i = 9
    assert laid_flat(model, ())[0].graph.output[-1].name.startswith("Loop_4/body/If_5/")
