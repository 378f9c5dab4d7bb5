"""What the main job refuses before it begins: wishes that mean nothing, a machine without a compiler or a runtime."""

from __future__ import annotations

import sys

import pytest

from noyau.errors import BuildError, InputError, MissingExtraError
from noyau.jobs.optimize.onnx import host as onnx_host
from noyau.toolchain.c import compiler as c_compiler
from tests.jobs.optimize.onnx.test_run import quick
from tests.small_models import BARE, plain


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        ({"keep": "best"}, "keep='best' is none of"),
        ({"threads": -1}, "^threads=-1 is no whole number from 0 to 4096"),
        ({"threads": 1.5}, "^threads=1.5 is no whole number from 0 to 4096"),
        ({"threads": 10**20}, "^threads=100000000000000000000 is no whole number from 0 to 4096"),
        ({"seed": -1}, "^seed=-1 is no whole number from 0 on"),
        ({"budget_s": -1.0}, "^budget_s=-1.0 is no number of seconds from 0 on"),
        ({"budget_s": float("nan")}, "^budget_s=nan is no number of seconds from 0 on"),
        ({"within_s": True}, "^within_s=True is no number of seconds from 0 on"),
        ({"dims": {"rows": -1}}, "rows"),
        ({"dims": {"columns": 3}}, "the model has no size columns; its sizes are: "),
        ({"inputs": "missing.npz"}, "missing.npz"),
        ({"device": "tpu"}, "^device=tpu is none of onnxruntime's: cpu, cuda$"),
        ({"device": "cuda", "tune": True}, "^ops=, tune= and weights= are for kernels of the CPU: leave them, or"),
        ({"device": "cuda", "keep": "faster"}, r"CUDA provider: install onnxruntime-gpu .* \(--keep all\), which are"),
    ],
)
def test_wishes_that_mean_nothing_are_refused_before_anything_is_compiled(wishes, told, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_host, "compile_kernels", None)
    with pytest.raises(InputError, match=told):
        quick(plain(), tmp_path, **wishes)


def test_without_a_compiler_there_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(c_compiler, "_find", lambda *_: None)
    with pytest.raises(BuildError, match=r"no C compiler: .*pip install 'noyau-kernels\[cc\]'"):
        quick(plain(), tmp_path)
    assert quick(BARE["one operator"], tmp_path).library is None


def test_without_onnxruntime_there_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime is not .*; run: pip install 'noyau-kernels\[onnx\]'"):
        quick(plain(), tmp_path)
