from __future__ import annotations

import argparse
import io
import time
from pathlib import Path

import pytest

import noyau
from noyau.errors import InputError, OutputError
from noyau.jobs.command_line import Step, declare_inputs, declare_record, progress, require_record_places
from noyau.text import path_of


def test_arguments_are_declared_with_what_they_are_for():
    parser = argparse.ArgumentParser()
    declare_inputs(parser, "run both", "or with several")
    declare_record(parser, "line by line")
    told = " ".join(parser.format_help().split())
    assert "run both with these arrays, or with each dict of arrays that `inputs` of F.py yields" in told
    assert "run both with this size, or with several" in told
    assert "write the full record here, line by line" in told
    read = parser.parse_args(["--dim", "n=1", "--dim", "m=2", "--json", "r.json"])
    assert (read.dim, read.json, read.inputs) == (["n=1", "m=2"], Path("r.json"), None)


def test_a_record_has_a_place_of_its_own(tmp_path):
    model = tmp_path / "model.onnx"
    require_record_places(model, tmp_path / "r.json")
    require_record_places(model, tmp_path / "one" / "two" / "r.json")
    assert (tmp_path / "one" / "two").is_dir()
    (tmp_path / "file").write_text("")
    for record, told in [
        (model, "which is the model itself"),
        (tmp_path / "file" / "r.json", "file is no folder and cannot be made one: .*; name another"),
        (tmp_path, "cannot be written: it is a folder"),
        (tmp_path / ("r" * 300), "cannot be written: File name too long; give a folder"),
        (Path("/proc/self/r.json"), "r.json cannot be written: .*; give a folder"),
    ]:
        with pytest.raises(OutputError, match=told):
            require_record_places(model, record)


def test_progress_is_one_line_in_a_terminal_with_the_time_that_is_left_and_nothing_elsewhere(monkeypatch):
    """Elsewhere, and where it is to be quiet, nobody is told."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    with progress() as say:
        for done in range(3):
            say(Step(f"timing [red]kernel_{done}", done, 4))
            time.sleep(0.02)
    told = terminal.getvalue()
    assert "timing [red]kernel_2" in told and "0:00:0" in told.partition("left ")[2]
    for options in ({"quiet": True}, {}):
        terminal.truncate(0)
        with progress(**options) as say:
            monkeypatch.setattr(terminal, "isatty", lambda: False)
            if options:
                say("reading")
                assert terminal.getvalue() == ""
    said = []
    with progress(said.append) as say:
        say(Step("checking", 1, 2))
    assert said == ["checking"] and (said[0].done, said[0].total) == (1, 2)


@pytest.mark.parametrize("wrong", [3, None, b"model.onnx", ["model.onnx"]])
def test_what_is_no_path(wrong, tmp_path):
    """One clear error of each public function that takes a path."""
    told = f"the path of a file, and this is of the type {type(wrong).__name__}: give a text or a Path"
    calls = {
        "noyau.optimize takes a torch.nn.Module, an onnx.ModelProto or": lambda: noyau.optimize(wrong),
        "noyau.load takes": lambda: noyau.load(wrong),
        "noyau.show takes": lambda: noyau.show(wrong),
        "noyau.extract takes": lambda: noyau.extract(wrong, (["A"], ["B"])),
        "noyau.profile takes": lambda: noyau.profile(wrong),
    }
    for called, call in calls.items():
        with pytest.raises(InputError, match=f"^{called} {told}$"):
            call()
    assert path_of(str(tmp_path), "f takes") == path_of(tmp_path, "f takes") == tmp_path
