"""The shapes of boundaries: by rule, equal to what the operator really gives."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from noyau.dtypes import DType, from_numpy
from noyau.ir.dims import Dim, shape_of
from tests.frontends.onnx.models import imported, model, results

CONV = "(float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float y) {{ y = Conv<{}>(x, k) }}"
POOL = "(float[n, 3, h, w] x) => (float y) {{ y = MaxPool<kernel_shape = [3, 2]{}>(x) }}"
IMAGE = {"x": np.random.default_rng(0).standard_normal((2, 3, 9, 12)).astype(np.float32)}
KERNEL = {"k": np.random.default_rng(1).standard_normal((8, 3, 3, 3)).astype(np.float32)}
SIZES = {"n": 2, "h": 9, "w": 12}


@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape = [3, 3]",
        "pads = [1, 1, 1, 1]",
        "pads = [0, 1, 2, 0], strides = [2, 3]",
        "strides = [2, 2], dilations = [2, 1]",
        'auto_pad = "VALID", strides = [2, 2]',
        'auto_pad = "SAME_UPPER", strides = [2, 2]',
    ],
)
def test_convolutions(attributes):
    found = imported(CONV.format(attributes))
    assert found.opaque == {0: "Conv is a library call"}
    shape = found.graph["y"].shape
    assert {name for dim in shape for name in dim.names} == {"n", "h", "w"}
    got = results(found, {**IMAGE, **KERNEL})[0]
    assert [dim.evaluate(SIZES) for dim in shape] == list(got.shape)


TRANSPOSED = "(float[n, 8, h, w] x, float[8, 3, 3, 2] k) => (float y) {{ y = ConvTranspose<{}>(x, k) }}"


@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape = [3, 2]",
        "strides = [2, 3], pads = [1, 0, 0, 1], output_padding = [1, 2]",
        "dilations = [2, 3], strides = [3, 1]",
        'auto_pad = "VALID", strides = [2, 2]',
    ],
)
def test_transposed_convolutions(attributes):
    found = imported(TRANSPOSED.format(attributes))
    image = np.ones((2, 8, 9, 12), np.float32)
    got = results(found, {"x": image, "k": np.ones((8, 3, 3, 2), np.float32)})[0]
    assert [dim.evaluate(SIZES) for dim in found.graph["y"].shape] == list(got.shape)


@pytest.mark.parametrize("attributes", ["onesided = 1", "onesided = 0"])
def test_frames_of_a_signal(attributes):
    text = (
        "(float[n, t, 1] x, float[16] w) => (float y) {{ s = Constant<value = int64 {{5}}>() y = STFT<{}>(x, s, w) }}"
    )
    found = imported(text.format(attributes))
    feeds = {"x": np.ones((2, 40, 1), np.float32), "w": np.ones(16, np.float32)}
    shape = results(found, feeds)[0].shape
    assert [dim.evaluate({"n": 2, "t": 40}) for dim in found.graph["y"].shape] == list(shape)


@pytest.mark.parametrize("attributes", ["", ", strides = [2, 2]", ", pads = [1, 1, 1, 1]"])
def test_pools(attributes):
    found = imported(POOL.format(attributes))
    got = results(found, IMAGE)[0]
    assert [dim.evaluate(SIZES) for dim in found.graph["y"].shape] == list(got.shape)


def test_two_branches_of_one_extent_add_up():
    found = imported(
        """(float[n, 3, h, w] x, float[8, 3, 3, 3] k, float[8, 3, 1, 1] l) => (float y) {
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, k) b = Conv<strides = [2, 2]>(x, l) y = Add(a, b) }"""
    )
    assert not found.demands
    assert found.graph["y"].shape == (Dim.of("n"), Dim.of(8), (Dim.of("h") - 1) // 2 + 1, (Dim.of("w") - 1) // 2 + 1)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("(float[n, k] x, float[k, m] w) => (float y) { y = Gemm(x, w) }", ["n", "m"]),
        ("(float[k, n] x, float[m, k] w) => (float y) { y = Gemm<transA = 1, transB = 1>(x, w) }", ["n", "m"]),
        ("(float[b, 1, n, k] x, float[h, k, m] w) => (float y) { y = MatMul(x, w) }", ["b", "h", "n", "m"]),
        ("(float[k] x, float[h, k, m] w) => (float y) { y = MatMul(x, w) }", ["h", "m"]),
        ("(float[n, k] x, float[k] w) => (float y) { y = MatMul(x, w) }", ["n"]),
        ("(float[n, m] x, bool[k] c) => (float y) { y = Compress<axis = 1>(x, c) }", ["n", "d0"]),
        ("(float[n, m] x, bool[k] c) => (float y) { y = Compress(x, c) }", ["d0"]),
        ("(float[n, m] x, int64[3] t) => (float y) { y = Reshape(x, t) }", ["d0", "d1", "d2"]),
        ("(float[n, m] x, int64[2] s, int64[2] e) => (float y) { y = Slice(x, s, e) }", ["d0", "d1"]),
        ("(float[n, m] x, int64[k] a) => (float y) { y = ReduceSum(x, a) }", ["d0", "d1"]),
        ("(float[n, m] x, int64[2] t) => (float y, float z) { y, z = Split<axis = 1>(x, t) }", ["n", "d0"]),
        ("(float[n, m] x, int64[n] l) => (float y) { y = ReverseSequence(x, l) }", ["n", "m"]),
        ("(float a, float b, float c) => (float y) { y = Range(a, b, c) }", ["d0"]),
        ("(float[n, c, h] x, float[c, m, 3] k) => (float y) { y = ConvTranspose<output_shape = [9]>(x, k) }", "n m d0"),
        ("(float[n, t, 1] x, int64 s) => (float y) { y = STFT(x, s) }", ["n", "d0", "d1", 2]),
        ("(float[n, 2, 3] x, int64[4] t) => (float y) { y = AffineGrid(x, t) }", "d0 d1 d2 d3"),
        ("(float[n, c, l] x, int64[2] i, int64[2] b) => (float y) { y = Col2Im(x, i, b) }", "d0 d1 d2 d3"),
        ("(float[n, c, l] x, int64[r] i, int64[r] b) => (float y) { y = Col2Im(x, i, b) }", []),  # of no known rank
        ("(float[n, c, h] x, int64[n, c, h] i) => (float y) { y = MaxUnpool<kernel_shape = [2]>(x, i) }", "d0 d1 d2"),
        ("(float[n, m] x, int64[2] t) => (float y) { y = CenterCropPad(x, t) }", ["d0", "d1"]),
        ("(int64 s) => (float y) { y = HannWindow(s) }", ["d0"]),
        (
            "(float[n, k] x, float[k, m] w, float[m, p] v) => (float y) "
            '{ y = Einsum<equation = "ik,km,mp->pi">(x, w, v) }',
            ["p", "n"],
        ),
    ],
)
def test_rules(text, shape):
    found = imported(text)
    assert list(found.opaque) == [0]
    assert found.graph["y"].shape == shape_of(shape.split() if isinstance(shape, str) else shape)


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("(uint8[n, 3, h] x, uint8[8, 3, 1] k) => (int32 y) { y = ConvInteger(x, k) }", DType.I32, ["n", 8, "h"]),
        (
            "(uint8[n, 3, h] x, float s, uint8 a, int8[8, 3, 1] k, int8 z) => (uint8 y) "
            "{ y = QLinearConv(x, s, a, k, s, z, s, z) }",
            DType.I8,
            ["n", 8, "h"],
        ),
        ("(int64 s) => (double y) { y = HannWindow<output_datatype = 11>(s) }", DType.F64, ["d0"]),
    ],
)
def test_dtypes_that_are_not_the_first_inputs(text, dtype, shape):
    found = imported(text)
    assert (found.graph["y"].dtype, found.graph["y"].shape) == (dtype, shape_of(shape))


def test_the_filler_of_an_unknown_shape_gives_the_dtype():
    found = imported("(int64[2] t) => (int32 y) { y = ConstantOfShape<value = int32[1] {7}>(t) }")
    assert (found.graph["y"].dtype, len(found.graph["y"].shape)) == (DType.I32, 2)
    np.testing.assert_array_equal(results(found, {"t": np.array([2, 3])})[0], np.full((2, 3), 7))


def test_what_an_exporter_declares_completes_a_rule():
    found = imported("(float[n, m] x, int64[2] t) => (float[p, 5] y) { y = Reshape(x, t) }")
    assert found.graph["y"].shape == shape_of(["p", 5])


def test_a_declared_zero_says_nothing():
    found = imported("(float[n, m] x, int64[2] t) => (float[0, 5] y) { y = Reshape(x, t) }")
    assert found.graph["y"].shape == shape_of(["d0", 5])


_LEAVES = """nodes_treeids = [0], nodes_nodeids = [0], nodes_featureids = [0], nodes_values = [0.0],
    nodes_modes = ["LEAF"], nodes_truenodeids = [0], nodes_falsenodeids = [0]"""


@pytest.mark.parametrize(
    "text",
    [
        "y = ai.onnx.ml.Binarizer<threshold = 0.5>(x)",
        "y = ai.onnx.ml.Imputer<imputed_value_floats = [0.5], replaced_value_float = 1.0>(x)",
        "y = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(x)",
        "y = ai.onnx.ml.OneHotEncoder<cats_int64s = [0, 1, 2], zeros = 1>(x)",
        "y = ai.onnx.ml.LinearRegressor<coefficients = [0.5, 1.0, 1.5], intercepts = [0.1], targets = 1>(x)",
        "l, y = ai.onnx.ml.LinearClassifier<coefficients = [0.5, 1.0, 1.5, 0.1, 0.2, 0.3], "
        "classlabels_ints = [4, 9], intercepts = [0.1, 0.2]>(x)",
        f"y = ai.onnx.ml.TreeEnsembleRegressor<{_LEAVES}, n_targets = 1, target_treeids = [0], target_nodeids = [0], "
        "target_ids = [0], target_weights = [0.5]>(x)",
        f"l, y = ai.onnx.ml.TreeEnsembleClassifier<{_LEAVES}, classlabels_int64s = [4, 9], class_treeids = [0], "
        "class_nodeids = [0], class_ids = [1], class_weights = [0.5]>(x)",
    ],
)
def test_operators_on_tables_have_types_so_that_what_follows_them_is_fused(text):
    outputs = text.partition(" = ")[0].split(", ")
    ends = ", ".join(f"{'int64' if name == 'l' else 'float'} {name}" for name in outputs)
    proto = model(f"(float[n, 3] x) => ({ends}) {{ {text} }}", 15, ', "ai.onnx.ml" : 3')
    found, x = imported(proto), np.array([[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 1, 1]], np.float32)
    assert list(found.opaque) == [0]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, got in zip(outputs, session.run(None, {"x": x}), strict=True):
        node = found.graph[name]
        known = [dim.evaluate({"n": 4}) for dim in node.shape if dim.names <= {"n"}]
        assert node.dtype == from_numpy(got.dtype) and len(node.shape) == got.ndim
        assert known[0] == got.shape[0] == 4 and known == list(got.shape[: len(known)])
