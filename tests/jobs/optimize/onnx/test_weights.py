"""Weights in few bits, from the model to the file, with a planted clock: what is tried, kept, undone, said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import noyau
from noyau.errors import InputError
from noyau.hosts.onnxruntime import products
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import load_onnxruntime, open_session
from noyau.jobs.cli import main
from noyau.jobs.optimize.onnx import weights
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import OptimizedModel, optimize
from noyau.jobs.optimize.pipeline import BindingTiming
from tests.small_models import NODE, compared, llama, model_of, value, written

pytestmark = pytest.mark.usefixtures("lasting_workers")
LOOSE = OptimizeOptions(budget_s=0.01, weights="auto", budget=0.5, dims={"rows": 40})
X = np.random.default_rng(1).standard_normal((40, 64)).astype(np.float32)


def mlp(spoil: float = 0.0) -> onnx.ModelProto:
    """Two products with a Relu between them; x f32[rows, 64] -> logits f32[rows, 64]."""
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 256), (256, 64)))
    second[3, 5] += spoil
    nodes = [NODE("MatMul", ["x", "w"], ["h"]), NODE("Relu", ["h"], ["r"]), NODE("Gemm", ["r", "v"], ["y"])]
    tensors = [numpy_helper.from_array(first, "w"), numpy_helper.from_array(second, "v")]
    return model_of(nodes, [value("x", ("rows", 64))], [value("y", ("rows", 64))], tensors)


Ratio = Callable[[OnnxBench, str, int], float]


@pytest.fixture
def clock(monkeypatch) -> Callable[[Ratio], None]:
    """The clock says what a function says of the bench, the variant (or the library) and the rows; 2 without one."""

    def plant(ratio: Ratio) -> None:
        def compare(bench, before, after, scenes, text, limit_s=0.0):
            sizes = [(scene, next(iter(scene.sizes.values()), 0)) for scene in scenes]
            return [BindingTiming(scene.sizes, compared(ratio(bench, text, size))) for scene, size in sizes]

        monkeypatch.setattr(OnnxBench, "compare", compare)

    monkeypatch.setattr(weights, "last_level_bytes", lambda: products.LEAST_BYTES)
    plant(lambda *_: 2.0)
    return plant


def made(folder: Path, model: onnx.ModelProto | None = None, **wishes: object) -> OptimizedModel:
    return optimize(written(mlp() if model is None else model, folder), replace(LOOSE, **wishes))


def chosen(result: OptimizedModel) -> dict[str, str]:
    return {each.name: each.variant for each in result.report.weights.products}


def test_the_fastest_variant_that_keeps_the_budget_is_written(clock, tmp_path):
    clock(lambda bench, text, _: 3.0 if text == "8 bits in blocks of 32, level 4" else 2.0)
    result = made(tmp_path)
    assert chosen(result) == dict.fromkeys("hy", "8 bits in blocks of 32, level 4")
    found = result.report.weights
    assert (found.rows >= 512, found.reason, result.report.is_changed, result.library) == (True, "", True, None)
    assert 0 < found.error < 0.05
    result.save(tmp_path / "out.onnx")
    before, after = (run(open_session(tmp_path / name), {"x": X})["y"] for name in ("model.onnx", "out.onnx"))
    assert 0 < np.abs(before - after).max() < 0.05 * np.abs(before).max()
    for product in found.products:
        (error, thirty, thousand), float32 = product.chosen.errors, product.errors_float32
        assert max(float32) < 1e-5 < error < 0.02
        assert max(thirty, thousand) < 0.05  # blocks keep a large channel from the others
        by_column = next(each for each in product.variants if each.variant == "7 bits by column")
        assert by_column.errors[2] > 0.5  # a scale for all rows does not
    assert json.loads(json.dumps(result.report.to_json(), allow_nan=False))["weights"]["products"][0]["name"] == "h"


@pytest.mark.parametrize(("weights", "bits"), [("int4", {"4"}), ("int8", {"7", "8"})])
def test_the_bits_that_are_asked_for_are_tried(clock, tmp_path, weights, bits):
    tried = {each.variant[0] for each in made(tmp_path, weights=weights).report.weights.products[0].variants}
    assert tried == bits


def test_what_is_slower_at_one_binding_is_out_with_the_reason_and_is_not_timed_on(clock, tmp_path):
    asked = []

    def ratio(bench, text, rows):
        asked.append((text, rows))
        return 0.5 if rows > 32 and "blocks" in text else 2.0

    clock(ratio)
    result = made(tmp_path, dims={"rows": [64, 1]})
    assert set(chosen(result).values()) <= {"7 bits by column", "8 bits by column"}
    out = {each.variant: each.reason for each in result.report.weights.products[0].variants if each.reason}
    assert out == dict.fromkeys(out, "SLOWER at rows=64: 0.50x") and len(out) == 8
    assert not [text for text, rows in asked if "blocks" in text and rows == 1]


@pytest.mark.parametrize("budget", [1e-9, "same-tokens"])
def test_a_budget_that_cannot_be_met_keeps_float32_and_says_by_how_much(clock, tmp_path, budget):
    result = made(tmp_path, weights="int4", budget=budget)
    found = result.report.weights
    told = r"\d+ of \d+ tokens flip" if budget == "same-tokens" else r"the outputs move by 0\.\d+ of the largest"
    assert re.fullmatch(f"no choice could be kept: {told}", found.reason)
    assert all(re.fullmatch(f"4 bits .*: {told}", each.reason) for each in found.products)
    assert (found.changed, result.model == mlp()) == ((), True)
    assert "Weights in few bits (int4, " in str(result.report) and "none; no choice" in str(result.report)


def test_a_model_that_is_slower_as_a_whole_is_not_handed_back(clock, tmp_path):
    clock(lambda bench, *_: 0.5 if bench.whole else 2.0)
    found = made(tmp_path).report.weights
    assert found.reason.startswith("the whole model is SLOWER at rows=40: 0.50x")
    assert not found.changed


def test_what_gains_nothing_is_named_by_what_came_nearest(clock, tmp_path):
    clock(lambda bench, text, _: 1.0 if text == "4 bits in blocks of 128, level 4" else 0.7)
    found = made(tmp_path).report.weights
    assert found.reason == "no product is faster so"
    assert found.products[0].reason == "4 bits in blocks of 128, level 4: SAME at rows=40: 1.00x"


def test_weights_that_are_no_numbers_are_left(clock, tmp_path):
    result = made(tmp_path, mlp(np.nan))
    assert [each.reason for each in result.report.weights.products if each.name == "y"] == [
        "its weights have NaN or infinities"
    ]


def with_text() -> onnx.ModelProto:
    """As `mlp`, with an input of strings, which cannot be made up."""
    model = mlp()
    model.graph.input.append(value("s", dtype=onnx.TensorProto.STRING))
    model.graph.output.append(value("t", dtype=onnx.TensorProto.STRING))
    model.graph.node.append(NODE("Identity", ["s"], ["t"]))
    return model


def of_a_vector() -> onnx.ModelProto:
    model = mlp()
    model.graph.input[0].CopyFrom(value("x", (64,)))
    model.graph.node[2].op_type = "MatMul"
    model.graph.output[0].CopyFrom(value("y", (64,)))
    return model


def test_what_cannot_be_tried_says_why(clock, tmp_path, monkeypatch):
    text = made(tmp_path, with_text()).report.weights
    assert (text.reason, text.changed) == ("the model does not run with made-up inputs: give --inputs F.npz", ())
    vector = made(tmp_path, of_a_vector(), dims={}).report.weights
    assert {each.reason for each in vector.products} == {"what it reads could not be captured, or is a vector"}
    late = made(tmp_path, within_s=1e-9).report.weights.products
    assert {each.reason for each in late[0].variants} == {"the 1e-09 s that were given are over"}
    monkeypatch.delattr(load_onnxruntime().capi._pybind_state, "quantize_matmul_4bits")
    four = made(tmp_path, weights="int4").report.weights.products[0]
    assert four.reason.endswith("does not run: this onnxruntime does not pack weights in 4 bits")


def test_a_model_in_few_bits_is_left_as_it_is(clock, tmp_path):
    made(tmp_path).save(tmp_path / "out.onnx")
    again = optimize(tmp_path / "out.onnx", LOOSE)
    assert any(line.startswith("in few bits already, and left as they are: 2 ") for line in again.report.inputs)
    assert (again.report.weights.products, again.report.is_changed) == ((), False)
    assert "none; no product of a constant f32 matrix of 64 KiB or more." in " ".join(str(again.report).split())


def test_external_data_goes_along_as_far_as_it_is_still_read(clock, tmp_path):
    half = mlp()
    half.graph.node[2].attribute.append(onnx.helper.make_attribute("alpha", 0.5))
    for name, model in (("all", mlp()), ("one", half)):
        source, out = tmp_path / name, tmp_path / f"{name}.out"
        source.mkdir()
        out.mkdir()
        onnx.save(model, source / "model.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
        result = optimize(source / "model.onnx", LOOSE)
        result.save(out / "o.onnx")
        assert sorted(path.name for path in out.iterdir()) == ["o.onnx", "w.data"][: 1 + (name == "one")]
        assert len(result.report.weights.changed) == (1 if name == "one" else 2)
        open_session(out / "o.onnx")


def test_a_calibration_is_what_errors_and_tokens_rest_on(clock, tmp_path):
    np.savez(tmp_path / "c.npz", x=X)
    assert made(tmp_path, calibration=tmp_path / "c.npz").report.weights.rows == len(X)
    np.savez(tmp_path / "d.npz", z=X)
    with pytest.raises(InputError, match="does not fit the model: x is missing; the model has no input z"):
        made(tmp_path, calibration=tmp_path / "d.npz")
    np.savez(tmp_path / "e.npz", x=X[0])
    with pytest.raises(InputError, match="does not fit the model: x has rank 1, not 2"):
        made(tmp_path, calibration=tmp_path / "e.npz")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--weights", "int8", "--budget", "much"], "the budget 'much' is neither same-tokens nor a number above 0"),
        (["--budget", "1e-2"], "are for weights in few bits: give --weights auto too"),
        (["--calibration", __file__], "are for weights in few bits: give --weights auto too"),
        (
            ["--weights", "int8", "--device", "cuda"],
            "--weights is for models in onnxruntime: leave it, or",
        ),
    ],
)
def test_wishes_that_mean_nothing(arguments, told, tmp_path, capsys):
    assert main(["optimize", str(written(mlp(), tmp_path)), *arguments]) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(InputError, match="weights='int2' is none of none, auto, int8, int4"):
        noyau.optimize(tmp_path / "model.onnx", weights="int2")


def test_the_command_says_what_it_wrote_and_each_product(clock, tmp_path, capsys):
    wishes = ["--weights", "auto", "--budget", "0.5", "-o", str(tmp_path / "o.onnx"), "--require", "1.5x"]
    assert main(["optimize", str(written(mlp(), tmp_path)), *wishes]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Weights in few bits (auto, 0.5): 2 of 2 products; the outputs move by 0." in told
    assert re.search(r"\d+ of \d+ tokens flip, the least margin is \S+ of the largest[.;]", told)
    assert re.search(
        r"product h shape 64 x 256, weights [478] bits [^:]*, speed-up 2.00x, error \(f32\) \S+ \(\S+\)", told
    )
    assert "o.onnx: other weights, no kernel is in it." in told


@pytest.mark.long
def test_a_llama_has_all_of_its_products_in_few_bits_beside_its_kernels(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(products, "LEAST_BYTES", 1 << 14)
    result = optimize(llama("dynamo"), replace(LOOSE, dims={"sequence": [16]}, weights="int8"))
    assert len(result.report.weights.changed) == 15
    assert any(is_own(node.domain) for node in result.model.graph.node)
    result.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.so").exists()
