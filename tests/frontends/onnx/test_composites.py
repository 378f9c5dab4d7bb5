"""Normalisations and other composites, over symbolic extents, and how well they compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.models import agree, imported, model, results

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 4, 5)).astype(np.float32)
VECTOR = {name: RNG.uniform(0.5, 2, 6).astype(np.float32) for name in ("s", "b", "m", "v")}


@pytest.mark.parametrize("axis", [-1, -2, 1, 0])
def test_layer_normalization(axis):
    shape = X.shape[axis:]
    dims = ", ".join(map(str, shape))
    text = f"""(float[a, 6, 4, 5] x, float[{dims}] s, float[{dims}] b) => (float y) {{
        y = LayerNormalization<axis = {axis}>(x, s, b) }}"""
    feeds = {"x": X, "s": RNG.uniform(size=shape).astype(np.float32), "b": RNG.uniform(size=shape).astype(np.float32)}
    if axis == 0:
        text = text.replace("[a, 6", "[2, 6")
    agree(text, feeds, tolerance=1e-5)


def test_layer_normalization_keeps_digits_far_from_zero():
    """E[x2] - E[x]2 would lose all of them."""
    found = imported(
        "(float[n, 64] x, float[64] s) => (float[n, 64] y) { y = LayerNormalization<epsilon = 0.0>(x, s) }"
    )
    x = (1e4 + RNG.standard_normal((3, 64))).astype(np.float32)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    got = results(found, {"x": x, "s": np.ones(64, np.float32)})[0]
    np.testing.assert_allclose(got, want, atol=2e-3)


def test_layer_normalization_of_float64_is_in_float64():
    text = "(double[n, 64] x, double[64] s) => (double[n, 64] y, float v) { y, v = LayerNormalization(x, s) }"
    x, s = np.random.default_rng(0).standard_normal((3, 64)), np.ones(64)
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y, mean = results(imported(model(text)), {"x": x, "s": s})
    np.testing.assert_allclose(y, (x - x.mean(axis=-1, keepdims=True)) / spread, rtol=1e-10)
    assert mean.dtype == np.float32  # as the operator has it


def test_the_mean_and_the_spread_are_outputs_too():
    found = imported(
        "(float[n, 6] x, float[6] s) => (float y, float m, float v) { y, m, v = LayerNormalization(x, s) }"
    )
    x = X[0, :, 0]
    _, centre, spread = results(found, {"x": x.T.copy(), "s": np.ones(6, np.float32)})
    np.testing.assert_allclose(centre, x.T.mean(1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(spread, 1 / np.sqrt(x.T.var(1, keepdims=True) + 1e-5), rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_along_an_axis(op, axis):
    agree(f"(float[a, b, c, d] x) => (float y) {{ y = {op}<axis = {axis}>(x) }}", {"x": X}, tolerance=1e-5)


def test_softmax_of_large_values_is_finite():
    found = imported("(float[n, m] x) => (float y) { y = Softmax(x) }")
    got = results(found, {"x": np.array([[1e4, 1e4 - 1, -np.inf]], np.float32)})[0]
    np.testing.assert_allclose(got, [[0.7310586, 0.26894143, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("y = BatchNormalization(x, s, b, m, v)", 18),
        ("y = InstanceNormalization(x, s, b)", 22),
        ("y = GroupNormalization<num_groups = 3>(x, s, b)", 21),
    ],
)
def test_normalisations_by_channel(text, opset):
    names = [name for name in "sbmv" if f", {name}" in text]
    given = ", ".join(f"float[6] {name}" for name in names)
    proto = model(f"(float[n, 6, h, w] x, {given}) => (float y) {{ {text} }}", opset)
    agree(proto, {"x": X, **{name: VECTOR[name] for name in names}}, tolerance=2e-5)


@pytest.mark.parametrize("text", ["LpNormalization<axis = 1>", "GlobalAveragePool", "GlobalMaxPool",
                                  "MeanVarianceNormalization"])  # fmt: skip
def test_others_of_one_input(text):
    name, _, rest = text.partition("<")
    proto = model(f"(float[n, c, h, w] x) => (float y) {{ y = {name}{'<' + rest if rest else ''}(x) }}", 22)
    agree(proto, {"x": X}, tolerance=1e-4)


def test_the_first_norm_takes_absolute_values():
    found = imported("(float[n, 5] x) => (float y) { y = LpNormalization<p = 1>(x) }", 22)
    x = np.vstack([X[0, 0, 0], np.zeros(5, np.float32)])
    want = np.vstack([x[0] / np.abs(x[0]).sum(), np.zeros(5)])
    np.testing.assert_allclose(results(found, {"x": x})[0], want, rtol=1e-6)


@pytest.mark.parametrize("op", ["Gelu", 'Gelu<approximate = "tanh">', "HardSwish", "Mish", "Celu<alpha = 2.0>"])
def test_activations_through_their_bodies(op):
    name, _, rest = op.partition("<")
    agree(
        model(f"(float[n, m] x) => (float y) {{ y = {name}{'<' + rest if rest else ''}(x) }}", 22),
        {"x": X[0, 0]},
        tolerance=1e-5,
    )


def test_rms_normalization_and_rotary_embedding():
    agree(
        model("(float[n, s, 8] x, float[8] w) => (float y) { y = RMSNormalization(x, w) }", 23),
        {"x": RNG.standard_normal((2, 3, 8)).astype(np.float32), "w": np.ones(8, np.float32)},
        tolerance=1e-5,
    )
    angles = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    agree(
        model(
            "(float[n, h, s, 8] x, float[n, s, 4] c, float[n, s, 4] d) => (float y) { y = RotaryEmbedding(x, c, d) }",
            23,
        ),
        {"x": RNG.standard_normal((2, 5, 3, 8)).astype(np.float32), "c": np.cos(angles), "d": np.sin(angles)},
        tolerance=1e-5,
    )


def test_training_is_a_boundary():
    text = """(float[n, 6, h, w] x, float[6] s, float[6] b, float[6] m, float[6] v) => (float y, float p, float q) {
        y, p, q = BatchNormalization<training_mode = 1>(x, s, b, m, v) }"""
    assert imported(text).opaque == {0: "BatchNormalization in training mode gives running statistics"}
