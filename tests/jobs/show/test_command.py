"""The command `noyau show`."""

from __future__ import annotations

import sys

import pytest

from noyau.jobs.cli import main
from tests.small_models import twice, written


@pytest.fixture
def model(tmp_path):
    (tmp_path / "in").mkdir()
    return written(twice(), tmp_path / "in", "twice.onnx")


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_show_prints_kernels_and_reasons(model, capsys, monkeypatch):
    monkeypatch.setattr(sys, "modules", {**sys.modules, "onnxruntime": None})  # it is not needed
    assert main(["show", str(model)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "twice.onnx: 8 of 10 operators in 2 kernels" in told.out
    assert "MatMul is a library call" in told.out
    assert "MatMul#3, MatMul#7" in told.out
    assert files(model.parent) == ["twice.onnx"]


def test_show_prints_a_source(model, capsys):
    main(["show", str(model)])
    name = next(line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("2 places"))
    assert main(["show", str(model), "--kernel", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"/* {name}: Tanh, Mul, Sigmoid; 2 places in the model\n")
    assert "certificate: right on " in text.partition("*/")[0]
    assert text.endswith("};\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernel", "nonsense\n"], "no kernel 'nonsense?'"),
        (["--kernel", "x", "--language", "triton"], "there is no language triton yet; the languages are: c"),
        (["--target", "i386"], "unknown target"),
    ],
)
def test_show_names_what_is_not_there(arguments, message, model, capsys):
    assert main(["show", str(model), *arguments]) == 2
    told = capsys.readouterr()
    assert (told.out, len(told.err.splitlines())) == ("", 1)
    assert message.partition(" '")[0] in told.err


def test_show_takes_an_op_too(tmp_path, capsys):
    (tmp_path / "ops.py").write_text(
        "import numpy as np\nimport noyau\n\n\n@noyau.op('f32[n] -> f32[n]')\ndef double(x):\n    return x + x\n"
    )
    assert main(["show", f"{tmp_path}/ops.py::double"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "double  x: f32[n] -> out: f32[n]"
    assert main(["show", f"{tmp_path}/ops.py", "--language", "c"]) == 0
    assert capsys.readouterr().out.startswith("/* double: x: f32[n] -> out: f32[n] */")
    assert main(["show", f"{tmp_path}/ops.py", "--language", "latin"]) == 2
    assert "there is no language latin yet" in capsys.readouterr().err
