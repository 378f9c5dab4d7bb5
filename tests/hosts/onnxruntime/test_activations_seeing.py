from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.codegen import plan as codegen_plan
from noyau.errors import InputError
from noyau.hosts.onnxruntime.activations import ActivationCapture, Activations, capture_twice, end_places
from noyau.hosts.onnxruntime.inputs import model_inputs
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import KINDS, overridable, twice, written


def looked(model, folder, dims=None, **changes):
    original = open_model(written(model, folder))
    kernels = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels
    feeds = model_inputs(original.imported, [kernels[0].groups[0].original], dims or {}, None, 0)
    return original, kernels, capture_twice(original, kernels, feeds)


def test_small_inputs_show_both_ends_and_the_asked_ones_the_first_place(tmp_path):
    _, kernels, (small, asked) = looked(twice(), tmp_path, {"rows": 200})
    first, last = end_places(kernels[0])
    assert end_places(kernels[1]) == kernels[1].groups
    assert [seen.sizes["rows"] for seen in (small, asked)] == [64, 200]
    assert small.of(first.original)[0].shape == small.of(last.original)[0].shape == (64, 6)
    assert asked.of(first.original)[0].shape == (200, 6)
    assert asked.of(last.original) is None
    assert small.made_up and asked.made_up


def test_one_look_is_enough_where_the_sizes_are_the_same(tmp_path):
    _, _, (small, asked) = looked(twice(), tmp_path, {"rows": 5})
    assert small is asked


def test_a_model_that_takes_no_small_inputs_is_looked_at_as_asked(tmp_path, monkeypatch):
    capture = ActivationCapture.capture

    def refusing(capturing, inputs, wanted):
        if len(inputs["x"]) < 200:
            raise InputError("too few rows")
        return capture(capturing, inputs, wanted)

    monkeypatch.setattr(ActivationCapture, "capture", refusing)
    _, kernels, (small, asked) = looked(twice(), tmp_path, {"rows": 200})
    assert small is asked
    assert small.of(kernels[0].groups[-1].original)[0].shape == (200, 6)
    with pytest.raises(InputError, match=r"with its inputs of rows=100: too few rows; other sizes \(--dim NAME=N\)"):
        looked(twice(), tmp_path, {"rows": 100})


def test_tensors_of_the_model_are_seen_too(tmp_path):
    _, kernels, (small, _) = looked(overridable(), tmp_path)
    arrays = dict(zip(kernels[0].groups[0].inputs, small.of(kernels[0].groups[0].graph), strict=True))
    np.testing.assert_array_equal(arrays["w"], np.arange(4))


def test_a_few_integers_of_the_model_are_seen_too(tmp_path):
    """They are constants of the graph, and inputs of the kernel that looks cells up by them."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 9] x) => (float[n, 3] y) <int64[3] at = {5, 0, 5}> {
        e = Exp (x)  g = Gather <axis = 1> (e, at)  y = Tanh (g) }"""
    _, kernels, (small, _) = looked(onnx.parser.parse_model(text), tmp_path)
    arrays = dict(zip(kernels[0].groups[0].inputs, small.of(kernels[0].groups[0].original), strict=True))
    np.testing.assert_array_equal(arrays["at"], [5, 0, 5])


def test_what_cannot_be_captured_is_not_seen(tmp_path):
    _, kernels, (small, _) = looked(KINDS["strange operator"], tmp_path)
    assert [small.of(kernel.groups[0].original) is None for kernel in kernels] == [False, True]


def test_sizes_follow_from_what_was_seen(tmp_path):
    _, kernels, (small, _) = looked(KINDS["shape from data"], tmp_path)
    graph = kernels[0].groups[0].original
    (array,) = small.of(graph)
    assert list(small.sizes_of(graph).values()) == [array.shape[1]]
    assert Activations({}, {}, made_up=True).sizes_of(graph) == {}
    wrong = {name: np.ones((2, 2, 2)) for name in (node.output for node in graph.inputs)}
    with pytest.raises(InputError, match="rank"):
        Activations(wrong, {}, made_up=True).sizes_of(graph)
