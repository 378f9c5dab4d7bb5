"""Weights in few bits tried: models that hold many copies of products, and errors beside float64."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.hosts.onnxruntime.products import products_of
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.jobs.optimize.onnx import weights
from noyau.jobs.optimize.onnx.weights import (
    VARIANTS,
    Variant,
    equal_products,
    judge_variants,
    model_of,
    repeat_model,
    with_variants,
)
from noyau.jobs.optimize.pipeline import BindingTiming
from noyau.jobs.optimize.weight_choice import trial_loss
from tests.hosts.onnxruntime.test_products import FORMS, WEIGHTS
from tests.small_models import compared

X = np.random.default_rng(1).standard_normal((3, 5, 96)).astype(np.float32)
BY_FORM = {form: products_of(model, None)[0][0] for form, model in FORMS.items()}


@pytest.mark.parametrize("form", FORMS)
def test_a_model_of_copies_gives_the_first_row_of_each(form):
    operand = X if BY_FORM[form].node.op_type == "MatMul" else X[0]
    like = model_of([BY_FORM[form]] * 2, operand.ndim, FORMS[form], brief=True)
    few = with_variants(like, {"product_0": Variant(8, 32, 0), "product_1": Variant(7)}, None)
    for model, allowed in ((like, 1e-5), (few, 0.05)):
        found = run(open_session(repeat_model(model, 3).SerializeToString(), threads=1), {"x": operand})
        assert list(found) == [name + tail for tail in ("", "_1", "_2") for name in ("row_0", "row_1")]
        exact = operand[..., 0, :].astype(np.float64) @ WEIGHTS
        for name, rows in found.items():
            assert np.abs(rows - exact).max() <= allowed * np.abs(exact).max()
            assert np.array_equal(rows, found[name[:5]])
    assert len(repeat_model(few, 3).graph.initializer) == 3 * len(few.graph.initializer)


def test_copies_are_as_many_as_keep_weights_cold_and_two_where_that_is_of_no_matter(monkeypatch):
    monkeypatch.setattr(weights, "last_level_bytes", lambda: 76_800 * 5)
    monkeypatch.setattr(weights, "MOST_BYTES", 76_800 * 40)
    products = [BY_FORM["matmul"]]
    assert [weights._copies(products, X[:1, :1], 76_800 * many) for many in (1, 20, 99)] == [10, 20, 40]
    assert weights._copies(products, np.zeros((1, 33, 96)), 76_800) == 2
    monkeypatch.setattr(weights, "MOST_BYTES", 76_799)
    assert weights._copies(products, X[:1, :1], 76_800) == 1


def test_products_are_equal_where_their_time_must_be():
    flows = [{"x": X}]
    groups = equal_products([BY_FORM[form] for form in ("matmul", "transpose", "gemm", "constant")], flows)
    assert [len(group) for group in groups] == [3, 1]
    assert len(equal_products([BY_FORM["matmul"]] * 2, [{"x": X}, {"x": X[:1]}])) == 1


def test_errors_are_those_of_onnxruntime_beside_float64_row_by_row():
    flow = {"x": X.copy()}
    flow["x"][0, 0, 0] = np.nan  # a row that is left out
    plain, *few = judge_variants(BY_FORM["matmul"], VARIANTS, [flow], FORMS["matmul"])
    assert max(plain) < 1e-6
    by_variant = dict(zip(VARIANTS, few, strict=True))
    rows = X.reshape(-1, 96)[1:]
    exact = rows.astype(np.float64) @ WEIGHTS
    made = with_variants(FORMS["matmul"], {"y": Variant(4, 32, 0)}, None)
    apart = np.abs(run(open_session(made.SerializeToString()), {"x": rows})["y"] - exact).max(axis=1)
    assert by_variant[Variant(4, 32, 0)][0] == pytest.approx((apart / np.abs(exact).max(axis=1)).max(), rel=1e-3)
    for variant, errors in by_variant.items():
        assert errors[0] < {4: 0.2, 7: 0.05, 8: 0.03}[variant.bits]
        assert (errors[2] > 0.5) == (not variant.block)  # one scale for all activations: a large channel ruins the rest


@pytest.mark.parametrize(
    ("ratios", "reason"),
    [
        ((2.0, 1.0), ""),
        ((2.0, 0.9), "SLOWER at rows=1: 0.90x"),
        ((1.0, 1.0), "SAME at rows=0: 1.00x"),
        ((), "not timed"),
    ],
)
def test_a_variant_is_faster_at_one_binding_and_slower_at_none(ratios, reason):
    timings = [BindingTiming({"rows": rows}, compared(ratio)) for rows, ratio in enumerate(ratios)]
    assert trial_loss(timings) == reason
