"""Whole ONNX models on torch."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

import noyau  # noqa: E402
from noyau.errors import InputError  # noqa: E402
from noyau.torch_modules.onnx_hosting import hosted, optimize_model  # noqa: E402

MODELS = sorted(path for path in Path(str(files("noyau") / "models")).iterdir() if path.suffix == ".onnx")
CPU = torch.device("cpu")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_gives_what_onnxruntime_gives(path):
    host, feeds = hosted(path, CPU, {"batch": 2, "sequence": 5}, None, 0)
    given = host.in_order((), feeds.asked.arrays, CPU)
    got = host.module(given)(*given)
    want = onnxruntime.InferenceSession(str(path)).run(None, dict(feeds.asked.arrays))
    for mine, right in zip(got, want, strict=True):
        assert np.abs(mine.numpy() - right).max() < 2e-6 * np.abs(right).max()


def test_it_is_optimised_called_and_saved(tmp_path):
    made = noyau.optimize(MODELS[0], device="cpu", dims={"batch": 1, "sequence": 4}, keep="all", certificate="smoke")
    assert made.report.kernels
    assert all(one.kept for one in made.first.judged)
    ids = np.arange(4)[None] % 50
    want = onnxruntime.InferenceSession(str(MODELS[0])).run(None, _fed(made, ids))
    (got, *_) = made(**_fed(made, ids))
    assert np.abs(got.numpy() - want[0]).max() < 1e-5 * np.abs(want[0]).max()
    made.save(tmp_path / "m.noyau")
    again = noyau.load(tmp_path / "m.noyau")
    given = made.host.in_order((), _fed(made, ids), CPU)
    assert torch.equal(again(*given)[0], got)


def _fed(made, ids):
    masks = {name: np.ones_like(ids) for name in made.host.inputs[1:]}
    return {made.host.inputs[0]: ids, **masks}


def test_what_does_not_fit_is_named():
    host, feeds = hosted(MODELS[0], CPU, {"batch": 1, "sequence": 4}, None, 0)
    with pytest.raises(InputError, match=r"has the inputs .*, and nothing is missing or unknown"):
        host.in_order((), {**feeds.asked.arrays, "nothing": 1}, CPU)
    with pytest.raises(InputError, match="and 9 are given"):
        host.in_order([1] * 9, {}, CPU)
    with pytest.raises(InputError, match="is no device of torch's"):
        optimize_model(MODELS[0], "gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="device=cuda: "):
            optimize_model(MODELS[0], "cuda")
