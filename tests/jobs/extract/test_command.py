"""`noyau extract` and `noyau optimize --with`, as a user types them."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.jobs.cli import main
from tests.jobs.extract.files import normed
from tests.small_models import written


@pytest.fixture
def model(tmp_path):
    return written(normed(), tmp_path)


def test_a_path_is_extracted_and_put_back(model, tmp_path, capsys):
    script = tmp_path / "norm.py"
    assert main(["extract", str(model), "--between", "a,r:s,n", "-o", str(script), "--dim", "rows=5"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"Wrote {script}, {tmp_path / 'norm.npz'}, {tmp_path / 'norm.c'}.\n")
    assert "a f32[5, 6]: made up, standard normal" in told
    assert told.endswith(f"Next: noyau optimize {model} --with {script}::norm\n")
    assert np.load(tmp_path / "norm.npz")["a"].shape == (5, 6)
    fused = tmp_path / "fused.onnx"
    arguments = ["--with", f"{script}::norm", "--keep", "all", "--dim", "rows=5", "-o", str(fused)]
    assert main(["optimize", str(model), *arguments]) == 0
    assert "1 of 1 kernel kept" in capsys.readouterr().out
    assert main(["check", str(model), "--against", str(fused)]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--between", "a:n"], "s reads r, which is an input of the model"),
        (["--between", "a,r:s", "-o", "path.onnx"], "end it in .py"),
        (["--between", "a,r:s", "--dim", "rows=1,2"], "--dim rows has 2 numbers"),
        (["--between", "a,r:s", "--dim", "no=1"], "the model has no size no"),
        (["--between", "a,r:s", "--inputs", "no.npz"], "no.npz cannot be read"),
    ],
)
def test_what_cannot_be_done_is_one_line(model, tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert main(["extract", str(model), *arguments]) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_files_are_replaced_on_demand_alone(model, tmp_path, capsys):
    arguments = ["extract", str(model), "--between", "a,r:s,n", "-o", str(tmp_path / "norm.py")]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


def test_a_folder_that_takes_no_file_is_named_before_the_model_runs(model, monkeypatch, capsys):
    monkeypatch.setattr("noyau.jobs.extract.run.extract", lambda *_, **__: pytest.fail("the model ran"))
    assert main(["extract", str(model), "--between", "a,r:s", "-o", "/proc/norm.py"]) == 2
    assert capsys.readouterr().err.startswith("noyau: /proc/norm.py cannot be written: ")
