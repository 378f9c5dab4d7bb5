"""Scalar functions under ONNX's names: dtypes, broadcasting, and the cells where definitions differ."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.frontends.onnx.calculations import CALCULATIONS
from tests.frontends.onnx.models import WORDS, agree, imported, model, results, run

SPECIAL = np.array([0, -0.0, 1, -1, 0.5, 1.5, 2.5, -0.5, 1e-3, -40, 90, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("word", [word for word in WORDS if word != "bool"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "GreaterOrEqual"])
def test_the_result_dtype_of_every_dtype(word, op):
    values = np.array([[1], [2], [3]]).astype(WORDS[word])
    made = "bool" if op in ("Equal", "Less", "GreaterOrEqual") else word
    text = f"({word}[n, 1] x, {word}[2] z) => ({made}[n, 2] y) {{ y = {op}(x, z) }}"
    agree(model(text, 22), {"x": values, "z": np.array([2, 1]).astype(WORDS[word])})


@pytest.mark.parametrize("base", ["float", "double", "float16", "int32", "int64"])
@pytest.mark.parametrize("exponent", ["float", "double", "int32", "int64", "uint8"])
def test_pow_has_the_dtype_of_its_base(base, exponent):
    x, z = np.array([1, 2, 3, 4]).astype(WORDS[base]), np.array([2, 3, 0, 1]).astype(WORDS[exponent])
    got = run(f"({base}[n] x, {exponent}[n] z) => ({base}[n] y) {{ y = Pow(x, z) }}", x, z)
    assert got.dtype == WORDS[base]
    np.testing.assert_array_equal(got, np.array([1, 8, 1, 4]).astype(WORDS[base]))


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Round", np.rint),
        ("Sign", np.sign),
        ("Relu", lambda x: np.maximum(x, 0)),
        ("Floor", np.floor),
        ("Ceil", np.ceil),
        ("Abs", np.abs),
        ("Exp", np.exp),
        ("Tanh", np.tanh),
        ("IsNaN", np.isnan),
        ("IsInf", np.isinf),
        ("IsInf<detect_positive = 0>", np.isneginf),
        ("IsInf<detect_negative = 0>", np.isposinf),
        ("IsInf<detect_negative = 0, detect_positive = 0>", lambda x: np.zeros(x.shape, bool)),
        ("Elu<alpha = 2.0>", lambda x: np.where(x < 0, 2 * np.expm1(np.minimum(x, 0)), x)),
        ("LeakyRelu<alpha = 0.5>", lambda x: np.where(x < 0, x / 2, x)),
        ("ThresholdedRelu<alpha = 1.0>", lambda x: np.where(x > 1, x, 0)),
        ("Shrink<lambd = 1.0, bias = 0.5>", lambda x: np.where(x < -1, x + 0.5, np.where(x > 1, x - 0.5, 0))),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_special_values(op, function):
    name, _, attributes = op.partition("<")
    made = "bool" if name.startswith("Is") else "float"
    got = run(f"(float[n] x) => ({made}[n] y) {{ y = {name}{'<' if attributes else ''}{attributes}(x) }}", SPECIAL)
    np.testing.assert_allclose(got.astype(np.float32), function(SPECIAL).astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("opset", [13, 18, 22])
@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("HardSigmoid(x)", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        ("HardSigmoid<alpha = 0.5, beta = 0.25>(x)", lambda x: np.clip(0.5 * x + 0.25, 0, 1)),
        ("Shrink(x)", lambda x: np.where(np.abs(x) > 0.5, x, 0)),
        ("Softsign(x)", lambda x: x / (1 + np.abs(x))),
        ("ThresholdedRelu<alpha = 0.5>(x)", lambda x: np.where(x > 0.5, x, 0)),
    ],
)
def test_activations_with_a_body_in_onnx_have_it_at_every_opset(op, function, opset):
    name = op.partition("(")[0].partition("<")[0]
    assert name not in CALCULATIONS
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    found = imported(f"(float[n] x) => (float[n] y) {{ y = {op} }}", opset)
    assert not found.opaque
    got = run(f"(float[n] x) => (float[n] y) {{ y = {op} }}", x, opset=opset)
    np.testing.assert_allclose(got, function(x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("op", "function"), [("Max", np.maximum), ("Min", np.minimum)])
def test_max_and_min_keep_nan(op, function):
    x, z = np.meshgrid(SPECIAL, SPECIAL)
    got = run(f"(float[n, m] x, float[n, m] z) => (float[n, m] y) {{ y = {op}(x, z) }}", x, z)
    np.testing.assert_array_equal(got, function(x, z))


def test_clip_takes_what_it_is_given():
    x = np.array([-3, 0, 7], np.float32)
    low, high = np.float32(-1), np.float32(5)
    np.testing.assert_array_equal(run("(float[n] x) => (float[n] y) { y = Clip(x) }", x), x)
    text = "(float[n] x, float a, float b) => (float[n] y) { y = Clip(x, a, b) }"
    np.testing.assert_array_equal(run(text, x, low, high), [-1, 0, 5])
    np.testing.assert_array_equal(run(text, x, high, low), [-1, -1, -1])
    only = "(float[n] x, float b) => (float[n] y) { y = Clip(x, , b) }"
    np.testing.assert_array_equal(run(only, x, high), [-3, 0, 5])


def test_integers_divide_towards_zero_and_mod_follows_its_attribute():
    x, z = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    two = "(int64[n] x, int64[n] z) => (int64[n] y)"
    np.testing.assert_array_equal(run(f"{two} {{ y = Div(x, z) }}", x, z), [3, -3, -3, 3])
    np.testing.assert_array_equal(run(f"{two} {{ y = Mod(x, z) }}", x, z), [1, 1, -1, -1])
    np.testing.assert_array_equal(run(f"{two} {{ y = Mod<fmod = 1>(x, z) }}", x, z), [1, -1, 1, -1])


@pytest.mark.parametrize("word", ["uint8", "int8", "uint32", "int64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_beyond_the_width_leave_nothing_or_the_sign(word, direction):
    dtype = np.dtype(WORDS[word])
    width = dtype.itemsize * 8
    counts = np.array([0, 1, width - 1, width, width + 3]).astype(dtype)
    values = np.full(5, np.iinfo(dtype).min if dtype.kind == "i" else 5, dtype)
    wide = [int(values[0]) << int(c) if direction == "LEFT" else int(values[0]) >> int(c) for c in counts]
    want = [value & (2**width - 1) for value in wide]
    text = f'({word}[n] x, {word}[n] z) => ({word}[n] y) {{ y = BitShift<direction = "{direction}">(x, z) }}'
    got = run(text, values, counts, opset=26)
    assert [int(value) & (2**width - 1) for value in got] == want


def test_sums_and_means_of_many():
    arrays = [np.full((3, 1), 1, np.float32), np.full(4, 2, np.float32), np.float32(6)]
    three = "(float[n, 1] a, float[m] b, float c) => (float[n, m] y)"
    for op, value in (("Sum", 9), ("Mean", 3), ("Max", 6), ("Min", 1)):
        np.testing.assert_array_equal(run(f"{three} {{ y = {op}(a, b, c) }}", *arrays), np.full((3, 4), value))


def test_dropout_is_the_identity_and_its_mask_is_true():
    found = imported("(float[n] x) => (float[n] y, bool[n] m) { y, m = Dropout(x) }", 22)
    assert not found.opaque
    y, mask = results(found, {"x": SPECIAL})
    np.testing.assert_array_equal(y, SPECIAL)
    assert mask.all()


def test_dropout_in_training_is_a_boundary():
    text = """(float[n] x) => (float[n] y) { r = Constant<value_float = 0.5>() t = Constant<value = bool {1}>()
        y = Dropout(x, r, t) }"""
    assert imported(text, 22).opaque == {2: "Dropout in training mode draws random numbers"}


@pytest.mark.parametrize("sizes", [(3, 3), (1, 3), (3, 1), (1, 1), (0, 0)])
def test_extents_that_may_be_one_are_broadcast_when_it_runs(sizes):
    x, z = (np.arange(size * 2, dtype=np.float32).reshape(size, 2) for size in sizes)
    np.testing.assert_array_equal(
        run("(float[a, 2] x, float[b, c] z) => (float[n, 2] y) { y = Sub(x, z) }", x, z), x - z
    )


def test_half_types_compute_in_single():
    x = np.array([1.001, 300, 60000], np.float16)
    got = run("(float16[n] x) => (float16[n] y) { y = Sqrt(x) }", x)
    np.testing.assert_array_equal(got, np.sqrt(x.astype(np.float32)).astype(np.float16))
