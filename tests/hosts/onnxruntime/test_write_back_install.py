from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from noyau.codegen import plan as codegen_plan
from noyau.dtypes import DType
from noyau.hosts.onnxruntime import runs, sessions, write_back
from noyau.hosts.onnxruntime.function_bodies import ValueType
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.hosts.onnxruntime.write_back import installable, library, put_back, value_type
from noyau.ir.dims import Dim
from noyau.ir.graph import Input, Node
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import arrays_for, twice, written


def planned(tmp_path):
    original = open_model(written(twice(), tmp_path))
    return original, codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level())


def test_each_place_becomes_a_node_and_the_rest_stays(tmp_path):
    original, plan = planned(tmp_path)
    fused = put_back(original.model, plan.kernels, original.folder)
    one, other = (kernel.operator for kernel in plan.kernels)
    assert [node.op_type for node in fused.graph.node] == [one, "MatMul", one, "MatMul", other]
    assert put_back(original.model, [], original.folder).SerializeToString() == original.model.SerializeToString()
    onnx.checker.check_model(fused, full_check=True)


def test_the_library_has_the_kernels_and_lies_in_the_cache(tmp_path, empty_cache):
    original, plan = planned(tmp_path)
    fused, feeds = put_back(original.model, plan.kernels, original.folder), arrays_for(twice())
    built = library(plan.kernels, c_compiler.DEFAULTS, fused)
    assert built.parent == empty_cache
    assert library(plan.kernels, c_compiler.DEFAULTS, fused) == built
    assert library([], c_compiler.DEFAULTS, fused) is None
    wanted = runs.run(sessions.open_session(tmp_path / "model.onnx"), feeds)["y"]
    found = runs.run(sessions.open_session(fused.SerializeToString(), built), feeds)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    output = fused.graph.output[0].type.tensor_type  # of which the kernel knows what hangs on no size
    extents = [each.dim_value for each in output.shape.dim]
    output.ClearField("shape")
    del fused.functions[:]
    told = sessions.open_session(fused.SerializeToString(), built).get_outputs()[0].shape
    assert [isinstance(one, int) and one for one in told] == extents and not all(extents)


def test_two_fused_models_run_with_one_set_of_options(tmp_path, empty_cache):
    """As a server has it: of one architecture, so that the kernels are the same, and with other weights."""
    options, sessions_of, models = onnxruntime.SessionOptions(), {}, {}
    for name, scale in (("a", 1.0), ("b", 3.0)):
        models[name] = twice()
        weight = onnx.numpy_helper.to_array(models[name].graph.initializer[0]) * np.float32(scale)
        models[name].graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
        (tmp_path / name).mkdir()
        original = open_model(written(models[name], tmp_path / name))
        plan = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level())
        sessions_of[name] = put_back(original.model, plan.kernels, original.folder)
        options.register_custom_ops_library(str(library(plan.kernels, c_compiler.DEFAULTS, sessions_of[name])))
    names = [{node.op_type for node in fused.graph.node if node.domain} for fused in sessions_of.values()]
    assert names[0] == names[1] and len(names[0]) == 2
    for name, fused in sessions_of.items():
        fused.functions[0].node[0].op_type = "Neg"  # what runs is the kernel, and not this
        found = onnxruntime.InferenceSession(fused.SerializeToString(), options).run(None, arrays_for(twice()))
        wanted = onnxruntime.InferenceSession(models[name].SerializeToString()).run(None, arrays_for(twice()))
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)


def test_a_library_that_was_damaged_is_built_again(tmp_path, empty_cache):
    original, plan = planned(tmp_path)
    fused = put_back(original.model, plan.kernels, original.folder)
    built = library(plan.kernels, c_compiler.DEFAULTS, fused)
    content = built.read_bytes()
    built.write_bytes(b"not a library")
    assert library(plan.kernels, c_compiler.DEFAULTS, fused).read_bytes() == content


def test_places_that_do_not_fit_are_refused_with_the_reason(tmp_path, monkeypatch):
    original, plan = planned(tmp_path)
    assert installable(plan, original.model, original.folder) == plan
    monkeypatch.setattr(write_back, "refusals", lambda *_: {1: "no room"})
    less = installable(plan, original.model, original.folder)
    assert [len(kernel.groups) for kernel in less.kernels] == [1, 1]
    assert [(group.positions, reason) for group, reason in less.refused] == [((4, 5, 6), "no room")]
    monkeypatch.setattr(write_back, "refusals", lambda *_: dict.fromkeys(range(3), "no room"))
    assert installable(plan, original.model, original.folder).kernels == ()


def test_an_extent_that_is_neither_a_number_nor_a_name_is_left_open():
    shape = (Dim.of(3), Dim.of("n"), Dim.of("n") + 1)
    assert value_type(Node("x", Input(), (), DType.F16, shape)) == ValueType(DType.F16, (3, "n", None))
