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


@pytest.mark.parametrize("option", [["--target", "potato"], ["--between", "a:b"]])
def test_what_is_of_models_is_not_of_ops(option, capsys):
    assert main(["show", "ops.py::softmax", *option]) == 2
    told = capsys.readouterr().err
    assert told == "noyau: --target and --between are for models, and ops.py::softmax is none: leave them out\n"


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


OPS = """import numpy as np
import noyau


@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x
"""
MODULE = """import torch

net = torch.nn.Softmax(-1)
plain = 3


def inputs():
    return torch.zeros(4, 8)
"""


def test_stages_of_an_op(tmp_path, capsys):
    (tmp_path / "ops.py").write_text(OPS)
    assert main(["show", f"{tmp_path}/ops.py", "--stage", "graph"]) == 0
    assert "double: graph" in capsys.readouterr().out
    assert main(["show", f"{tmp_path}/ops.py", "--stage", "text", "--language", "numba"]) == 0
    assert "numba" in capsys.readouterr().out
    assert main(["show", f"{tmp_path}/ops.py", "--diff", "graph,normal"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["graph", "normal"]


def test_stages_of_a_model(model, capsys):
    assert main(["show", str(model), "--stage", "all"]) == 0
    assert capsys.readouterr().out.count("====") == 2 * 2 * 5


def test_a_torch_module_and_its_stages(tmp_path, capsys):
    (tmp_path / "net.py").write_text(MODULE)
    assert main(["show", f"{tmp_path}/net.py::net"]) == 0
    assert "Softmax: 1 graph" in capsys.readouterr().out
    assert main(["show", f"{tmp_path}/net.py::net", "--stage", "normal"]) == 0
    assert "reduce max[1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "nonsense"], "there is no stage nonsense; the stages are: graph, normal"),
        (["--diff", "graph"], "--diff graph is not two stages: --diff graph,normal"),
        (["--diff", "graph,nonsense"], "there is no stage nonsense"),
        (["--stage", "graph", "--diff", "graph,text"], "give one of them"),
        (["--stage", "graph", "--kernel", "x"], "no generated kernel x; there are: v_double"),
    ],
)
def test_stages_that_are_not_there(arguments, message, tmp_path, capsys):
    (tmp_path / "ops.py").write_text(OPS)
    assert main(["show", f"{tmp_path}/ops.py", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err


def test_a_module_without_inputs(tmp_path, capsys):
    (tmp_path / "net.py").write_text("import torch\nnet = torch.nn.Softmax(-1)\n")
    assert main(["show", f"{tmp_path}/net.py::net"]) == 2
    assert "net is a torch module: let" in capsys.readouterr().err
    assert main(["show", f"{tmp_path}/net.py::other"]) == 2
    assert "has no op 'other'" in capsys.readouterr().err


def test_a_record_does_not_replace_the_model(model, capsys):
    before = model.read_bytes()
    for option in ("--json", "--html"):
        assert main(["show", str(model), option, str(model)]) == 2
        assert "which is the model itself: name another file" in capsys.readouterr().err
    assert model.read_bytes() == before


@pytest.mark.parametrize("language", ["", "latin"])
def test_a_language_is_that_of_a_kernel(language, model, capsys):
    assert main(["show", str(model), "--language", language]) == 2
    assert "--language is for the source of a model's kernel: give --kernel too" in capsys.readouterr().err
    assert main(["show", str(model), "--kernel", "x", "--language", language]) == 2
    assert " ".join(f"there is no language {language} yet".split()) in capsys.readouterr().err
