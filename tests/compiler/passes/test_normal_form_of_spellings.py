"""Spelling does not matter, seen from ONNX: what means the same is the same kernel, to the letter of its text.

What rounds otherwise, or differs in NaN, infinities or the sign of 0, is another kernel: those are here too.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest

from noyau.codegen.plan import plan
from noyau.compiler.partition.cut import Group, partition
from noyau.frontends.onnx import import_model, partition_model
from noyau.ir.graph_interpreter import evaluate

NUMBERS = "<float e={0.1}, float one={1.0}, float two={2.0}, float half={0.5}, float mone={-1.0}, float mhalf={-0.5}, "
NUMBERS += "float n={64.0}, float in={0.015625}, float eight={8.0}, float eighth={0.125}, float zero={0.0}, "
NUMBERS += "float low={-3.4e38}, float mzero={-0.0}, int64[1] last={-1}, int64[1] rows={1}>"
NORM = "(float[b, s, 64] x, float[64] w) => (float[b, s, 64] y)"
MEAN = "q = Mul(x, x) m = ReduceMean<keepdims=1>(q, last) a = Add(m, e)"
ROOT = f"{MEAN} r = Sqrt(a)"
AFFINE = "(float[b, s, 64] x, float[64] w, float[64] c) => (float[b, s, 64] y)"
ROW = "(float[b, s] x) => (float[b, s] y)"
SHIFTED = "m = ReduceMax(x, last) d = Sub(x, m) p = Exp(d) t = ReduceSum(p, last)"
MASKED = "(float[b, h, s, t] x, bool[b, 1, s, t] k) => (float[b, h, s, t] y)"
ROTARY = "(float[b, h, s, 8] x, float[s, 8] c, float[s, 8] z) => (float[b, h, s, 8] y)"
HALVES = "u, v = Split<axis=-1, num_outputs=2>(x)"
TURNED = "r = Concat<axis=-1>(o, u) f = Mul(x, c) g = Mul(r, z) y = Add(f, g)"

SAME = {
    "RMSNorm": (
        NORM,
        f"{ROOT} d = Div(x, r) y = Mul(d, w)",
        f"{ROOT} d = Div(x, r) y = Mul(w, d)",
        "q = Pow(x, two) m = ReduceMean<keepdims=1>(q, last) a = Add(e, m) r = Sqrt(a) d = Div(x, r) y = Mul(d, w)",
        f"{ROOT} i = Reciprocal(r) d = Mul(x, i) y = Mul(d, w)",
        f"{ROOT} i = Div(one, r) d = Mul(i, x) y = Mul(d, w)",
        f"{MEAN} i = Pow(a, mhalf) d = Mul(x, i) y = Mul(d, w)",
        f"{MEAN} r = Pow(a, half) d = Div(x, r) y = Mul(d, w)",
        "q = Mul(x, x) k = ReduceMean<keepdims=0>(q, last) m = Unsqueeze(k, last) a = Add(m, e) r = Sqrt(a) "
        "d = Div(x, r) y = Mul(d, w)",
        "q = Mul(x, x) k = ReduceMean<keepdims=0>(q, last) b1 = Add(k, e) i = Sqrt(b1) r = Unsqueeze(i, last) "
        "d = Div(x, r) y = Mul(d, w)",
        "t = ReduceSumSquare(x, last) m = Div(t, n) a = Add(m, e) r = Sqrt(a) d = Div(x, r) y = Mul(d, w)",
        "t = ReduceSumSquare(x, last) m = Mul(in, t) a = Add(m, e) r = Sqrt(a) d = Div(x, r) y = Mul(d, w)",
        "f = Cast<to=1>(x) q = Mul(f, f) m = ReduceMean<keepdims=1>(q, last) a = Add(m, e) r = Sqrt(a) d = Div(f, r) "
        "g = Cast<to=1>(d) i = Identity(g) y = Mul(i, w)",
    ),
    "LayerNorm": (
        AFFINE,
        "m = ReduceMean(x, last) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, last) a = Add(v, e) r = Sqrt(a) "
        "k = Div(d, r) f = Mul(k, w) y = Add(f, c)",
        "m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last) a = Add(v, e) i = Pow(a, mhalf) "
        "k = Mul(i, d) f = Mul(w, k) y = Add(c, f)",
        "m = ReduceMean(x, last) d = Sub(x, m) d2 = Sub(x, m) q = Mul(d2, d2) v = ReduceMean(q, last) a = Add(v, e) "
        "r = Sqrt(a) k = Div(d, r) f = Mul(k, w) y = Add(f, c)",
        "m = ReduceMean(x, last) o = Neg(m) d = Add(o, x) q = Mul(d, d) v = ReduceMean(q, last) a = Add(v, e) "
        "r = Sqrt(a) i = Reciprocal(r) k = Mul(d, i) f = Mul(k, w) y = Add(f, c)",
    ),
    "Softmax": (
        ROW,
        "y = Softmax<axis=-1>(x)",
        "y = Softmax<axis=1>(x)",
        f"{SHIFTED} y = Div(p, t)",
        f"{SHIFTED} i = Reciprocal(t) y = Mul(i, p)",
        f"{SHIFTED} i = Div(one, t) y = Mul(p, i)",
    ),
    "LogSoftmax": (
        ROW,
        "y = LogSoftmax<axis=-1>(x)",
        f"{SHIFTED} l = Log(t) y = Sub(d, l)",
        f"{SHIFTED} l = Log(t) o = Neg(l) y = Add(o, d)",
    ),
    "SiLU": (
        ROW,
        "g = Sigmoid(x) y = Mul(x, g)",
        "g = Sigmoid(x) y = Mul(g, x)",
        "o = Neg(x) p = Exp(o) t = Add(p, one) y = Div(x, t)",
        "o = Neg(x) p = Exp(o) t = Add(one, p) g = Div(one, t) y = Mul(g, x)",
        "o = Mul(x, mone) p = Exp(o) t = Add(one, p) g = Reciprocal(t) y = Mul(x, g)",
    ),
    "scaled softmax": (
        ROW,
        "q = Div(x, eight) y = Softmax(q)",
        "q = Mul(x, eighth) y = Softmax(q)",
        "q = Mul(eighth, x) y = Softmax(q)",
        "d = Sqrt(n) q = Div(x, d) y = Softmax(q)",
    ),
    "masked softmax": (
        MASKED,
        "q = Where(k, x, low) y = Softmax(q)",
        "o = Not(k) q = Where(o, low, x) y = Softmax(q)",
        "i = Cast<to=7>(k) o = Cast<to=9>(i) q = Where(o, x, low) y = Softmax(q)",
    ),
    "softmax with a mask added": (
        MASKED,
        "f = Where(k, zero, low) q = Add(x, f) y = Softmax(q)",
        "o = Not(k) f = Where(o, low, zero) q = Add(f, x) y = Softmax(q)",
    ),
    "rotary": (
        ROTARY,
        f"{HALVES} o = Neg(v) {TURNED}",
        f"{HALVES} o = Mul(v, mone) {TURNED}",
        f"{HALVES} o = Neg(v) r = Concat<axis=3>(o, u) f = Mul(c, x) g = Mul(z, r) y = Add(g, f)",
        "s = Constant<value = int64[2] {4, 4}>() u, v = Split<axis=3>(x, s) o = Neg(v) " + TURNED,
        "b0 = Constant<value = int64[1] {0}>() b4 = Constant<value = int64[1] {4}>() "
        "b9 = Constant<value = int64[1] {9223372036854775807}>() u = Slice(x, b0, b4, last) v = Slice(x, b4, b9, last) "
        f"o = Neg(v) {TURNED}",
    ),
    "gelu by erf": (
        ROW,
        "s = Sqrt(two) k = Div(x, s) f = Erf(k) p = Add(f, one) h = Mul(x, half) y = Mul(h, p)",
        "s = Sqrt(two) k = Div(x, s) f = Erf(k) p = Add(one, f) h = Div(x, two) y = Mul(p, h)",
    ),
}

# What is one kernel in no respect: the second column says why.
APART = {
    "a square root of what may be -0": (ROW, "q = Pow(x, half) y = Tanh(q)", "q = Sqrt(x) y = Tanh(q)"),
    "the order of factors, which under- and overflow otherwise": (
        ROW,
        "f = Erf(x) p = Add(f, one) h = Mul(x, half) y = Mul(h, p)",
        "f = Erf(x) p = Add(f, one) h = Mul(x, p) y = Mul(h, half)",
    ),
    "a sum of what cancels": (
        ROW,
        "g = Sigmoid(x) y = Mul(x, g)",
        "u = Mul(x, half) t = Tanh(u) f = Add(t, one) g = Mul(f, half) y = Mul(x, g)",
    ),
    "0 - 0, which is 0": (ROW, "o = Neg(x) y = Exp(o) z = Log(y)", "o = Sub(zero, x) y = Exp(o) z = Log(y)"),
    "a mask that is added to infinity": (
        MASKED,
        "q = Where(k, x, low) y = Softmax(q)",
        "f = Where(k, zero, low) q = Add(x, f) y = Softmax(q)",
    ),
    "a quotient that is no product": (
        ROW,
        "q = Div(x, e) y = Softmax(q)",
        "d = Div(one, e) q = Mul(x, d) y = Softmax(q)",
    ),
    "the logarithm of what is 0": (ROW, "y = LogSoftmax(x)", "q = Softmax(x) y = Log(q)"),
}


@cache
def cut(ends: str, body: str, opset: int = 18) -> tuple[str, Group]:
    """The digest of the one kernel that a model becomes, and its group."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {ends} {NUMBERS} {{ {body} }}')
    (group,) = partition(partition_model(model, import_model(model))).groups
    (kernel,) = plan([group], [node.op_type for node in model.graph.node], "x86-64").kernels
    return kernel.operator.rsplit("_", 1)[1], group


@pytest.mark.parametrize("what", SAME)
def test_spellings_of_one_thing_are_one_kernel(what):
    ends, *bodies = SAME[what]
    found = {body: cut(ends, body)[0] for body in bodies}
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("what", SAME)
def test_and_the_kernel_computes_what_each_says(what):
    ends, *bodies = SAME[what]
    for body in bodies:
        group = cut(ends, body)[1]
        arrays = inputs_of(group)
        (want,), (got,) = evaluate(group.original, arrays, wide=True).values(), evaluate(group.graph, arrays).values()
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def inputs_of(group: Group) -> dict[str, np.ndarray]:
    """Arrays for both graphs of a group, numbers that became inputs among them."""
    noise, sizes = np.random.default_rng(0), {"b": 2, "h": 3, "s": 5, "t": 4}
    arrays = {}
    for node in (*group.original.inputs, *group.graph.inputs):
        known = group.original.by_name[node.output].kind
        shape = [int(dim.evaluate(sizes)) for dim in node.shape]
        made = noise.normal(0, 2, shape) > 0 if node.dtype.kind == "bool" else noise.normal(0, 2, shape)
        arrays[node.output] = getattr(known, "value", made.astype(node.dtype.numpy))
    return arrays


@pytest.mark.parametrize("why", APART)
def test_what_differs_by_more_than_rounding_is_two_kernels(why):
    ends, one, other = APART[why]
    assert cut(ends, one)[0] != cut(ends, other)[0]


PLAIN = "h = Constant<value = float {0.5}>()"  # a number that stays in the text, as one from an attribute does


@pytest.mark.parametrize(
    ("ends", "operator", "spelt", "opset"),
    [
        (
            NORM,
            "y = RMSNormalization<epsilon=0.5>(x, w)",
            "q = Mul(x, x) m = ReduceMean<keepdims=1>(q, last) a = Add(m, h) r = Sqrt(a) d = Div(x, r) y = Mul(d, w)",
            23,
        ),
        (
            AFFINE,
            "y = LayerNormalization<epsilon=0.5>(x, w, c)",
            "m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last) a = Add(v, h) r = Sqrt(a) "
            "k = Div(d, r) f = Mul(k, w) y = Add(f, c)",
            18,
        ),
        (ROW, "y = Swish(x)", "g = Sigmoid(x) y = Mul(x, g)", 24),
        (
            ROW,
            "y = Gelu(x)",
            "t = Sqrt(two) k = Div(x, t) f = Erf(k) p = Add(f, one) g = Mul(x, h) y = Mul(g, p)",
            20,
        ),
    ],
    ids=["RMSNormalization", "LayerNormalization", "Swish", "Gelu"],
)
def test_a_composite_operator_is_the_kernel_that_its_parts_are(ends, operator, spelt, opset):
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip(f"this onnx does not know opset {opset}")
    assert cut(ends, operator, opset)[0] == cut(ends, f"{PLAIN} {spelt}", opset)[0]


@pytest.mark.parametrize("opset", [13, 17])
def test_axes_are_an_attribute_in_older_opsets(opset):
    older = "q = Mul(x, x) m = ReduceMean<axes=[-1]>(q) a = Add(m, e) r = Sqrt(a) d = Div(x, r) y = Mul(d, w)"
    assert cut(NORM, older, opset)[0] == cut(NORM, SAME["RMSNorm"][1])[0]


def test_names_of_values_and_of_sizes_do_not_matter():
    """Nor do they decide the order of operands."""
    body = "q = Mul(x, c) f = Add(q, w) g = Tanh(f) y = Mul(g, x)"
    kernels = {
        cut(f"(float[{a}, {b}] x, float[{b}] c, float[{a}, 1] w) => (float[{a}, {b}] y)", body)[0]
        for a, b in (("a", "b"), ("b", "a"), ("batch", "n"), ("n", "batch"), ("zz", "k1"))
    }
    assert len(kernels) == 1
