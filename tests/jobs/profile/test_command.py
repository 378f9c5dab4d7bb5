"""`noyau profile` as a user types it, and what a user, a file or a machine can do wrong."""

from __future__ import annotations

import json
import os
import resource
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from noyau.jobs.cli import main
from noyau.jobs.profile import run as profile_run
from tests.hosts.models import HOSTILE
from tests.jobs.profile.near import USUAL
from tests.small_models import BARE, KINDS, NODE, model_of, plain, value, written


@pytest.fixture(autouse=True)
def _quick(near, monkeypatch):
    """No process is started, and the clock has little time."""
    monkeypatch.setattr(profile_run, "measure_overhead", lambda bench: USUAL)
    monkeypatch.setattr(profile_run.SessionBench, "run", _with_little_time(profile_run.SessionBench.run))


def _with_little_time(run):
    return lambda bench, model, arrays, _, **others: run(bench, model, arrays, 0.02, **others)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(capsys, *arguments: object) -> str:
    """The one line of a run that must be refused."""
    assert main(["profile", *map(str, arguments)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    assert all(line.startswith("noyau: ") and line.isprintable() for line in told.err.splitlines())
    return told.err.splitlines()[-1]


def test_results_are_on_stdout_and_without_a_terminal_there_is_no_progress(tmp_path, capsys):
    path = written(plain(), tmp_path)
    assert main(["profile", str(path), "--dim", "rows=1,64", "--json", str(tmp_path / "r.json"), "--top", "1"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("model.onnx: 3 nodes in the file, 3 run by onnxruntime\n")
    assert "A run with rows=64 takes " in told.out
    assert "(2 more: --top)" in told.out
    assert told.err == ""  # which is no terminal
    record = json.loads((tmp_path / "r.json").read_text())
    assert [at["sizes"] for at in record["at"]] == [{"rows": 1}, {"rows": 64}]
    assert files(tmp_path) == ["model.onnx", "r.json"]


def test_a_pipe_of_forty_columns_is_legible(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["profile", str(written(plain(), tmp_path))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert any("Fusing could gain" in line for line in lines)


def test_files_that_are_no_models(tmp_path, capsys):
    assert "cannot be read: No such file" in refusal(capsys, tmp_path / "missing.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"not a model\n")
    assert "bad.onnx is no ONNX model" in refusal(capsys, tmp_path / "bad.onnx")


def test_models_that_do_not_run(tmp_path, capsys):
    told = refusal(capsys, written(KINDS["strange operator"], tmp_path))
    assert "com.example::Strange is no operator of plain onnxruntime" in told
    assert "onnxruntime does not open" in refusal(capsys, written(BARE["a newer opset"], tmp_path))
    assert "cannot be made up: give the inputs with --inputs" in refusal(capsys, written(KINDS["strings"], tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "rows"], "--dim rows is not NAME=N or NAME=N,N..., with whole N from 0 to 10^18: --dim n=1,128"),
        (["--dim", "rows=1,"], "--dim rows=1, is not NAME=N"),
        (["--dim", f"rows={10**18}"], "with whole N from 0"),
        (["--dim", "columns=1"], "the model has no size columns; its sizes are: rows"),
        (["--inputs", "missing.npz"], "missing.npz cannot be read"),
        (["--threads", "-1"], "threads=-1"),
        (["--top", "0"], "--top 0 is no number of rows"),
        (["--between", "x:nowhere"], "nowhere"),
        (["--json", "model.onnx/r.json"], "model.onnx is no folder and cannot be made one"),
        (["--json", "model.onnx"], "which is the model itself: name another file"),
        (["--json", "."], "cannot be written: it is a folder"),
    ],
)
def test_arguments_that_cannot_be(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(plain(), tmp_path)
    assert message in refusal(capsys, "model.onnx", *arguments)
    assert files(tmp_path) == ["model.onnx"]


def test_no_folder_for_the_profile(tmp_path, monkeypatch, capsys):
    path = written(plain(), tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    told = refusal(capsys, path)
    assert f"cannot be written to {tmp_path / 'missing'}: No such file or directory; TMPDIR=FOLDER names" in told


def test_no_room_for_the_profile(tmp_path, capsys):
    """The limit on the size of files stands for a full disk: it is met as the profile is written."""
    path = written(plain(), tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        told = refusal(capsys, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "did not write its whole profile to " in told
    assert "is there room for it? TMPDIR=FOLDER names another place" in told


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_are_only_names(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, y, b, n = (f"{name}{letter}" for letter in "xybn")
    nodes = [NODE("Tanh", [x], [b], name=f"{name}1"), NODE("Exp", [b], [y], name=f"{name}2", doc_string=name)]
    model = model_of(nodes, [value(x, (n, 6))], [value(y, (n, 6))])
    model.graph.name = name
    path = written(model, tmp_path)
    assert main(["profile", str(path), "--json", "r.json", f"--dim={n}=3,5"]) == 0
    told = capsys.readouterr()
    assert (told.out + told.err).replace("\n", "").isprintable()
    assert files(tmp_path) == ["model.onnx", "r.json"]
    assert [list(at["sizes"]) for at in json.loads(Path("r.json").read_text())["at"]] == [[n], [n]]


def test_weights_that_lie_in_another_file(tmp_path, capsys):
    weight = onnx.numpy_helper.from_array(np.ones((6, 300), np.float32), "w")
    model = model_of([NODE("MatMul", ["x", "w"], ["y"])], [value("x", ("n", 6))], [value("y", ("n", 300))], [weight])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    assert main(["profile", str(tmp_path / "m.onnx")]) == 0
    assert "7.03 KiB of weights in the file" in " ".join(capsys.readouterr().out.split())
    assert files(tmp_path) == ["m.onnx", "w.data"]
    assert os.path.getsize(tmp_path / "w.data") == 7200
