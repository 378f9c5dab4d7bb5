"""Parts of models as models of their own."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from onnx import helper, numpy_helper
from onnx.external_data_helper import set_external_data

from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.frontends.onnx_messages import reads
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.function_bodies import FusedNode, ModelValues, ValueType, recompute
from noyau.hosts.onnxruntime.submodel import extract
from noyau.hosts.onnxruntime.write_back import write_back
from tests.hosts.kernels import STAND_INS, Arrays, build_library, kernel_text, model_of
from tests.hosts.models import NODE, floats, tiny_llama


def run(model: onnx.ModelProto, feeds: Arrays, library: Path | None = None) -> Arrays:
    if all(value.HasField("type") for value in model.graph.output):  # onnxruntime needs none, the checker does
        onnx.checker.check_model(model)
    return runs.run(sessions.open_session(model.SerializeToString(), library, threads=1, optimized=False), feeds)


def every_value(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """All values of a model, its initializers included."""
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    there = {value.name for value in whole.graph.output}
    made = [name for node in whole.graph.node for name in node.output if name and name not in there]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    session = sessions.open_session(whole.SerializeToString(), threads=1, optimized=False)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {**stored, **feeds, **runs.run(session, feeds)}


def kind_of(array: np.ndarray) -> ValueType:
    return ValueType(next(dtype for dtype in DType if dtype.numpy == array.dtype), array.shape)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["dynamo", "torchscript"])
def test_a_part_of_a_llama_gives_what_it_gives_there(name: str, seed: int) -> None:
    model, rng = tiny_llama(name), random.Random(seed)
    draws = np.random.default_rng(seed)
    feeds = {"input_ids": draws.integers(0, 100, (2, 7)), "attention_mask": np.ones((2, 7), np.int64)}
    known, values = every_value(model, feeds), ModelValues.of(model)
    for _ in range(10):
        start = rng.randrange(len(model.graph.node))
        window = range(start, min(start + rng.randint(1, 12), len(model.graph.node)))
        made = {name for number in window for name in model.graph.node[number].output if name}
        needed = set().union(*(reads(model.graph.node[number]) for number in window)) - made
        inputs = sorted(each for each in needed if recompute(each, values) is None and each not in values.constants)
        part = extract(model, window, inputs, sorted(made), {each: kind_of(known[each]) for each in inputs})
        found = run(part, {each: known[each] for each in inputs})
        assert found.keys() == made
        for each in made:
            assert_array_equal(found[each], known[each])


def chain() -> onnx.ModelProto:
    nodes = [NODE("Add", ["x", "big"], ["y"]), NODE("Reshape", ["y", "shape"], ["z"]), NODE("Exp", ["z"], ["out"])]
    weights = [
        numpy_helper.from_array(np.ones((2000,), np.float32), "big"),
        numpy_helper.from_array(np.array([4, 500]), "shape"),
    ]
    model = model_of(nodes, [floats("x", 2000)], [floats("out", 4, 500)], weights)
    model.graph.value_info.append(floats("y", 2000))
    return model


def test_initializers_come_along_unless_they_are_inputs() -> None:
    part = extract(chain(), [0], ["x"], ["y"])
    assert [tensor.name for tensor in part.graph.initializer] == ["big"]
    fed = extract(chain(), [0], ["x", "big"], ["y"])
    assert not fed.graph.initializer
    assert [value.name for value in fed.graph.input] == ["x", "big"]
    x = np.arange(2000, dtype=np.float32)
    assert_array_equal(run(part, {"x": x})["y"], x + 1)
    assert_array_equal(run(fed, {"x": x, "big": x})["y"], 2 * x)


def test_constants_come_along_however_they_are_spelt() -> None:
    model = chain()
    shape = model.graph.initializer.pop()
    model.graph.node.insert(0, NODE("Constant", [], ["shape"], value=shape))
    part = extract(model, [2], ["y"], ["z"])
    assert [node.op_type for node in part.graph.node] == ["Constant", "Reshape"]
    assert run(part, {"y": np.zeros(2000, np.float32)})["z"].shape == (4, 500)


def test_external_initializers_are_referred_to(tmp_path: Path) -> None:
    model = chain()
    (tmp_path / "m.data").write_bytes(model.graph.initializer[0].raw_data)
    set_external_data(model.graph.initializer[0], "m.data", 0, 8000)
    model.graph.initializer[0].ClearField("raw_data")
    part = extract(model, [0], ["x"], ["y"])
    assert part.graph.initializer[0] == model.graph.initializer[0]
    (tmp_path / "part.onnx").write_bytes(part.SerializeToString())
    found = runs.run(sessions.open_session(tmp_path / "part.onnx"), {"x": np.zeros(2000, np.float32)})
    assert_array_equal(found["y"], np.ones(2000))


def test_a_subgraph_takes_its_outer_values_from_the_inputs() -> None:
    branch = helper.make_graph([NODE("Neg", ["e"], ["b"])], "branch", [], [floats("b", "n")])
    other = helper.make_graph([NODE("Abs", ["e"], ["c"])], "other", [], [floats("c", "n")])
    nodes = [NODE("Exp", ["x"], ["e"]), NODE("If", ["yes"], ["z"], then_branch=branch, else_branch=other)]
    yes = helper.make_tensor_value_info("yes", onnx.TensorProto.BOOL, [])
    model = model_of(nodes, [floats("x", "n"), yes], [floats("z", "n")])
    with pytest.raises(GraphError, match="reads 'e', which is not among its inputs"):
        extract(model, [1], ["yes"], ["z"])
    part = extract(model, [1], ["yes", "e"], ["z"], {"e": ValueType(DType.F32, ("n",))})
    e = np.ones(3, np.float32)
    assert_array_equal(run(part, {"yes": np.array(True), "e": e})["z"], -e)
    assert_array_equal(run(part, {"yes": np.array(False), "e": e})["z"], e)


def test_a_fused_node_comes_with_its_function(tmp_path: Path) -> None:
    stand_in = STAND_INS["scale_add"]
    inputs, outputs = stand_in.types()
    model = model_of([*stand_in.nodes, NODE("Abs", ["out"], ["last"])], inputs, [floats("last", "r", "c")])
    model.graph.value_info.extend(outputs)
    fused = write_back(model, [FusedNode("scale_add_1f", (0, 1), ("x", "w", "s"), ("out",))])
    part = extract(fused, [0], ["x", "w", "s"], ["out"])
    assert [function.name for function in part.functions] == ["scale_add_1f"]
    assert not extract(fused, [1], ["out"], ["last"]).functions
    build_library({"scale_add_1f": kernel_text(stand_in.text, "scale_add_1f", 1000)}, tmp_path / "m.so")
    feeds = stand_in.feeds(np.random.default_rng(0), 2)
    difference = run(part, feeds, tmp_path / "m.so")["out"] - run(part, feeds)["out"]
    np.testing.assert_allclose(difference, 1000, rtol=1e-5)


def test_functions_that_functions_call_come_along() -> None:
    opset = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    inner = helper.make_function("own", "Inner", ["a"], ["b"], [NODE("Neg", ["a"], ["b"])], opset)
    outer = helper.make_function("own", "Outer", ["a"], ["b"], [NODE("Inner", ["a"], ["b"], domain="own")], opset)
    spare = helper.make_function("own", "Spare", ["a"], ["b"], [NODE("Exp", ["a"], ["b"])], opset)
    nodes = [NODE("Outer", ["x"], ["y"], domain="own"), NODE("Spare", ["y"], ["z"], domain="own")]
    model = model_of(nodes, [floats("x", "n")], [floats("z", "n")], functions=[spare, inner, outer])
    part = extract(model, [0], ["x"], ["y"])
    assert [function.name for function in part.functions] == ["Inner", "Outer"]
    assert_array_equal(run(part, {"x": np.ones(2, np.float32)})["y"], [-1, -1])


def test_what_is_missing_is_named() -> None:
    with pytest.raises(GraphError, match="reads 'z'"):
        extract(chain(), [2], [], ["out"])
    with pytest.raises(GraphError, match="type of the input 'z' is not known"):
        extract(chain(), [2], ["z"], ["out"])
    with pytest.raises(GraphError, match="does not make its output 'y'"):
        extract(chain(), [2], ["z"], ["y"], {"z": ValueType(DType.F32, (4, 500))})
