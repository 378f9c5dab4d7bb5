"""Paths of other models than LLaMA, as exporters spell them: each is one kernel, and it is right."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition.cut import Group, partition
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.frontends.onnx import import_model, partition_model
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Role
from tests.frontends.onnx.models import model

RNG = np.random.default_rng(0)
FLOATS = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ULP = {np.float32: 2.0**-23, np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}

NORM = "(float[b, s, 8] a, float[b, s, 8] r, float[8] k, float[8] w, float[8] c) => (float[b, s, 8] y) "
SCORES = "(float16[b, 2, s, t] x, float[b, 1, s, t] m) => (float16[b, 2, s, t] y) "
# What each is; 14336 are the bits of 0.5.
PATHS = {
    "BERT: bias, residual, LayerNormalization": (
        NORM + "{ p = Add(k, a) q = Add(p, r) y = LayerNormalization<axis = -1, epsilon = 1e-12>(q, w, c) }"
    ),
    "BERT: bias, GELU with erf": (
        "(float[b, s, 8] a, float[8] k) => (float[b, s, 8] y) <float h = {0.5}, float o = {1}, float t = {1.4142135}> "
        "{ x = Add(k, a) d = Div(x, t) e = Erf(d) p = Add(e, o) m = Mul(x, p) y = Mul(m, h) }"
    ),
    "GPT-2: GELU with tanh": (
        "(float[b, s, 8] x) => (float[b, s, 8] y) "
        "<float h = {0.5}, float t = {3}, float c = {0.044715}, float k = {0.7978846}, float o = {1}> "
        "{ g = Mul(x, h) q = Pow(x, t) d = Mul(q, c) e = Add(x, d) u = Mul(e, k) v = Tanh(u) w = Add(v, o) "
        "y = Mul(g, w) }"
    ),
    "GPT-2: residual, LayerNormalization, rows of a matrix": (
        "(float[b, s, 8] a, float[b, s, 8] r, float[8] w, float[8] c) => (float[b, s, 8] q, float[n, 8] y) "
        "<int64[2] rows = {-1, 8}> { q = Add(a, r) n = LayerNormalization(q, w, c) y = Reshape(n, rows) }"
    ),
    "GPT-2: queries and values of one product": (
        "(float[b, s, 24] x) => (float[b, 2, s, 4] q, float[b, s, 2, 4] k, float[b, 2, s, 4] v) "
        "<int64[4] heads = {0, 0, 2, 4}, int64[3] parts = {8, 8, 8}> { p, o, r = Split<axis = 2>(x, parts) "
        "h = Reshape(p, heads) k = Reshape(o, heads) i = Reshape(r, heads) q = Transpose<perm = [0, 2, 1, 3]>(h) "
        "v = Transpose<perm = [0, 2, 1, 3]>(i) }"
    ),
    "autocast: scale, mask, softmax": (
        SCORES + "<float16 h = {14336}> { z = Mul(x, h) w = Cast<to = 1>(z) n = Add(w, m) "
        "f = Softmax<axis = -1>(n) y = Cast<to = 10>(f) }"
    ),
    "autocast: residual, RMSNorm": (
        "(float16[b, s, 8] x, float[b, s, 8] r, float[8] w) => (float[b, s, 8] q, bfloat16[b, s, 8] y) "
        "<float two = {2}, float e = {1e-6}, int64[1] last = {-1}> { c = Cast<to = 1>(x) q = Add(r, c) p = Pow(q, two) "
        "m = ReduceMean(p, last) a = Add(m, e) t = Sqrt(a) i = Reciprocal(t) n = Mul(q, i) g = Mul(n, w) "
        "y = Cast<to = 16>(g) }"
    ),
    "autocast: heads, rotary": (
        "(float16[b, s, 8] x, float[1, 1, s, 4] c, float[1, 1, s, 4] d) => (float16[b, 2, s, 4] y) "
        "<int64[4] heads = {0, 0, 2, 4}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, "
        "int64[1] last = {-1}> { h = Reshape(x, heads) t = Transpose<perm = [0, 2, 1, 3]>(h) w = Cast<to = 1>(t) "
        "p = Mul(w, c) k = Slice(t, zero, two, last) l = Slice(t, two, four, last) m = Neg(l) "
        "n = Concat<axis = -1>(m, k) o = Cast<to = 1>(n) q = Mul(o, d) r = Add(p, q) y = Cast<to = 10>(r) }"
    ),
    "cache: keys of past and present": (
        "(float[b, 2, past, 4] old, float[b, s, 8] x) => (float[b, 2, all, 4] y) <int64[4] heads = {0, 0, 2, 4}> "
        "{ h = Reshape(x, heads) t = Transpose<perm = [0, 2, 1, 3]>(h) y = Concat<axis = 2>(old, t) }"
    ),
    "cache: keys repeated for grouped queries": (
        "(float[b, 2, t, 4] k) => (float[b, 6, 4, t] y) "
        "<int64[1] two = {2}, int64[5] three = {1, 1, 3, 1, 1}, int64[4] heads = {0, 6, -1, 4}> "
        "{ u = Unsqueeze(k, two) e = Expand(u, three) h = Reshape(e, heads) y = Transpose<perm = [0, 1, 3, 2]>(h) }"
    ),
    "Gemma: capped scores": (
        "(float[b, 2, s, t] x, float[b, 1, s, t] m) => (float[b, 2, s, t] y) <float h = {0.25}, float c = {50}> "
        "{ z = Mul(x, h) d = Div(z, c) e = Tanh(d) f = Mul(e, c) n = Add(f, m) y = Softmax<axis = -1>(n) }"
    ),
    "convolutions: batch norm, activation": (
        "(float[n, 4, h, w] x, float[4] s, float[4] b, float[4] m, float[4] v) => (float[n, 4, h, w] y) "
        "{ z = BatchNormalization(x, s, b, m, v) y = Relu(z) }"
    ),
    "convolutions: a gate": (
        "(float[n, 4, h, w] x, float[n, 4, 1, 1] g, float[n, 4, h, w] r) => (float[n, 4, h, w] y) "
        "{ s = Sigmoid(g) p = Mul(x, s) y = Add(r, p) }"
    ),
    "diffusion: a norm of groups, by one of instances, and SiLU": (
        "(float[b, 8, h, w] x) => (float[b, 8, h, w] y) <int64[3] groups = {0, 2, -1}, float[2] o = {1, 1}, "
        "float[2] z = {0, 0}, float[8, 1, 1] g = {1, 2, 3, 4, 5, 6, 7, 8}> { r = Reshape(x, groups) "
        "i = InstanceNormalization(r, o, z) k = Shape(x) n = Reshape(i, k) m = Mul(n, g) a = Add(m, g) "
        "s = Sigmoid(a) y = Mul(a, s) }"
    ),
    "onnxruntime: skip and norm, then a half type": (
        "(float[b, s, 8] x, float[b, s, 8] k, float[8] w) => (float16[b, s, 8] y, float[b, s, 8] z) "
        "{ n, , , z = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 1e-6>(x, k, w) y = Cast<to = 10>(n) }"
    ),
    "onnxruntime: SwiGLU by QuickGelu": (
        "(float[b, s, 8] x, float[b, s, 8] u) => (float[b, s, 8] y) "
        "{ g = com.microsoft.QuickGelu<alpha = 1.0>(x) y = Mul(g, u) }"
    ),
}
SIZES = {"b": 2, "s": 3, "t": 5, "past": 4, "n": 2, "h": 3, "w": 2}


def groups_of(text: str) -> tuple[Group, ...]:
    proto = model(text, 18, ', "com.microsoft" : 1')
    return partition(partition_model(proto, import_model(proto))).groups


def arrays_for(group: Group) -> dict[str, np.ndarray]:
    made = {}
    for node in group.original.inputs:
        shape = [int(dim.evaluate(SIZES)) for dim in node.shape]
        made[node.output] = np.abs(RNG.standard_normal(shape)).astype(node.dtype.numpy)
    return made


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_one_kernel(path):
    text = PATHS[path]
    (group,) = groups_of(text)
    nodes = model(text, 18, ', "com.microsoft" : 1').graph.node
    assert len(group.positions) == sum(node.op_type != "Shape" for node in nodes)
    arrays = arrays_for(group)
    kernel = schedule(lower(group.graph, "k"))
    got = run(kernel, [value_of(group, buffer.source, arrays) for buffer in kernel.of(Role.INPUT)])
    truth = evaluate(group.original, arrays, wide=True)
    for name, array in zip(group.outputs, got, strict=True):
        want = truth[name]
        assert array.shape == want.shape
        near = 16 * ULP[array.dtype.type] * max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(array.astype(float), want, rtol=0, atol=near)


def value_of(group: Group, name: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """An input of the kernel: one of the path, or a scalar of its text."""
    if name in arrays:
        return arrays[name]
    return evaluate(replace(group.original, outputs=(name,)), arrays)[name]


HALVES = ["float16", "bfloat16"]


def kernel_of(text: str, **arrays: np.ndarray) -> np.ndarray:
    """What the kernel of a path of one output gives."""
    (group,) = groups_of(text)
    kernel = schedule(lower(group.graph, "k"))
    return run(kernel, [value_of(group, buffer.source, arrays) for buffer in kernel.of(Role.INPUT)])[0]


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_of_half_types_are_made_wide(dtype):
    """One by one, 1 + 1 + ... stops at 2048 in float16, and at 256 in bfloat16."""
    ends = f"({dtype}[n, 4096] x) => ({dtype}[n, 4096] y) <int64[1] last = {{-1}}>"
    text = f"{ends} {{ m = ReduceSum(x, last) y = Div(x, m) }}"
    x = np.ones((1, 4096), FLOATS[dtype])
    np.testing.assert_array_equal(kernel_of(text, x=x).astype(float), 1 / 4096)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("masked", ["infinite", "finite"])
def test_masks_of_half_types(dtype, masked):
    """-inf, or the least finite number: what is masked is 0; a row that is masked whole is uniform, or NaN."""
    text = f"({dtype}[n, 4] x, {dtype}[n, 4] m) => ({dtype}[n, 4] y) {{ z = Add(x, m) y = Softmax(z) }}"
    least = -np.inf if masked == "infinite" else float(ml_dtypes.finfo(FLOATS[dtype]).min)
    mask = np.array([[0, least, 0, least], [least] * 4]).astype(FLOATS[dtype])
    got = kernel_of(text, x=np.zeros((2, 4), FLOATS[dtype]), m=mask).astype(float)
    np.testing.assert_array_equal(got[0], [0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(got[1], [np.nan if masked == "infinite" else 0.25] * 4)


def test_casts_to_half_types_overflow_as_those_of_onnxruntime():
    text = "(float[n] x) => (float16[n] y) <float o = {1}> { z = Mul(x, o) y = Cast<to = 10>(z) }"
    x = np.array([65504, 65519, 65520, 1e5, -1e30, np.inf, -np.inf, 6e-8, 2.9e-8, -0.0], np.float32)
    session = onnxruntime.InferenceSession(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    assert np.isinf(want).sum() == 5
    np.testing.assert_array_equal(kernel_of(text, x=x).view(np.uint16), want.view(np.uint16))


def test_what_overflows_between_two_casts_is_infinite_as_unfused():
    text = "(float[n] x) => (float[n] y) <float k = {0.5}> { h = Cast<to = 10>(x) w = Cast<to = 1>(h) y = Mul(w, k) }"
    assert kernel_of(text, x=np.array([6e4, 1e5], np.float32)).tolist() == [3e4, np.inf]
