from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import noyau
from noyau.jobs.cli import main
from noyau.jobs.profile.record import CallTime
from noyau.jobs.profile.script import run_script
from tests.jobs.profile.samples import TRACE

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
    return main(["profile", *options.split(), "--no-native", "work.py", "--", *arguments.split()])


def test_a_script_is_profiled_with_its_arguments(script, capfd):
    before = sys.argv
    assert profile("--json", "p.json", "--trace", "t.json", "--html", "p.html", "--", "3", "--quick") == 0
    out = capfd.readouterr().out
    assert "['3', '--quick'] __main__" in out and "work.py ran for " in out and "smooth (work.py:6)" in out
    assert "The hottest function of your own is smooth (work.py:6): fused into one @noyau.op" in " ".join(out.split())
    assert sys.argv is before
    record = json.loads(Path("p.json").read_text())
    smooth = next(each for each in record["functions"] if each["name"] == "smooth (work.py:6)")
    assert smooth["calls"] == 4 and smooth["total_s"] >= smooth["self_s"] > 0
    whole, *ranges, process = json.loads(Path("t.json").read_text())["traceEvents"]
    assert (
        process["args"] == {"name": "work.py"}
        and [each["name"] for each in ranges] == ["<b>smooth"] * 4
        and whole["name"] == "work.py"
    )
    assert all(whole["ts"] <= each["ts"] and each["dur"] <= whole["dur"] for each in ranges)
    jsonschema.validate(json.loads(Path("t.json").read_text()), TRACE)
    assert sum(each["self_s"] for each in record["functions"]) == pytest.approx(record["wall_s"], rel=0.1)
    page = re.search('<script type="application/json" id="document">(.*?)</script>', Path("p.html").read_text())
    head, table = json.loads(page[1])["sections"]
    assert head["headline"].startswith("work.py ran for ") and "smooth (work.py:6)" in head["lines"][0]
    assert len(table["rows"]) == len(record["functions"])
    assert table["columns"] == ["name", "calls", "self_s", "total_s", "where", "share"]


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("raise ValueError('no <b>')", 1, "it ended early: ValueError: no <b>"),
        ("sys.exit(3)", 3, "work.py ran for"),
        pytest.param("raise KeyboardInterrupt", 130, "ended early: it was interrupted", marks=pytest.mark.long),
        pytest.param("sys.exit('no')", 1, "work.py ran for", marks=pytest.mark.long),
        pytest.param("sys.exit()", 0, "work.py ran for", marks=pytest.mark.long),
    ],
)
def test_a_script_that_ends_early_has_a_profile_and_its_own_status(script, capfd, line, status, message):
    script.write_text(f"{SCRIPT}\n{line}\n")
    assert profile() == status
    out = " ".join(capfd.readouterr().out.split())
    assert message in out and "smooth" in out


def test_a_notebook_is_profiled_cell_by_cell(script, capfd):
    cells = [{"cell_type": "code", "source": SCRIPT.partition("print(")[0]}, {"cell_type": "markdown", "source": "x"}]
    cells.append({"cell_type": "code", "source": ["%time smooth(np.ones(20_000))\n", "np.ones(3).sum()"]})
    Path("book.ipynb").write_text(json.dumps({"cells": cells}))
    assert main(["profile", "--no-native", "book.ipynb"]) == 0
    out = capfd.readouterr().out
    assert "(3.0)\nbook.ipynb ran for" in out.replace("\n3.0", "\n(3.0)") and "smooth (" in out
    Path("book.ipynb").write_text("{}")
    assert main(["profile", "book.ipynb"]) == 2
    assert "book.ipynb is no notebook of Jupyter" in capfd.readouterr().err


TORCH = """
calls = []
cuda = type("cuda", (), {"_lazy_call": calls.append})
"""
KERNEL = {
    "name": "void at::fill<int>(int)",
    "ph": "X",
    "cat": "kernel",
    "ts": 1,
    "dur": 2e6,
    "pid": 0,
    "tid": 7,
    "args": {},
}
COPY = {**KERNEL, "name": "Memcpy HtoD (Pinned -> Device)", "cat": "gpu_memcpy", "dur": 1e6, "args": {"bytes": 4096}}


def test_what_a_script_does_on_a_gpu_is_seen_from_when_torch_begins_to_use_it(script, monkeypatch):
    """With a module in the place of torch, and events in that of a GPU's."""

    @contextmanager
    def device_events(events):
        yield
        events += [KERNEL, COPY, {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "python"}}]

    monkeypatch.setattr("noyau.jobs.profile.torch_wall.device_events", device_events)
    script.with_name("torch.py").write_text(TORCH)
    for use, on_gpu in (
        ("import torch", []),
        ("import torch; torch.calls[0]()", [("fill", 2.0, None), (COPY["name"], 1.0, 4096)]),
    ):
        monkeypatch.delitem(sys.modules, "torch")
        script.write_text(use)
        ran = run_script(script, (), math.inf, None)
        assert [(each.name, each.self_s, each.bytes) for each in ran.functions if each.where == "gpu"] == on_gpu
        assert [each["name"] for each in ran.events][:1] == ["work.py"] and len(ran.events) == (5 if on_gpu else 2)
    assert re.search(
        r"fill +2 s +2 s .* 1 +gpu", str(replace(ran, functions=(*ran.functions, CallTime("f", "f.py", 1, 1, 1))))
    )


@pytest.mark.gpu
def test_kernels_and_copies_of_a_script_on_a_gpu_lie_within_its_ranges(script, capfd):
    lines = "x = torch.ones(1 << 20).cuda()", "with noyau.range('work'): x.exp_(); torch.cuda.synchronize()"
    script.write_text("\n".join(("import noyau, torch", *lines)))
    assert profile("--trace", "t.json", "--json", "p.json") == 0
    rows = {
        each["name"]: each for each in json.loads(Path("p.json").read_text())["functions"] if each["where"] == "gpu"
    }
    assert any(each["bytes"] == 4 << 20 for name, each in rows.items() if name.startswith("Memcpy HtoD"))
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    (work,) = (each for each in events if each["name"] == "work" and each["cat"] == "range")
    (exp,) = (each for each in events if each.get("cat") == "kernel" and "exp" in each["name"])
    assert work["ts"] < exp["ts"] < exp["ts"] + exp["dur"] < work["ts"] + work["dur"]


@pytest.mark.long
def test_torchs_profiler_of_a_gpu_is_around_a_script(script, capfd):
    script.write_text(
        "import torch, noyau.jobs.profile.torch_wall as wall\n"
        "wall.ProfilerActivity = type('Activities', (), {'CUDA': wall.ProfilerActivity.CPU})  # for want of a GPU\n"
        "torch.cuda._queued_calls[-1][0]()\n"
        "torch.ones(3).exp()\n"
    )
    assert profile("--trace", "t.json") == 0
    whole, *others = json.loads(Path("t.json").read_text())["traceEvents"]
    (exp,) = (each for each in others if each["name"] == "aten::exp")
    assert whole["ts"] < exp["ts"] < whole["ts"] + whole["dur"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.py"], "there is no script none.py"),
        (["model.onnx", "words"], "model.onnx is a model: it takes no arguments"),
        (["model.onnx", "--time", "0"], "model.onnx is a model: it takes no --time"),
        (["model.onnx", "--no-native"], "model.onnx is a model: it takes no --native"),
        *(
            ([f"work.py{name}", f"--{option}", "1"], f"work.py is a {kind}: it takes no --{option}")
            for name, kind in (("", "script"), ("::f", "module"))
            for option in ("inputs", "dim", "between", "threads")
        ),
        (["work.py::f", "--top", "3"], "work.py is a module: it takes no --top"),
        (["work.py", "--top", "0"], "--top 0 is no number of rows: give 1 or more"),
        (["t.json"], "t.json is no model and no script; a timeline, of noyau or another tool, opens in Perfetto"),
        (["work.py", "--time", "0"], "--time 0 is no limit: give a number of seconds above 0"),
        (["work.py", "--json", "work.py"], "which is the model itself"),
    ],
)
def test_what_cannot_be_profiled(script, capsys, words, message):
    Path("model.onnx").touch()
    assert main(["profile", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_script_that_never_ends_is_ended_and_one_that_crashes_is_said_to(script, capfd):
    script.write_text("while True: pass")
    assert profile("--time", "0.1", "--quiet") == 1
    out, err = capfd.readouterr()
    assert (
        out.startswith("work.py ran for ")
        and out.endswith("; it ended early: it did not end within 0.1 s\n")
        and not err
    )
    script.write_text("import os; os._exit(3)")
    assert profile() == 2
    assert "work.py left no profile: it crashed, or ended its process without" in capfd.readouterr().err


def test_native_functions_need_py_spy(script, monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    assert main(["profile", "--native", "work.py"]) == 2
    assert "--native needs py-spy, which is not installed; run: pip install py-spy" in capsys.readouterr().err


SPY = """#!{python}
import json, subprocess, sys, time
words = sys.argv
out, line = words[words.index("--output") + 1], words[words.index("--") + 1 :]
print("py-spy> this is not of the script")
status = subprocess.call(line, close_fds=False) if {runs} else 0
frame = dict(pid=1, tid=77, args=dict(filename="work.py", line=1))
native = dict(frame, args=dict(filename="/lib/libm.so.6", line=0))
other = [dict(name="poll", ph=ph, ts=ts, **dict(native, tid=78)) for ph, ts in (("B", 1e6), ("E", 4e6))]
entry = dict(name="<module>", ph="B", ts=1e6, **frame), dict(name="0x12", ph="B", ts=2e6, **native)
end = dict(name="0x12", ph="E", ts=3e6, **native), dict(name="<module>", ph="E", ts=4e6, **frame)
open(out, "w").write(json.dumps([*entry, *end, *other] if {runs} else "oh"))
sys.exit(status)
"""


def test_samples_of_py_spy_are_rows_and_spans_beside_the_ranges(script, monkeypatch, capfd, tmp_path):
    spy = tmp_path / "py-spy"
    spy.write_text(SPY.format(python=sys.executable, runs=True))
    spy.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name, path=None: str(spy))
    assert main(["profile", "work.py", "a", "--json", "p.json", "--trace", "t.json"]) == 0
    out = capfd.readouterr().out
    assert "['a'] __main__" in out and "py-spy>" not in out
    functions = json.loads(Path("p.json").read_text())["functions"]
    names = ("name", "where", "self_s", "total_s", "python_s", "calls")
    assert [tuple(each[name] for name in names) for each in functions] == [
        ("<module> (work.py:1)", "host", 2.0, 3.0, 3.0, None),
        ("(libm)", "host", 1.0, 1.0, 0.0, None),
        ("poll (libm)", "threads", 3.0, 3.0, 3.0, None),
    ]
    trace = json.loads(Path("t.json").read_text())
    jsonschema.validate(trace, TRACE)
    spans = {each["name"]: each for each in trace["traceEvents"] if each["ph"] == "X"}
    whole, body, ranged, poll = (
        spans[name] for name in ("work.py", "<module> (work.py:1)", "<b>smooth", "poll (libm)")
    )
    assert whole["ts"] == body["ts"] == 1e6 < ranged["ts"]
    assert ranged["tid"] == whole["tid"] and len({whole["tid"], body["tid"], poll["tid"]}) == 3
    spy.write_text(SPY.format(python=sys.executable, runs=False))
    assert main(["profile", "work.py"]) == 2
    assert "work.py left no profile" in capfd.readouterr().err


@pytest.mark.long
def test_a_script_that_never_ends_is_interrupted_and_its_self_times_add_up_to_the_wall_clock(script):
    script.write_text(f"{SCRIPT}\nprint('runs', flush=True)\nwhile True: smooth(np.ones(20_000))\n")
    root = {"PYTHONPATH": str(Path(noyau.__file__).parent.parent)}
    line = [sys.executable, "-m", "noyau", "profile", "--no-native", "work.py", "--json", "p.json"]
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # an ignored signal would be inherited
    ends = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    process = subprocess.Popen(line, **ends, env={**os.environ, **root}, text=True)
    signal.signal(signal.SIGINT, handler)
    while "runs" not in process.stdout.readline():
        pass
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, errors = process.communicate(timeout=60)
    assert errors == ""
    assert process.returncode == 130 and "it ended early: it was interrupted" in out
    record = json.loads(Path("p.json").read_text())
    assert sum(each["self_s"] for each in record["functions"]) == pytest.approx(record["wall_s"], rel=0.1)


@pytest.mark.long
def test_perfetto_reads_the_timeline(script):
    perfetto = pytest.importorskip("perfetto.trace_processor", reason="pip install perfetto")
    assert profile("--trace", "t.json") == 0
    program = os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell")  # None: it is downloaded
    try:
        processor = perfetto.TraceProcessor("t.json", config=perfetto.TraceProcessorConfig(bin_path=program))
    except subprocess.CalledProcessError:  # of curl
        pytest.skip("Perfetto's trace processor is downloaded when it is first used, and cannot be")
    with processor as trace:
        names = [row.name for row in trace.query("select name from slice order by ts")]
        faults = [row.name for row in trace.query("select name from stats where severity = 'error' and value > 0")]
    assert names == ["work.py", *["<b>smooth"] * 4] and not faults
