from __future__ import annotations

import json
import sys

import pytest

from noyau.jobs.cli import main

FILE = """
import noyau
import numpy as np
from baseline_helper import passes

def f(x):
    for _ in range(passes()):
        x = np.sqrt(x * x + 1)
    return x

def inputs(rng, n=3000):
    return (rng.standard_normal(n, dtype=np.float32),)
"""
OP = """
import noyau
import numpy as np

@noyau.op("f32[n] -> f32[n]")
def twice(x):
    return x + x

twice.kernel("by_hand.c")
"""
KERNEL = "void by_hand(const float *x, float *out, long n) { for (long i = 0; i < n; i++) out[i] = 2 * x[i]; }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(FILE)
    (tmp_path / "baseline_helper.py").write_text("def passes():\n    return 2\n")
    yield tmp_path
    sys.modules.pop("baseline_helper", None)


def bench(*arguments: str) -> int:
    sys.modules.pop("baseline_helper", None)  # as in a process of its own
    return main(["bench", *arguments, "--budget", "0.05"])


def test_a_baseline_keeps_the_texts_that_ran_and_what_is_imported_is_timed_beside(folder, capsys):
    assert bench("ops.py::f", "--save", "main") == 0
    assert "After a change: noyau bench ops.py::f --compare main" in capsys.readouterr().out
    kept = json.loads((folder / ".noyau/bench/main.json").read_text())
    assert kept["sources"] == {name: (folder / name).read_text() for name in ("ops.py", "baseline_helper.py")}
    assert kept["target"] == "ops.py::f" and kept["sizes"] == [{}]
    (folder / "baseline_helper.py").write_text("def passes():\n    return 16\n")  # eight times as long
    assert bench("ops.py::f", "--compare", "main", "--json", "changes.json") == 1
    assert "f: SLOWER against the baseline main" in capsys.readouterr().out
    changes = json.loads((folder / "changes.json").read_text())
    assert not changes["ok"] and changes["changes"][0]["verdict"] == "SLOWER"
    assert changes["changes"][0]["interval"][0] > 1.5
    assert bench("ops.py::f", "--compare", "main", "--fail-if-slower", "9999%") == 0


def test_an_op_with_a_kernel_in_a_file_is_compared_candidate_by_candidate(folder, capsys):
    (folder / "twice.py").write_text(OP)
    (folder / "by_hand.c").write_text(KERNEL)
    assert bench("twice.py", "--sizes", "n=2000", "--save", "out/base.json") == 0
    sources = json.loads((folder / "out/base.json").read_text())["sources"]
    assert set(sources) >= {"twice.py", "by_hand.c"}
    (folder / "by_hand.c").write_text(KERNEL.replace("2 * x[i]", "3 * x[i]"))
    (folder / "twice.py").write_text(OP + "twice.kernel(lambda x: x + x, name='newer')\n")
    assert bench("twice.py", "--compare", "out/base.json", "--fail-if-slower", "900%") == 1  # it is wrong now
    out = " ".join(capsys.readouterr().out.split())
    assert "by_hand is wrong: " in out and "Newer is new: the baseline has none of that name" in out
    assert "n = 2000" in out and "reference, hot" in out


def test_what_differs_in_values_or_is_gone_is_said(folder, capsys):
    (folder / "pair.py").write_text(
        "import numpy as np\ndef f():\n    return np.ones(9)\ndef g():\n    return np.ones(9)\n"
    )
    assert bench("pair.py::f,g", "--save", "main") == 0
    (folder / "pair.py").write_text(
        "import numpy as np\ndef f():\n    return np.zeros(9)\ndef g():\n    return np.zeros(9)\n"
    )
    bench("pair.py::f,g", "--compare", "main")
    assert "its values differ from those of the baseline" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "else", "is no baseline of noyau bench"),
        ("schema_version", 99, "has the format 99, and this noyau reads 1"),
        ("sizes", 3, "is damaged (TypeError"),
        ("sources", {"../evil.py": "x = 1"}, "leads elsewhere: ../evil.py"),
        ("sources", {"ops.py": "raise ValueError('then')"}, "does not run any more: "),
        ("target", "ops.py::g", "is of ops.py::g, and this is ops.py::f"),
        ("cpu", "an abacus", "is of another machine (cpu an abacus, here "),
    ],
)
def test_what_is_no_baseline_of_this(folder, capsys, key, value, message):
    path = folder / "base.json"
    assert bench("ops.py::f", "--save", str(path)) == 0
    record = json.loads(path.read_text())
    (record["machine"] if key == "cpu" else record)[key] = value
    path.write_text(json.dumps(record))
    assert bench("ops.py::f", "--compare", str(path)) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compare", ""], "a baseline has a name or a path: --save NAME, --compare NAME"),
        (["--save", ""], "a baseline has a name or a path: --save NAME, --compare NAME"),
        (["--against", ""], "there is no such peer"),
        (["--compare", "none"], "there is no baseline none (.noyau/bench/none.json): save one with --save none"),
        (["--compare", "main", "--save", "next"], "--compare goes without --against, --device, --save and --html"),
        (["--compare", "main", "--html", "a.html"], "--markdown writes its table"),
        (["--compare", "ops.py/x.json"], "the baseline ops.py/x.json cannot be read"),
        (["--fail-if-slower", "5"], "--fail-if-slower 5 is no share of the time: --fail-if-slower 5%"),
    ],
)
def test_what_cannot_be_compared(folder, capsys, arguments, message):
    assert bench("ops.py::f", *arguments) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_other_inputs_are_not_compared(folder, capsys):
    text = OP.replace('\ntwice.kernel("by_hand.c")', "")
    (folder / "twice.py").write_text(text)
    assert bench("twice.py", "--sizes", "n=30", "--save", "main") == 0
    (folder / "twice.py").write_text(text.replace("f32", "f64") + "# wider\n")
    assert bench("twice.py", "--compare", "main") == 2
    assert "took float32[30], and this takes float64[30]: save it anew" in capsys.readouterr().err
