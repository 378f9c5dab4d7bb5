from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.errors import SignatureError, UnsupportedError
from noyau.ir.graph_interpreter import evaluate
from noyau.ops.user_gradients import derive_by
from tests.compiler.autodiff.numeric import agrees, backwards, traced


def scaled(x, w, *, power=2.0):
    return np.tanh(x) * w**power


GRAPH = traced(lambda x, w: scaled(x, w), (3, 4), (4,))
X, W, ABOVE = (np.random.default_rng(k).normal(size=shape) for k, shape in enumerate([(3, 4), (4,), (3, 4)]))
INPUTS = {"x": X, "w": W}


def by_inputs(x, w, grad, *, power):
    return grad * (1 - np.tanh(x) ** 2) * w**power, (grad * np.tanh(x) * power * w ** (power - 1)).sum(0)


def by_outputs(grad_out, out, w):
    return grad_out * (1 - (out / w**2) ** 2) * w**2, (grad_out * out / w * 2).sum(0)


@pytest.mark.parametrize("function", [by_inputs, by_outputs], ids=lambda each: each.__name__)
def test_a_gradient_by_hand_gives_what_the_derived_one_gives(function):
    own = derive_by(function, GRAPH, {"power": 2.0})
    derived = derive(GRAPH, ["x", "w"])
    assert own.wanted == derived.wanted
    want, got = (backwards(each, INPUTS, {"out": ABOVE}) for each in (derived, own))
    for name in own.wanted:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-12)
    whole = evaluate(own.gradient, {**INPUTS, "grad_out": ABOVE})
    np.testing.assert_allclose(whole[own.backward.outputs[0]], want["x"], rtol=1e-12)


def test_what_it_reads_is_saved_and_gradients_come_last():
    assert derive_by(by_outputs, GRAPH, {}).saved == ("w", "out")
    assert [n.output for n in derive_by(by_inputs, GRAPH, {"power": 2.0}).backward.inputs] == ["x", "w", "grad_out"]


def test_it_is_derived_again_through_the_outputs_that_it_reads():
    agrees(derive_by(by_outputs, GRAPH, {}).gradient, {**INPUTS, "grad_out": ABOVE})


def test_none_stands_for_none():
    own = derive_by(lambda x, w, grad: (None, grad.sum(0)), GRAPH, {})
    assert own.wanted == ("w",)
    np.testing.assert_allclose(backwards(own, INPUTS, {"out": ABOVE})["w"], ABOVE.sum(0))


def test_one_input_needs_no_tuple_and_another_gradient_may_be_given():
    graph = traced(lambda x: np.round(x), (5,))
    own = derive_by(lambda grad: grad, graph, {})
    np.testing.assert_array_equal(backwards(own, {"x": np.ones(5)}, {"out": np.arange(5.0)})["x"], np.arange(5.0))


def test_several_outputs_have_gradients_by_name_that_need_not_be_read():
    graph = traced(lambda x: (x * 2, x + 1), (5,))
    own = derive_by(lambda grad_out1: grad_out1 * 3, graph, {})
    assert [node.output for node in own.backward.inputs] == ["grad_out0", "grad_out1"]
    found = backwards(own, {"x": np.ones(5)}, {"out0": np.ones(5), "out1": np.ones(5)})
    np.testing.assert_array_equal(found["x"], np.full(5, 3.0))


def test_integers_have_no_gradient_to_give():
    graph = traced(lambda x, ids: x[ids], (5,), (3,), dtypes={"ids": DType.I64})
    own = derive_by(lambda x, grad: x * grad.sum(), graph, {})
    assert own.wanted == ("x",)


@pytest.mark.parametrize(
    ("function", "error", "told"),
    [
        (
            lambda x, y: x,
            SignatureError,
            "takes 'y', which is none of what it can have: x, w, out, grad_out, grad, power",
        ),
        (lambda *all: all, SignatureError, r"takes \*all; its parameters are found by name: write them out"),
        (
            lambda x, grad: grad,
            SignatureError,
            "returns 1 gradients, and there are 2 float inputs: x, w; None stands for",
        ),
        (lambda x, w, grad: (grad, grad, w), SignatureError, "returns 3 gradients, and there are 2"),
        (lambda x, w, grad: (grad, grad), UnsupportedError, r"grad_w is f64\[.*\], and f64 of 1 axes by the signature"),
        (
            lambda x, w, grad: (grad.astype(np.float32), w),
            UnsupportedError,
            "grad_x is f32.*f64 of 2 axes by the signature; cast",
        ),
        (lambda x, w, grad: (grad.tolist(), w), UnsupportedError, "cannot be traced at line"),
        (lambda x, w, grad: (None, None), UnsupportedError, "it returns nothing"),
    ],
)
def test_errors_say_what_is_wrong(function, error, told):
    with pytest.raises(error, match=told):
        derive_by(function, GRAPH, {"power": 2.0})


def test_sizes_of_a_call_tell_gradients_of_another_extent():
    graph = traced(lambda x, w: x * 2 + w.sum(), (4,), (3,))
    with pytest.raises(UnsupportedError, match="shapes do not fit: an extent is"):
        derive_by(lambda x, w, grad: (grad, grad), graph, {}, {"x_0": 4, "w_0": 3})
