"""`noyau check` of an op in a file; of models see test_differing.py."""

from __future__ import annotations

import json

import pytest

from noyau.cli import main
from tests.paths.files import RIGHT, written


def test_every_kernel_of_an_op_is_checked(tmp_path, capsys):
    op = written(tmp_path)
    assert main(["check", op, "--json", str(tmp_path / "r.json")]) == 0
    assert "norm[norm]" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["ok"] is True


def test_a_wrong_kernel_is_status_1(tmp_path, capsys):
    assert main(["check", written(tmp_path, RIGHT.replace("i < rows", "i + 1 < rows"))]) == 1
    assert "norm[norm]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no.py::norm"], "there is no file 'no.py'"),
        (["--against", "b.onnx"], "--against and --inputs are of models"),
        (["--inputs", "f.npz"], "--against and --inputs are of models"),
    ],
)
def test_what_cannot_be_checked_is_refused(tmp_path, capsys, arguments, told):
    op = written(tmp_path)
    assert main(["check", *([] if "::" in arguments[0] else [op]), *arguments]) == 2
    assert told in capsys.readouterr().err
