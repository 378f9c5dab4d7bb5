"""What is handed over opens, with its library and without, and passes onnx's checker."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from noyau.codegen import plan as codegen_plan
from noyau.errors import ModelError
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.model_files import save
from noyau.hosts.onnxruntime.source_model import fault_alone, open_model, optimized_operators, require_opening
from noyau.hosts.onnxruntime.write_back import library, put_back
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import KINDS, twice, written

NOT_FIT = "the fused model is not fit to be used, and nothing is written"


@pytest.fixture
def fused(tmp_path):
    original = open_model(written(twice(), tmp_path))
    kernels = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels
    model = put_back(original.model, kernels, original.folder)
    return original, model, library(kernels, c_compiler.DEFAULTS, model)


def cyclic(model: onnx.ModelProto) -> onnx.ModelProto:
    """A body in which the first node reads what the last one makes: with the library, nobody looks at it."""
    body = next(each for each in model.functions if is_own(each.domain))
    body.node[0].input[0] = body.node[-1].output[0]
    return model


def test_what_opens_is_saved(fused, tmp_path):
    (out := tmp_path / "out").mkdir()
    save(fused[1], fused[2], out / "m.onnx", tmp_path, require_opening)
    assert sorted(path.name for path in out.iterdir()) == ["m.onnx", "m.so"]
    assert fault_alone(fused[0], fused[1]) == ""


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (cyclic, "onnx's checker says Nodes in a function must be topologically sorted"),
        (lambda model: model.functions.pop() and model, "without its library, onnxruntime does not open"),
    ],
)
def test_what_does_not_open_is_not_saved(spoil, told, fused, tmp_path):
    (out := tmp_path / "out").mkdir()
    model = spoil(fused[1])
    with pytest.raises(ModelError, match=re.escape(f"{NOT_FIT}: {told}")):
        save(model, fused[2], out / "m.onnx", tmp_path, require_opening)
    assert not list(out.iterdir())
    assert fault_alone(fused[0], model) != ""


def test_a_library_that_is_none_is_not_saved(fused, tmp_path):
    bad = tmp_path / "bad.so"
    bad.write_bytes(b"not a library")
    with pytest.raises(Exception, match="onnxruntime does not load"):
        save(fused[1], bad, tmp_path / "m.onnx", tmp_path, require_opening)
    assert not (tmp_path / "m.onnx").exists()


def test_the_checker_is_as_strict_as_with_the_file_that_came(fused, tmp_path):
    """It refuses many a model that runs: then so it may with the fused twin."""
    model = fused[1]
    model.graph.node[0].ClearField("op_type")
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="onnx's checker says"):
        require_opening(bad, fused[2])
    with pytest.raises(ModelError, match="with its library, onnxruntime does not open"):
        require_opening(bad, fused[2], before=bad)


def test_what_only_a_library_of_the_users_own_runs_is_not_opened(tmp_path, fused):
    path: Path = written(KINDS["strange operator"], tmp_path)
    require_opening(path, fused[2])
    assert fault_alone(open_model(path), cyclic(fused[1])) == ""


def test_onnxruntime_makes_the_nodes_of_the_model_of_a_file_without_its_library(fused):
    operators = optimized_operators(fused[0], fused[0].before)
    assert operators == optimized_operators(fused[0], fused[1])
    assert operators["Tanh"] > 0
