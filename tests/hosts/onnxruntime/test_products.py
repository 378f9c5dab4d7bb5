"""Products with constant weights, in each form that a model may have them, and those that are left alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from noyau.hosts.onnxruntime import products
from noyau.hosts.onnxruntime.products import products_of
from noyau.jobs.optimize.onnx.weights import VARIANTS, with_variants
from tests.small_models import NODE, model_of, value

WEIGHTS = np.random.default_rng(0).standard_normal((96, 200)).astype(np.float32)
BIAS = np.linspace(-1, 1, 200).astype(np.float32)


def product(
    *nodes: onnx.NodeProto, opset: int = 18, overridable: bool = False, **tensors: np.ndarray
) -> onnx.ModelProto:
    """x f32[rows, 96] -> y f32[rows, 200]"""
    inputs = [value("x", ("rows", 96)), *([value("w", (96, 200))] if overridable else [])]
    stored = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    return model_of(nodes, inputs, [value("y", ("rows", 200))], stored, opset=opset)


FORMS = {
    "matmul": product(NODE("MatMul", ["x", "w"], ["y"]), w=WEIGHTS),
    "transpose": product(NODE("Transpose", ["w"], ["t"]), NODE("MatMul", ["x", "t"], ["y"]), w=WEIGHTS.T.copy()),
    "twice": product(
        NODE("Transpose", ["w"], ["t"], perm=[1, 0]),
        NODE("Identity", ["t"], ["i"]),
        NODE("Gemm", ["x", "i", "b"], ["y"], transB=1),
        w=WEIGHTS,
        b=BIAS,
    ),
    "gemm": product(NODE("Gemm", ["x", "w", "b"], ["y"], transB=1), w=WEIGHTS.T.copy(), b=BIAS),
    "constant": product(
        NODE("Constant", [], ["w"], value=numpy_helper.from_array(WEIGHTS)), NODE("MatMul", ["x", "w"], ["y"])
    ),
    "standard": product(NODE("MatMul", ["x", "w"], ["y"]), opset=21, w=WEIGHTS),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_product_is_known_in_each_form(form):
    ((found,), refused) = products_of(FORMS[form], None)
    assert (found.output, found.operand, found.shape, found.bytes, refused) == ("y", "x", (96, 200), 76_800, {})
    assert found.bias == ("b" if form in ("gemm", "twice") else "")
    np.testing.assert_array_equal(found.weights(), WEIGHTS)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (product(NODE("Gemm", ["x", "w"], ["y"], alpha=0.5), w=WEIGHTS), "scales or transposes its first operand"),
        (
            product(NODE("Gemm", ["x", "w", "b"], ["y"], beta=2.0), w=WEIGHTS, b=BIAS),
            "something else than a constant row",
        ),
        (product(NODE("Gemm", ["x", "w", "b"], ["y"]), w=WEIGHTS, b=BIAS[:1]), "something else than a constant row"),
        (product(NODE("MatMul", ["x", "w"], ["y"]), w=WEIGHTS, overridable=True), "which a caller may replace"),
    ],
)
def test_what_is_no_product_for_few_bits_is_left_with_the_reason(model, reason):
    found, refused = products_of(model, None)
    assert not found
    assert reason in refused["y"]


@pytest.mark.parametrize(
    "model",
    [
        product(NODE("MatMul", ["x", "w"], ["y"]), w=WEIGHTS.astype(np.float16)),
        product(NODE("MatMul", ["x", "w"], ["y"]), w=WEIGHTS[None]),
        product(NODE("MatMul", ["w", "x"], ["y"]), w=WEIGHTS),
        product(NODE("MatMul", ["x", "w"], ["y"]), w=WEIGHTS[:, :9].copy()),
    ],
    ids=["another type", "a stack", "the first operand", "small"],
)
def test_other_products_are_none(model):
    assert products_of(model, None) == ([], {})


@pytest.mark.parametrize("form", ["matmul", "standard"])
@pytest.mark.parametrize("variant", VARIANTS[:2] + VARIANTS[-1:], ids=str)
def test_a_product_in_few_bits_is_none_any_more(form, variant):
    made = with_variants(FORMS[form], {"y": variant}, None)
    assert products_of(made, None) == ([], {})


def test_weights_that_a_file_has_no_room_for_are_left(monkeypatch):
    for name in ("MOST_BYTES", "MOST_TOTAL_BYTES"):
        monkeypatch.setattr(products, name, 76_799)
        assert products_of(FORMS["matmul"], None)[1]["y"].endswith("would lie in the model's file, which ends at 2 GB")
        monkeypatch.undo()
