from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import noyau

pytest_plugins = ["pytester"]
OPS = """
import numpy as np
import noyau

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x

@double.kernel
def k(x, out):
    out[...] = FACTOR * x

def test_double(noyau_check):
    noyau_check(double, sizes={"n": 50}, tolerance=1e-3, generated=False)
"""


@pytest.fixture(autouse=True)
def found_from_anywhere(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(noyau.__file__).parent.parent))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # where noyau is installed, it would come twice


def outcomes(pytester: pytest.Pytester, text: str, **wanted: int) -> pytest.RunResult:
    pytester.makepyfile(text)
    found = pytester.runpytest_subprocess("-p", "noyau.jobs.check.pytest_plugin", "-p", "no:cacheprovider")
    found.assert_outcomes(**wanted)
    return found


def test_a_right_kernel_passes(pytester):
    outcomes(pytester, OPS.replace("FACTOR", "2"), passed=1)


def test_a_wrong_kernel_fails_with_the_report(pytester):
    found = outcomes(pytester, OPS.replace("FACTOR", "3"), failed=1)
    found.stdout.re_match_lines(
        [r"double\[k\]: wrong-value: wrong at out\[0\] for x: f32\[1\].*", ".*allowed by request"]
    )
    assert "Traceback" not in found.stdout.str()


def test_what_is_asked_wrongly_is_one_error_without_lines_of_noyau(pytester):
    found = outcomes(pytester, OPS.replace("FACTOR", "2").replace('"n": 50', '"m": 50'), failed=1)
    found.stdout.re_match_lines(
        [r">.*noyau_check\(double", r"E .*SignatureError: double has no size m; its sizes are: n"]
    )
    assert "attempts.py" not in found.stdout.str()


TIMED = """
import numpy as np

def f(x):
    return np.exp(x)

def g(x):
    return np.exp(x) * FACTOR

def test_times(noyau_bench):
    bench = noyau_bench({"f": f, "g": g}, (np.ones(50),), budget_s=0.02)
    assert bench.best in ("f", "g")
"""


def test_what_is_timed_is_printed_after_the_tests_and_what_is_wrong_fails(pytester):
    found = outcomes(pytester, TIMED.replace("FACTOR", "1.0"), passed=1)
    found.stdout.re_match_lines(["=+ noyau bench =+", ".*::test_times", ".*candidate +returns"])
    outcomes(pytester, TIMED.replace("FACTOR", "2.0"), failed=1).stdout.re_match_lines(["g is wrong: .*"])


def test_what_cannot_run_here_is_skipped(pytester):
    text = OPS[: OPS.index("@double.kernel")] + OPS[OPS.index("def test_") :]
    text = text.replace("def test_", 'double.kernel("__global__ void f() {}", language="cuda", entry="f")\n\ndef test_')
    unwatched = "import noyau.jobs.check.candidates\nnoyau.jobs.check.candidates.is_watched = lambda language: False\n"
    outcomes(pytester, unwatched + text.replace("tolerance=1e-3, ", ""), skipped=1)


def test_the_plugin_brings_no_numpy():
    program = (
        "import sys, noyau.jobs.check.pytest_plugin; "
        "sys.exit(any(name in sys.modules for name in ('numpy', 'noyau.ops.op')))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(noyau.__file__).parent.parent)
