from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import noyau
from noyau.jobs.cli import main
from noyau.jobs.profile.record import Profile
from noyau.jobs.profile.script import ScriptProfile

SCRIPT = """
import sys
import numpy as np
import noyau

@noyau.range("<b>smooth")
def smooth(x):
    for _ in range(50):
        x = np.sqrt(x * x + 1)
    return x

print(sys.argv[1:], __name__)
for _ in range(4):
    smooth(np.ones(20_000))
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "work.py"
    path.write_text(SCRIPT)
    return path


def profile(*words: str) -> int:
    options, _, arguments = " ".join(words).partition("-- ")
    return main(["profile", *options.split(), "work.py", "--", *arguments.split()])


def test_a_script_is_profiled_with_its_arguments(script, capsys):
    before = sys.argv
    assert profile("--json", "p.json", "--trace", "t.json", "--", "3", "--quick") == 0
    out = capsys.readouterr().out
    assert "['3', '--quick'] __main__" in out and "work.py ran for " in out and "smooth (work.py:6)" in out
    assert "The hottest of your own is smooth (work.py:6): fused into one @noyau.op" in " ".join(out.split())
    assert sys.argv is before
    record = json.loads(Path("p.json").read_text())
    smooth = next(each for each in record["functions"] if each["name"] == "smooth (work.py:6)")
    assert smooth["calls"] == 4 and smooth["total_s"] >= smooth["self_s"] > 0
    whole, *ranges = json.loads(Path("t.json").read_text())["traceEvents"]
    assert [each["name"] for each in ranges] == ["<b>smooth"] * 4 and whole["name"] == "work.py"
    assert all(whole["ts"] <= each["ts"] and each["dur"] <= whole["dur"] for each in ranges)


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("raise ValueError('no <b>')", 1, "It ended early: ValueError: no <b>"),
        ("raise KeyboardInterrupt", 130, "It ended early: interrupted"),
        ("sys.exit(3)", 3, "work.py ran for"),
        ("sys.exit('no')", 1, "work.py ran for"),
        ("sys.exit()", 0, "work.py ran for"),
    ],
)
def test_a_script_that_ends_early_has_a_profile_and_its_own_status(script, capsys, line, status, message):
    script.write_text(f"{SCRIPT}\n{line}\n")
    assert profile() == status
    out = capsys.readouterr().out
    assert message in out and "smooth" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.py"], "there is no script none.py"),
        (["model.onnx", "--trace", "t.json"], "model.onnx is no script: it takes no --trace and no arguments"),
        (["work.py", "--json", "work.py"], "which is the model itself"),
    ],
)
def test_what_cannot_be_profiled(script, capsys, words, message):
    assert main(["profile", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_a_script_that_never_ends_is_interrupted_and_its_self_times_add_up_to_the_wall_clock(script):
    script.write_text(f"{SCRIPT}\nprint('runs', flush=True)\nwhile True: smooth(np.ones(20_000))\n")
    root = {"PYTHONPATH": str(Path(noyau.__file__).parent.parent)}
    line = [sys.executable, "-m", "noyau", "profile", "work.py", "--json", "p.json"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, env={**os.environ, **root}, text=True)
    while "runs" not in process.stdout.readline():
        pass
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "It ended early: interrupted" in out
    record = json.loads(Path("p.json").read_text())
    assert sum(each["self_s"] for each in record["functions"]) == pytest.approx(record["wall_s"], rel=0.1)


@pytest.mark.long
def test_perfetto_reads_the_timeline(script):
    perfetto = pytest.importorskip("perfetto.trace_processor", reason="pip install perfetto")
    assert profile("--trace", "t.json") == 0
    try:
        processor = perfetto.TraceProcessor(trace="t.json")
    except subprocess.CalledProcessError:  # of curl
        pytest.skip("Perfetto's trace processor is downloaded when it is first used, and cannot be")
    with processor as trace:
        names = [row.name for row in trace.query("select name from slice order by ts")]
    assert names == ["work.py", *["<b>smooth"] * 4]


def test_a_record_without_a_page_is_text_in_a_notebook():
    assert not hasattr(ScriptProfile, "_repr_html_") and hasattr(Profile, "_repr_html_")
