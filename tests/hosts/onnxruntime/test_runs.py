from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from noyau.errors import InputError, UnsupportedError
from noyau.hosts.onnxruntime import runs
from noyau.hosts.onnxruntime.runs import BoundRun, bound_run, ort_value
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.timing.comparison import compare
from tests.hosts.kernels import takes_bfloat16

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
NDArrays = dict[str, np.ndarray]


def session_of(nodes: Sequence[onnx.NodeProto], inputs: dict[str, int], outputs: dict[str, int]):
    """A session of nodes; the ends, by name, have these element types and any shape."""
    ends = [[helper.make_tensor_value_info(n, t, None) for n, t in each.items()] for each in (inputs, outputs)]
    graph = helper.make_graph(nodes, "it", *ends)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return open_session(model.SerializeToString(), threads=1)


def bound(op_type: str, arrays: NDArrays, element: int = FLOAT, **attributes: object) -> BoundRun:
    node = helper.make_node(op_type, list(arrays), ["y"], **attributes)
    return bound_run(session_of([node], dict.fromkeys(arrays, element), {"y": element}), arrays)


def poisoned(array: np.ndarray) -> bool:
    return set(array.tobytes()) == {0xA5}


@pytest.mark.parametrize("shape", [(3, 4), (1,), ()])
def test_a_call_writes_what_the_session_computes(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    run = bound("Add", {"a": x, "b": x + x})
    assert poisoned(run.outputs["y"])
    assert run() is None
    np.testing.assert_array_equal(run.outputs["y"], x + (x + x), strict=True)


def test_poison_is_written_over_by_the_next_call():
    x = np.ones((2, 3), np.float32)
    run = bound("Add", {"a": x, "b": x})
    run()
    run.poison()
    assert poisoned(run.outputs["y"])
    run()
    assert (run.outputs["y"] == 2).all()


def test_outputs_stay_where_they_are_and_are_aligned():
    run = bound("Neg", {"a": np.ones(77, np.float32)})
    place = run.outputs["y"].ctypes.data
    for _ in range(3):
        run()
    assert run.outputs["y"].ctypes.data == place
    assert place % 64 == 0


def test_inputs_are_copies():
    x = np.ones(5, np.float32)
    run = bound("Neg", {"a": x})
    x[:] = 9
    run()
    assert (run.outputs["y"] == -1).all()


def test_inputs_of_any_layout():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    run = bound("Add", {"a": x.T, "b": x[:, ::-1].T})
    run()
    np.testing.assert_array_equal(run.outputs["y"], x.T + x[:, ::-1].T)


def test_an_empty_output():
    run = bound("Neg", {"a": np.ones((0, 3), np.float32)})
    run()
    assert run.outputs["y"].shape == (0, 3)


def test_several_outputs_of_several_types():
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"])
    session = session_of([node], {"x": FLOAT, "k": INT64}, {"values": FLOAT, "places": INT64})
    run = bound_run(session, {"x": np.array([1.0, 5.0, 3.0], np.float32), "k": np.array([2])})
    run()
    assert run.outputs["values"].tolist() == [5.0, 3.0]
    assert run.outputs["places"].tolist() == [1, 2]


@takes_bfloat16
def test_bfloat16():
    x = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    run = bound("Concat", {"a": x, "b": x}, TensorProto.BFLOAT16, axis=0)
    run()
    assert run.outputs["y"].dtype == ml_dtypes.bfloat16
    assert run.outputs["y"].tolist() == [1.5, -2.0, 1.5, -2.0]


def test_outputs_of_strings_are_written_but_not_kept():
    node = helper.make_node("Cast", ["x"], ["y"], to=STRING)
    run = bound_run(session_of([node], {"x": FLOAT}, {"y": STRING}), {"x": np.ones(2, np.float32)})
    run()
    assert run.outputs == {}


class OnGpu:
    """A value of onnxruntime's that lies on a GPU."""

    def __init__(self, array):
        self.array = array.copy()

    def numpy(self):
        return self.array.copy()

    def update_inplace(self, array):
        self.array[...] = array


def test_results_are_brought_from_a_gpu_and_poison_goes_there():
    value = OnGpu(np.arange(3.0))
    run = BoundRun(None, None, {"y": np.zeros(3)}, (), {"y": value})
    assert run.results()["y"].tolist() == [0.0, 1.0, 2.0]
    run.poison()
    assert poisoned(value.array)


def test_bfloat16_is_not_bound_on_a_gpu():
    with pytest.raises(UnsupportedError, match=r"^onnxruntime takes no bfloat16 on a GPU from Python$"):
        ort_value(np.ones(2, ml_dtypes.bfloat16), "cuda")


@pytest.mark.parametrize("dtype", [object, "U3"])
def test_inputs_of_strings_are_refused(dtype):
    with pytest.raises(UnsupportedError, match="'a' holds strings"):
        bound("Identity", {"a": np.array(["one", "two"], dtype)}, STRING)


def test_what_is_no_tensor_is_refused():
    nodes = [helper.make_node("SequenceConstruct", ["a", "a"], ["s"])]
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    graph = helper.make_graph(nodes, "it", [helper.make_tensor_value_info("a", FLOAT, None)], [sequence])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(UnsupportedError, match="not an array"):
        bound_run(open_session(model.SerializeToString()), {"a": np.ones(2, np.float32)})


@pytest.mark.parametrize(
    "element", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.INT4, TensorProto.UINT4]
)
def test_cells_that_numpy_lacks_are_refused(element):
    """Of those onnxruntime gives bytes of another type, or nothing."""
    ends = [helper.make_tensor_value_info(name, each, [2]) for name, each in (("a", FLOAT), ("y", element))]
    graph = helper.make_graph([helper.make_node("Cast", ["a"], ["y"], to=element)], "it", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(UnsupportedError, match=r"the output 'y' is tensor\(.*\), not an array; remove it"):
        bound_run(open_session(model.SerializeToString()), {"a": np.ones(2, np.float32)})


def test_an_output_of_another_shape_than_its_model_declares_is_not_bound():
    node = helper.make_node("Neg", ["x"], ["y"])
    ends = [helper.make_tensor_value_info("x", FLOAT, ["n"]), helper.make_tensor_value_info("y", FLOAT, [1])]
    graph = helper.make_graph([node], "exported for one item", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = open_session(model.SerializeToString(), threads=1)
    bound_run(session, {"x": np.float32([1])})()
    arrays = {"x": np.float32([1, 2])}
    with pytest.raises(UnsupportedError, match=r"the output 'y' is \[2\], and declared to be \[1\]: onnxruntime warns"):
        bound_run(session, arrays)
    runs.ends_run(session, arrays)()


def test_arrays_that_do_not_fit_are_refused():
    node = helper.make_node("Add", ["a", "b"], ["y"])
    session = session_of([node], {"a": FLOAT, "b": FLOAT}, {"y": FLOAT})
    x = np.ones(3, np.float32)
    with pytest.raises(InputError, match="no input 'c'; it has 'a', 'b'"):
        bound_run(session, {"a": x, "b": x, "c": x})
    with pytest.raises(InputError):
        bound_run(session, {"a": x})
    with pytest.raises(InputError):
        bound_run(session, {"a": x, "b": x.astype(np.float64)})


def test_two_sessions_are_compared():
    x = np.ones((64, 64), np.float32)
    one, other = bound("Add", {"a": x, "b": x}), bound("Mul", {"a": x, "b": x})
    found = compare(one, other, budget_s=0.02)
    assert found.pairs >= 6
    assert min(*found.before_s, *found.after_s) > 0
    assert (one.outputs["y"] == 2).all()
    assert (other.outputs["y"] == 1).all()


def test_a_run_that_never_ends_is_ended(monkeypatch):
    text = """<ir_version: 8, opset_import: ["" : 18]> never (float[2] x) => (float[2] y) {
      go = Constant <value = bool {1}> ()
      y = Loop ("", go, x) <body = b (int64 i, bool c, float[2] h) => (bool c2, float[2] h2) {
        c2 = Identity (c)
        h2 = Tanh (h)
      }>
    }"""
    monkeypatch.setattr(runs, "LIMIT_S", 0.3)
    session = open_session(onnx.parser.parse_model(text).SerializeToString(), threads=1)
    with pytest.raises(InputError, match=r"^a run did not end within 0\.3 s and was ended$"):
        runs.run(session, {"x": np.ones(2, np.float32)})
