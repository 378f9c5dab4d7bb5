from __future__ import annotations

import json
import re
import sys
import textwrap

import pytest

from noyau.errors import InputError
from noyau.jobs.check.command import is_script, launch_of
from noyau.jobs.cli import main
from noyau.sanitizer.scripts.record import ScriptCheck
from noyau.workers import signals


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("import numpy as np\n", True),
        ("import noyau\n\n@noyau.op\ndef f(x):\n    return x\n", False),
        ("from noyau import op\n\n@op\ndef f(x):\n    return x\n", False),
        ("import noyau\nnoyau.optimize('m.onnx')\n", True),
        ("import noyau\nadd = noyau.zip(lambda a, b: a + b)\n", False),
    ],
)
def test_a_script_makes_no_op(tmp_path, text, script):
    path = tmp_path / "file.py"
    path.write_text(text, encoding="utf-8")
    assert is_script(str(path)) is script


def test_a_syntax_error_is_told_whatever_the_options_are(tmp_path, capsys):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ndef broken(:\n", encoding="utf-8")
    for options in ([], ["--time", "5"]):
        assert main(["check", str(path), *options]) == 2
        assert "broken.py fails with SyntaxError: invalid syntax (broken.py, line 2)" in capsys.readouterr().err


def test_models_are_no_scripts_and_missing_files_of_python_are(tmp_path):
    assert is_script(str(tmp_path / "nothing.py"))
    assert not is_script(str(tmp_path / "nothing.py::op"))
    assert not is_script("model.onnx")
    assert is_script("book.ipynb")


@pytest.mark.parametrize(
    ("text", "launch"),
    [("8,64", ((8,), (64,))), ("4x4,16x16", ((4, 4), (16, 16))), ("1x2x3,4", ((1, 2, 3), (4,)))],
)
def test_a_launch_in_words(text, launch):
    assert launch_of(text) == launch


@pytest.mark.parametrize("text", ["8", "8,", "8,64,1", "a,b", "1x1x1x1,2"])
def test_what_is_no_launch(text):
    message = f"--launch {text} is no GRID,BLOCK; give two numbers (8,64), or up to three each (4x4,16x16)"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        launch_of(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [("0,0", "starts no thread"), ("1,0", "starts no thread"), ("1,64x64", "has 4096 threads in a block")],
)
def test_a_launch_that_no_gpu_takes(tmp_path, capsys, text, told):
    path = tmp_path / "script.py"
    path.write_text("x = 1\n", encoding="utf-8")
    assert main(["check", str(path), "--launch", text]) == 2
    line = f"noyau: --launch {text} {told}; each number is at least 1, and a block has 1024 at most\n"
    assert capsys.readouterr().err == line


def test_the_command_prints_and_writes(tmp_path, capsys):
    path, record = tmp_path / "script.py", tmp_path / "found.json"
    path.write_text("x = 1\n", encoding="utf-8")
    assert main(["check", str(path), "--json", str(record)]) == 3
    assert "not verified: no parallel loop of Numba ran in it, and no kernel was launched" in capsys.readouterr().out
    assert main(["check", str(path), "--allow-unseen"]) == 0
    held = json.loads(record.read_text(encoding="utf-8"))
    assert (held["ok"], held["findings"], held["checked"]) == (True, [], [])


def test_a_notebook_of_ops_alone_says_how_they_are_checked(tmp_path, capsys):
    text = "import noyau\n@noyau.op('f32[n] -> f32[n]')\ndef twice(x):\n    return x + x\n"
    book = {"cells": [{"cell_type": "code", "source": text}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path, record = tmp_path / "ops.ipynb", tmp_path / "found.json"
    path.write_text(json.dumps(book), encoding="utf-8")
    assert main(["check", str(path), "--json", str(record)]) == 3
    reason = "a run checks no op, and nothing else was launched: call noyau.check(twice) where it is defined"
    assert f"ops.ipynb: not verified: {reason}" in capsys.readouterr().out
    assert json.loads(record.read_text(encoding="utf-8"))["unseen"] == reason


def test_a_script_of_a_compiled_library_says_how_its_text_is_checked(tmp_path, capsys):
    path = tmp_path / "wrapper.py"
    path.write_text("import ctypes\nctypes.CDLL(None).abs(-3)\n", encoding="utf-8")
    assert main(["check", str(path)]) == 3
    assert 'not verified: a compiled library is not watched: call noyau.check("FILE.c::' in capsys.readouterr().out


def test_what_runs_is_said_while_it_runs(tmp_path, capfd, monkeypatch):
    """In lines of their own, for a script or a program prints too; and only in a terminal."""
    monkeypatch.setattr(signals, "REPORT_S", 0.1)
    script, program = tmp_path / "script.py", tmp_path / "prog.c"
    script.write_text("import time\ntime.sleep(1)\n", encoding="utf-8")
    program.write_text(
        "#include <time.h>\nint main(void) { while (clock() < CLOCKS_PER_SEC / 2); }\n", encoding="utf-8"
    )
    for path in (script, program):
        main(["check", str(path)])
        assert "noyau: " not in capfd.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for path, words in ((script, "script.py runs, kernels seen: 0"), (program, "prog.c runs")):
        main(["check", str(path)])
        assert re.search(rf"^noyau: \d+ s: {re.escape(words)}$", capfd.readouterr().err, re.MULTILINE)
        main(["check", str(path), "--quiet"])
        assert not capfd.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        *(["--dim", "n=3"], ["--gradient"], ["--tolerance", "1"]),
        *(["--sizes", "n=3"], ["--generated"], ["--language", "c"]),
    ],
)
def test_what_is_of_ops_is_not_of_scripts(tmp_path, capsys, option):
    path = tmp_path / "script.py"
    path.write_text("x = 1\n", encoding="utf-8")
    assert main(["check", str(path), *option]) == 2
    assert f"is a script, and {option[0]} is not of scripts" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--gate"], ["--jsonl", "f.jsonl"], ["--memory", "1"]])
def test_what_is_of_machines_kernels_is_not_of_scripts(tmp_path, capsys, option):
    path = tmp_path / "script.py"
    path.write_text("x = 1\n", encoding="utf-8")
    assert main(["check", str(path), *option]) == 2
    assert f"{option[0]} is of DEFINITION.json, MODEL.py or a folder; {path} is none" in capsys.readouterr().err


def test_what_is_of_scripts_is_not_of_ops(tmp_path, capsys):
    path = tmp_path / "ops.py"
    path.write_text("import noyau\n\n@noyau.op('f32[n] -> f32[n]')\ndef f(x):\n    return x\n", encoding="utf-8")
    assert main(["check", str(path), "--launch", "1,1"]) == 2
    assert "is no script: it takes no launch" in capsys.readouterr().err


MAPPED = """
    import numpy as np
    from numba import cuda, njit, prange

    @cuda.jit
    def shift(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i]

    @njit(parallel=True)
    def rows(a):
        for i in prange(a.shape[0]):
            a[i, :] = i

    large = np.zeros(4100)
    shift[9, 512](large, large.copy())
    if len(__import__("sys").argv) == 1:
        shift[2, 40](large, np.zeros(70))
        rows(np.zeros((2, 3)))
"""


def test_a_map_as_text_and_drawn(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(MAPPED), encoding="utf-8")
    place = tmp_path / "map.svg"
    assert main(["check", str(script), "--map", str(place)]) == 0
    printed = capsys.readouterr().out
    assert "shift[2, 40]: who writes out[70]\n  out[0..31]   block 0, warp 0: threads 0..31\n" in printed
    assert "  out[40..69]  block 1, warp 0: threads 0..29\n" in printed
    assert "rows(): who writes a[2, 3]\n  a[0, 0..2]  iteration 0\n  a[1, 0..2]  iteration 1\n" in printed
    assert place.read_text(encoding="utf-8").startswith("<svg ")
    told = "shift[9, 512]: out has 4100 cells, and a map draws 4096; run it on smaller arrays"
    assert main(["check", str(script), "large", "--map", str(place)]) == 2
    assert capsys.readouterr().err == f"noyau: there is nothing to draw of {script}: {told}\n"


def test_what_is_wrong_counts_for_more_than_a_map_that_cannot_be(tmp_path, capsys, monkeypatch):
    script, ended = tmp_path / "script.py", ScriptCheck("script.py", (), "it ended with status 3")
    script.write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr("noyau.jobs.check.script_run.check_script", lambda *_, **__: ended)
    assert main(["check", str(script), "--map", str(tmp_path / "map.svg")]) == 1
    printed = capsys.readouterr()
    assert "script.py: it ended with status 3, before any launch or parallel loop was over\n" in printed.out
    assert f"noyau: there is nothing to draw of {script}: no kernel wrote to an array\n" in printed.err


def test_maps_that_cannot_be(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("x = 1\n", encoding="utf-8")
    assert main(["check", str(script), "--map", "map.png"]) == 2
    told = "--map map.png draws SVG: give a name that ends in .svg, or - for the text alone"
    assert told in capsys.readouterr().err
