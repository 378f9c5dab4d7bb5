"""What the main job refuses before it begins: wishes that mean nothing, a machine without a compiler or a runtime."""

from __future__ import annotations

import sys

import pytest

from noyau.builders import cc
from noyau.errors import BuildError, InputError, MissingExtraError
from tests.small_models import BARE, plain
from tests.test_optimizing import quick


@pytest.mark.parametrize("wishes", [{"keep": "best"}, {"threads": -1}, {"budget_s": -1.0}, {"dims": {"rows": -1}}])
def test_wishes_that_mean_nothing_are_refused(wishes, tmp_path):
    with pytest.raises(InputError):
        quick(plain(), tmp_path, **wishes)


def test_without_a_compiler_there_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(cc, "_find", lambda *_: None)
    with pytest.raises(BuildError, match=r"no C compiler: .*pip install 'noyau\[cc\]'"):
        quick(plain(), tmp_path)
    assert quick(BARE["one operator"], tmp_path).library is None


def test_without_onnxruntime_there_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime is not installed; run: pip install 'noyau\[onnx\]'"):
        quick(plain(), tmp_path)
