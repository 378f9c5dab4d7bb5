"""Kernels for onnxruntime's provider of CUDA where there is no GPU: what they are built for, and their certificates; a
whole model, its machine code stood in for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

import noyau
from noyau.errors import BuildError, InputError
from noyau.hosts.onnxruntime import runs, sessions
from noyau.ir.loops import Role
from noyau.jobs.optimize.onnx import cuda_kernels
from noyau.jobs.optimize.onnx.cuda_kernels import NOTE, split_target, with_ptx
from noyau.toolchain.cuda import compiler as cuda_compiler
from tests.hosts.models import HOSTILE
from tests.hosts.onnxruntime.grids import CODES, driver, run
from tests.small_models import NODE, model_of, plain, value, written

ON_GPU = {"device": "cuda", "runtime": "onnxruntime", "keep": "all", "budget_s": 0.01}


@pytest.fixture
def coded(monkeypatch):
    """Neither NVRTC nor nvcc is asked, and there is no GPU."""
    monkeypatch.setattr(cuda_compiler, "cubin_of", lambda text, architecture: CODES[architecture])
    monkeypatch.setattr(cuda_kernels, "missing_gpu", lambda: "there is no GPU here")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("native", ("native", ())),
        ("sm_90", ("native", ("sm_90",))),
        ("x86-64-v3,sm_120,sm_90,sm_90", ("x86-64-v3", ("sm_90", "sm_120"))),
    ],
)
def test_a_target_has_a_level_and_architectures(target, wanted):
    assert split_target(target) == wanted


@pytest.mark.parametrize(("target", "wrong"), [("sm_9x", "sm_9x"), ("sm_1", "sm_1"), ("native,x86-64,sm_90", "x86-64")])
def test_a_target_that_is_neither_is_named(target, wrong):
    with pytest.raises(InputError, match=f"^--target has {wrong}: it takes a level of a CPU, and architectures like"):
        split_target(target)


def test_the_newest_architecture_is_ptx_too(monkeypatch):
    assert with_ptx(("sm_80", "sm_90")) == ("sm_80", "sm_90", "compute_90")
    monkeypatch.setattr(cuda_kernels, "missing_gpu", lambda: "there is no GPU here")
    assert with_ptx(()) == ("sm_90", "compute_90")


@pytest.mark.usefixtures("coded", "lasting_workers")
@pytest.mark.parametrize("name", ["plain", pytest.param(HOSTILE[2], marks=pytest.mark.long), HOSTILE[4]], ids=ascii)
def test_a_model_gets_kernels_of_both_providers(name, tmp_path):
    """Whatever its values are called; it runs on the CPU with its library and without."""
    x, a, b, y, w = (f"{name}{letter}" for letter in "xabyw")
    nodes = [NODE("Mul", [x, w], [a]), NODE("Tanh", [a], [b]), NODE("Add", [b, x], [y])]
    tensors = [numpy_helper.from_array(np.arange(6, dtype=np.float32), w)]
    model = model_of(nodes, [value(x, ("rows", 6))], [value(y, ("rows", 6))], tensors)
    optimized = noyau.optimize(written(model, tmp_path), target="sm_90", **ON_GPU)
    (one,) = optimized.candidates
    assert (one.kept, one.certificate.ok, one.certificate.name) == (True, True, f"{one.planned.operator}[cuda]")
    assert (one.note, optimized.report.kernels[0].language) == (NOTE, "cuda")
    assert "has no CUDA provider" in one.reason
    assert "__global__" in optimized.source(one.planned.operator)
    optimized.save(tmp_path / "out.onnx")
    feeds = {x: np.ones((4, 6), np.float32)}
    wanted = runs.run(sessions.open_session(tmp_path / "model.onnx"), feeds)
    for library in (tmp_path / "out.so", None):
        got = runs.run(sessions.open_session(tmp_path / "out.onnx", library), feeds)
        np.testing.assert_allclose(got[y], wanted[y], rtol=1e-5)
    ends = [feeds[x], np.arange(6, dtype=np.float32)]
    arrays = [ends[len(each.shape) == 1] for each in one.planned.kernel.of(Role.INPUT)]
    launched = run(tmp_path / "out.so", one.planned.operator, arrays, tmp_path, stands_in=driver(tmp_path))
    assert launched.failure == ""
    assert launched.notes[1].startswith(f"launch {one.planned.operator}_0 ")


@pytest.mark.usefixtures("coded", "lasting_workers")
def test_a_wrong_kernel_of_the_gpu_is_dropped(tmp_path, monkeypatch):
    real = cuda_kernels.loop_interpreter.run
    wrong = lambda *args, **named: [each + 1 for each in real(*args, **named)]  # noqa: E731
    monkeypatch.setattr(cuda_kernels.loop_interpreter, "run", wrong)
    optimized = noyau.optimize(written(plain(), tmp_path), target="sm_90", seed=77, **ON_GPU)  # what is found is kept
    (one,) = optimized.candidates
    assert not one.kept
    assert not one.certificate.ok
    assert optimized.library is None


@pytest.mark.usefixtures("coded", "lasting_workers")
def test_rows_that_are_too_long_for_the_interpreter_are_not_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_kernels, "MOST_CELLS", -1)
    (one,) = noyau.optimize(written(plain(), tmp_path), target="sm_90", seed=78, **ON_GPU).candidates
    assert not one.kept
    wanted = "cannot be checked: its rows are too long for noyau's interpreter, and there is no GPU here"
    assert one.reason == wanted


@pytest.mark.usefixtures("lasting_workers")
def test_without_a_compiler_of_cuda_there_is_one_clear_error(tmp_path, monkeypatch):
    def missing(text, architecture):
        raise BuildError(f"no compiler for {architecture}")

    monkeypatch.setattr(cuda_compiler, "cubin_of", missing)
    with pytest.raises(BuildError, match=r"^no compiler for sm_90$"):
        noyau.optimize(written(plain(), tmp_path), target="sm_90", **ON_GPU)
