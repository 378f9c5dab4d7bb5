"""Operators of CUDA's provider on a GPU: launched by the real driver for the stand-in of onnxruntime, and, where it is
installed, by onnxruntime-gpu, of which a whole model is optimised."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import noyau
from noyau.hosts.onnxruntime.runs import run as run_session
from noyau.hosts.onnxruntime.sessions import missing_provider, open_session
from tests.hosts.onnxruntime.grids import library, rms, run, total, whole

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def own():
    return library()


@pytest.mark.parametrize("shape", [(3, 4), (0, 8), (70, 1025), (2, 40000)])
@pytest.mark.parametrize("op", [rms, total, whole], ids=lambda op: op.name)
def test_its_numbers_are_right(op, shape, own, tmp_path):
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    arrays = {"rms": [x, x[0] if len(x) else np.ones(8, np.float32)], "total": [x], "whole": [x.ravel()]}[op.name]
    got = run(own, op.name, arrays, tmp_path)
    assert got.failure == ""
    wanted = op.reference(*(each.astype("f8") for each in arrays))
    assert_allclose(got.outputs[0], wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.skipif(bool(missing_provider("cuda")), reason="onnxruntime-gpu is not installed")
def test_a_model_runs_on_the_provider_with_its_kernels_and_by_its_bodies(tmp_path):
    model = Path(str(files("noyau.jobs.demo.models").joinpath("llama_tiny_dynamo.onnx")))
    feeds = {"input_ids": np.arange(16).reshape(1, 16), "attention_mask": np.ones((1, 16), np.int64)}
    wishes = {"device": "cuda", "runtime": "onnxruntime", "keep": "all", "budget_s": 0.05}
    optimized = noyau.optimize(model, dims={"batch": 1, "sequence": 16}, **wishes)
    assert all(one.certificate.ok and one.timings for one in optimized.candidates)
    optimized.save(tmp_path / "fused.onnx")
    wanted = run_session(open_session(model), feeds)
    for device in ("cuda", "cpu"):
        for kernels in (tmp_path / "fused.so", None):
            got = run_session(open_session(tmp_path / "fused.onnx", kernels, device=device), feeds)
            for name, array in wanted.items():  # products are in TF32 on that provider, of eleven bits
                assert_allclose(got[name], array, rtol=0, atol=(2e-3 if device == "cuda" else 1e-5) * abs(array).max())
