"""Which calls onnxruntime folds what follows into, as its own optimizer shows."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from noyau.compiler.partition.cut import Partition
from noyau.hosts.onnxruntime.activations import folding_calls
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from tests.small_models import NODE, model_of, value, written

R = np.random.default_rng(0)
TENSORS = {
    "w": R.standard_normal((8, 8, 1, 1)), "m": R.standard_normal((8, 8)), "b": R.standard_normal(8), "v": np.ones(8)
}  # fmt: skip


def planned(nodes, shape, tmp_path) -> tuple[SourceModel, Partition]:
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in TENSORS.items()]
    model = model_of(nodes, [value("x", shape)], [value("y", shape)], tensors)
    original = open_model(written(model, tmp_path))
    return original, original.cut()


TAIL = [NODE("Mul", ["r", "r"], ["q"]), NODE("Tanh", ["q"], ["y"])]
IMAGE, ROWS, THICK = (1, 8, 9, 9), ("n", 8), (1, "n", 8)
CASES = {
    "conv, activation": ([NODE("Conv", ["x", "w"], ["c"]), NODE("Relu", ["c"], ["r"])], IMAGE, ("Conv",)),
    "conv, norm": (
        [NODE("Conv", ["x", "w"], ["c"]), NODE("BatchNormalization", ["c", "v", "b", "b", "v"], ["r"])],
        IMAGE,
        ("Conv",),
    ),
    "gemm, activation": ([NODE("Gemm", ["x", "m"], ["c"]), NODE("Relu", ["c"], ["r"])], ROWS, ("Gemm",)),
    "product, bias": ([NODE("MatMul", ["x", "m"], ["c"]), NODE("Add", ["c", "b"], ["r"])], ROWS, ("MatMul",)),
    "conv, no activation": ([NODE("Conv", ["x", "w"], ["c"]), NODE("Erf", ["c"], ["r"])], IMAGE, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_calls_are_those_that_onnxruntime_folds_into(name, tmp_path):
    nodes, shape, calls = CASES[name]
    original, cut = planned([*nodes, *TAIL], shape, tmp_path)
    (group,) = cut.groups
    assert tuple(original.operators[at] for at in folding_calls(original.model, group)) == calls
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(original.model.SerializeToString(), options)
    left = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert (nodes[1].op_type in left) is (not calls), left


def test_what_others_read_too_is_not_folded(tmp_path):
    nodes = [NODE("Conv", ["x", "w"], ["c"]), NODE("Relu", ["c"], ["r"]), NODE("Mul", ["r", "r"], ["q"])]
    original, cut = planned([*nodes, NODE("Tanh", ["q"], ["t"]), NODE("Conv", ["c", "w"], ["y"])], IMAGE, tmp_path)
    assert all(not folding_calls(original.model, group) for group in cut.groups)


def test_a_product_of_more_axes_keeps_its_bias_apart(tmp_path):
    nodes = [NODE("MatMul", ["x", "m"], ["c"]), NODE("Add", ["c", "b"], ["r"]), *TAIL]
    original, cut = planned(nodes, THICK, tmp_path)
    assert [folding_calls(original.model, group) for group in cut.groups] == [()]


def test_a_product_of_integers_is_folded_with_its_scales(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (uint8[n, 8] x, uint8 z, float s, float[1] t) => (float[n, 8] y) {
            c = MatMulInteger(x, w, z)  f = Cast<to = 1>(c)  k = Mul(s, t)  r = Mul(f, k)  q = Mul(r, r)  y = Tanh(q)
        }""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 8), np.int8), "w"))
    original = open_model(written(model, tmp_path))
    (group,) = (each for each in original.cut().groups if "y" in each.outputs)
    assert tuple(original.operators[at] for at in folding_calls(original.model, group)) == ("MatMulInteger",)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(original.model.SerializeToString(), options)
    left = {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
    assert "MatMulIntegerToFloat" in left and not left & {"MatMulInteger", "Cast"}
