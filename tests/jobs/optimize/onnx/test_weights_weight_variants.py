"""Weights in few bits beside float64: what onnxruntime computes with them, in each form of a product."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.errors import UnsupportedError
from noyau.hosts.onnxruntime import products
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import load_onnxruntime, open_session
from noyau.hosts.onnxruntime.write_back import put_back
from noyau.jobs.optimize.onnx.weights import VARIANTS, Variant, pack, with_variants
from tests.hosts.onnxruntime.test_products import BIAS, FORMS, WEIGHTS
from tests.scenes import scene
from tests.small_models import NODE

__all__ = ["scene"]

X = np.random.default_rng(1).standard_normal((5, 96)).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_onnxruntime_computes_nearly_the_same(variant, form):
    made = with_variants(FORMS[form], {"y": variant}, None)
    onnx.checker.check_model(made)
    exact = X.astype(np.float64) @ WEIGHTS.astype(np.float64) + (BIAS if form in ("gemm", "twice") else 0)
    (first, again) = (
        run(open_session(made.SerializeToString(), threads=1, optimized=o), {"x": X})["y"] for o in (1, 0)
    )
    step = np.abs(WEIGHTS).max() / 2 ** (variant.bits - 1)
    allowed = np.linalg.norm(X, axis=1).max() * step  # of sums of 96, each off by half a step of a weight or less
    allowed += (
        0 if variant.level == 0 and variant.block else np.abs(X).max() / 100 * np.linalg.norm(WEIGHTS, axis=0).max()
    )
    assert 0 < np.abs(first - exact).max() < allowed
    assert np.abs(again - exact).max() < allowed


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_cells_times_scales_are_the_weights_within_a_step(variant):
    cells, scales = pack(WEIGHTS, variant)
    if not variant.block:
        middle = 128 if variant.bits == 8 else 0
        assert (np.abs(cells.astype(int) - middle) < 2 ** (variant.bits - 1)).all()
        wide = (cells.astype(np.float64) - middle) * scales
        assert np.abs(wide - WEIGHTS).max() <= scales.max() / 2 * 1.001
        return
    flat = cells if variant.bits == 8 else np.stack([cells & 15, cells >> 4], axis=-1)
    blocks = -(-96 // variant.block)
    wide = (flat.reshape(200, blocks, variant.block).astype(np.float64) - 2 ** (variant.bits - 1)) * scales[:, :, None]
    whole = wide.reshape(200, -1)
    assert np.abs(whole[:, :96].T - WEIGHTS).max() <= np.abs(scales).max() * 1.001


def test_a_column_of_zeros_stays_one():
    weights = WEIGHTS.copy()
    weights[:, 7] = 0
    cells, scales = pack(weights, Variant(7))
    assert (cells[:, 7].any(), scales[7]) == (False, 1)


def test_only_the_products_that_are_named_change_and_views_without_a_reader_go():
    model = FORMS["transpose"]
    assert with_variants(model, {}, None).graph == model.graph
    made = with_variants(model, {"y": Variant(8)}, None)
    assert [node.op_type for node in made.graph.node] == ["DynamicQuantizeMatMul"]
    assert "w" not in {tensor.name for tensor in made.graph.initializer}
    shared = onnx.ModelProto()
    shared.CopyFrom(model)
    shared.graph.node.append(NODE("Identity", ["t"], ["z"]))
    shared.graph.output.add(name="z").type.CopyFrom(shared.graph.output[0].type)
    assert next(node.op_type for node in with_variants(shared, {"y": Variant(8)}, None).graph.node) == "Transpose"


def test_names_that_are_taken_already_are_not_taken_again():
    model = onnx.ModelProto()
    model.CopyFrom(FORMS["matmul"])
    model.graph.node[0].name = "y_int8"
    names = [tensor.name for tensor in with_variants(model, {"y": Variant(8, 32, 0)}, None).graph.initializer]
    assert len(set(names)) == 2 and all(not name.startswith("y_int8_cells") for name in names)


def test_an_onnxruntime_that_does_not_pack_so_says_it(monkeypatch):
    monkeypatch.delattr(load_onnxruntime().capi._pybind_state, "quantize_matmul_8bits")
    with pytest.raises(UnsupportedError, match="this onnxruntime does not pack weights in 8 bits"):
        pack(WEIGHTS, Variant(8, 32, 0))


def test_the_functions_of_fused_nodes_stay_as_they_are(scene, monkeypatch):
    monkeypatch.setattr(products, "LEAST_BYTES", 0)
    original, kernels, _ = scene
    fused = put_back(original.model, kernels, original.folder)
    made = with_variants(fused, {"b": Variant(8), "d": Variant(8, 32, 4)}, None)
    assert list(made.functions) == list(fused.functions) != []
    assert [node.op_type for node in made.graph.node if node.domain == "com.microsoft"] == [
        "DynamicQuantizeMatMul",
        "MatMulNBits",
    ]
    open_session(made.SerializeToString(), threads=1)
