"""What reads tensors of the model alone is left to onnxruntime, which computes it once."""

from __future__ import annotations

import pytest

from noyau.frontends.onnx.importer import FOLDED, foldable_nodes
from tests.frontends.onnx.models import imported, model

WEIGHTS = "(float[n, 4] x) => (float[n, 4] y) <float[4, 4] w = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}>"


def test_casts_and_transposes_of_weights_are_folded():
    """As autocast exports them."""
    proto = model(
        f"""{WEIGHTS} {{ half = Cast<to = 10>(w) turned = Transpose<perm = [1, 0]>(half) h = Cast<to = 10>(x)
        p = MatMul(h, turned) y = Cast<to = 1>(p) }}"""
    )
    assert foldable_nodes(proto) == {0, 1}
    assert imported(proto).foldable == {0: FOLDED, 1: FOLDED}


def test_what_an_input_leads_to_is_not():
    proto = model(f"{WEIGHTS} {{ s = Shape(x) e = Expand(w, s) y = Add(e, x) }}")
    assert foldable_nodes(proto) == frozenset()


def test_scalars_stay_parts_of_formulas():
    found = imported("(float[n] x) => (float[n] y) { two = Constant<value_float = 2.0>() r = Sqrt(two) y = Div(x, r) }")
    assert found.foldable == {}


def test_a_tensor_that_an_input_may_override_is_no_constant():
    proto = model(f"{WEIGHTS} {{ turned = Transpose<perm = [1, 0]>(w) y = MatMul(x, turned) }}")
    assert foldable_nodes(proto) == {0}
    proto.graph.input.add().CopyFrom(proto.graph.input[0])
    proto.graph.input[1].name = "w"
    assert foldable_nodes(proto) == frozenset()
    proto.ir_version = 3  # there every initializer is listed so
    assert foldable_nodes(proto) == {0}


@pytest.mark.parametrize(
    "text",
    [
        "q = Constant<value = int8 {5}>() z = RandomNormalLike(w)",
        "s = Constant<value_float = 0.5>() o = Constant<value = int8 {0}>() q = QuantizeLinear(w, s, o) "
        "z = DequantizeLinear(q, s, o)",
    ],
)
def test_random_numbers_and_quantised_weights_are_not(text):
    proto = model(f"{WEIGHTS} {{ {text} y = MatMul(x, z) }}")
    assert foldable_nodes(proto) == frozenset()
