from __future__ import annotations

import json

import numpy as np
import pytest

from noyau.jobs.cli import main

FILE = """
import numpy as np
import noyau

@noyau.op("f32[n] -> f32[n]")
def twice(x):
    return x + x

@twice.kernel
def by_two(x, out):
    np.multiply(x, 2, out=out)

def inputs(rng, n=100):
    return (rng.standard_normal(n),)

def f(x):
    return np.exp(x)

def g(x):
    return np.exp(x) * 1.5

def still():
    return np.zeros(3)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ops.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("name", ["", "::twice"])
def test_an_op_in_a_file_is_timed(file, name, capsys):
    record = file.parent / "bench.json"
    assert main(["bench", f"{file}{name}", "--sizes", "n=50,60", "--budget", "0.05", "--json", str(record)]) == 0
    out, err = capsys.readouterr()
    assert "twice at n=50" in out and "twice at n=60" in out and "by_two [python]" in out
    assert err == ""
    assert [at["sizes"] for at in json.loads(record.read_text())["at"]] == [{"n": 50}, {"n": 60}]


@pytest.mark.parametrize(
    ("option", "message"),
    [("--sizes=WRONG", "--sizes WRONG is not NAME=N"), ("--save={}/x.json", "file is no folder")],
)
def test_what_cannot_be_is_said_before_the_file_runs(option, message, tmp_path, capsys):
    (tmp_path / "ops.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / "file").touch()
    assert main(["bench", str(tmp_path / "ops.py"), option.format(tmp_path / "file")]) == 2
    assert message in capsys.readouterr().err


def test_functions_in_a_file_are_timed_and_what_is_wrong_is_the_exit_status(file, capsys):
    assert main(["bench", f"{file}::f,g", "--sizes", "n=20", "--budget", "0.05"]) == 1
    assert "g is wrong: wrong at" in capsys.readouterr().out
    assert main(["bench", f"{file}::still", "--budget", "0.05"]) == 0


def test_arrays_may_be_given(file, capsys):
    np.savez(file.parent / "x.npz", x=np.ones(7))
    assert main(["bench", f"{file}::f", "--inputs", str(file.parent / "x.npz"), "--budget", "0.05"]) == 0
    assert "f: 112 bytes in inputs and outputs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{file}::h"], "has no op or function 'h'; it has: twice, by_two, inputs, f, g, still"),
        (["{folder}/none.py::f"], "there is no file"),
        (["{file}::f", "--sizes", "n"], "--sizes n is not NAME=N"),
        (["{file}::f", "--budget", "0"], "--budget 0 is no limit: give a number of seconds above 0"),
        (["{file}::f", "--inputs", "{file}"], "cannot be read as an .npz file of plain arrays"),
        (["{file}", "--json", "{file}"], "which is the model itself"),
        (["{file}", "--sizes", "m=3"], "has no size m"),
        (["{file}", "--sizes", "n=1e17"], "the inputs would take 400000000.0 GB, and this machine has "),
        (["{file}::f", "--device", "tpu"], "what can be timed on is cpu, cuda, or cuda:1 and the like"),
    ],
)
def test_what_cannot_be_timed_is_one_line(file, arguments, told, capsys):
    given = [each.format(file=file, folder=file.parent) for each in arguments]
    assert main(["bench", *given]) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_functions_that_take_arguments_need_a_maker(tmp_path, capsys):
    path = tmp_path / "bare.py"
    path.write_text("def f(x):\n    return x\n")
    assert main(["bench", f"{path}::f"]) == 2
    assert "define inputs(rng, n=1000)" in capsys.readouterr().err
