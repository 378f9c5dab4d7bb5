from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.errors import InputError, ModelError
from noyau.hosts.onnxruntime import activations as onnxruntime_capture
from noyau.hosts.onnxruntime.activations import ActivationCapture
from noyau.hosts.onnxruntime.sessions import open_session
from tests.large_model import write_large_model
from tests.small_models import (
    KINDS,
    overridable,
    twice,
    with_branches,
    with_strange_operator,
)

LACKING = ("FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4")
X = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)


def capture(model, folder, inputs, names, without=()):
    return ActivationCapture(model, folder, without).capture(inputs, names)


def test_values_are_those_that_flow_through_the_model(tmp_path):
    found = capture(twice(), tmp_path, {"x": X}, ["a", "atanh", "x", "w", "a", "nowhere"])
    assert list(found) == ["a", "atanh"]
    np.testing.assert_allclose(found["atanh"], np.tanh(X), rtol=1e-6)
    np.testing.assert_allclose(found["a"], 1 / (1 + np.exp(-X * np.tanh(X))), rtol=1e-6)


def test_the_session_of_a_capture_is_that_of_the_next_if_it_has_what_is_wanted(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(onnxruntime_capture, "open_session", lambda *a, **k: opened.append(a) or open_session(*a, **k))
    again = ActivationCapture(twice(), tmp_path)
    assert list(again.capture({"x": X}, ["a", "atanh"])) == ["a", "atanh"]
    np.testing.assert_array_equal(
        again.capture({"x": X[:1]}, ["a"])["a"], capture(twice(), tmp_path, {"x": X[:1]}, ["a"])["a"]
    )
    assert len(opened) == 2
    assert list(again.capture({"x": X}, ["b"])) == ["b"]
    assert len(opened) == 3


def test_nothing_runs_where_nothing_is_wanted(tmp_path):
    assert capture(twice(), tmp_path, {}, []) == {}
    assert capture(twice(), tmp_path, {"x": X}, ["x", "w"]) == {}


def test_weights_in_other_files_are_found(tmp_path):
    model = write_large_model(tmp_path, hidden=8, intermediate=16)
    import onnx

    proto = onnx.load(model.path, load_external_data=False)
    found = capture(proto, tmp_path, {"hidden_states": np.ones((1, 2, 8), np.float32)}, ["layers.0.silu"])
    assert found["layers.0.silu"].shape == (1, 2, 16)
    assert np.any(found["layers.0.silu"])


def test_what_needs_a_node_that_does_not_run_is_left_out(tmp_path):
    model, x = with_strange_operator(), np.ones(4, np.float32)
    assert list(capture(model, tmp_path, {"x": x}, ["w", "v", "y"], without=[3])) == ["w"]
    with pytest.raises(ModelError, match="Strange"):
        capture(model, tmp_path, {"x": x}, ["y"])


def test_what_needs_an_input_that_is_not_given_is_left_out(tmp_path):
    found = capture(KINDS["any rank"], tmp_path, {"x": np.ones(4, np.float32)}, ["y", "v"])
    assert list(found) == ["y"]


def test_values_whose_cells_numpy_lacks_are_left_out(tmp_path):
    """Else a model with an output of float8 or int4 ends in an error of onnxruntime's."""
    casts = [onnx.helper.make_node("Cast", ["x"], [name], to=getattr(onnx.TensorProto, name)) for name in LACKING]
    types = [("x", onnx.TensorProto.FLOAT), ("y", onnx.TensorProto.FLOAT)]
    types += [(name, getattr(onnx.TensorProto, name)) for name in LACKING]
    ends = [onnx.helper.make_tensor_value_info(*each, [2]) for each in types]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"]), *casts], "it", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    assert list(capture(model, tmp_path, {"x": np.ones(2, np.float32)}, ["y", *LACKING])) == ["y"]


def test_an_initializer_that_is_an_input_keeps_its_value(tmp_path):
    found = capture(overridable(), tmp_path, {"x": np.ones((2, 4), np.float32)}, ["a"])
    np.testing.assert_array_equal(found["a"], np.broadcast_to(np.arange(4), (2, 4)))


def test_what_a_branch_reads_from_outside_is_needed(tmp_path):
    feeds = {"x": np.ones(4, np.float32), "c": np.array(False)}
    np.testing.assert_array_equal(capture(with_branches(), tmp_path, feeds, ["y"])["y"], -feeds["x"])


def test_inputs_that_do_not_fit_are_an_error(tmp_path):
    with pytest.raises(InputError, match="does not run"):
        capture(twice(), tmp_path, {"x": np.ones((3, 7), np.float32)}, ["b"])


NORMED = """<ir_version: 8, opset_import: ["" : 17]> g (float[b, 8, h, 0] x) => (float[b, 4, n] y)
    <int64[3] shape = {0, 4, -1}, float[4] ones = {1, 1, 1, 1}>
    { parts = Reshape(x, shape) normed = InstanceNormalization(parts, ones, ones) y = Neg(normed) }"""


def test_an_operator_that_ends_the_process_without_cells_is_one_line(tmp_path):
    model, arrays = onnx.parser.parse_model(NORMED), {"x": np.zeros((1, 8, 2, 0), np.float32)}
    with pytest.raises(InputError, match=r"^onnxruntime fails where inputs have no cells: .* crashed \(SIG"):
        capture(model, tmp_path, arrays, ["parts", "normed"])
