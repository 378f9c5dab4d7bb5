from __future__ import annotations

import numpy as np
import pytest

from noyau.ops.dispatch import choice
from tools.suites.numpy import Program, documented, drawn, judge, main

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def verdict(text: str) -> tuple[str, str]:
    return judge(Program("it", f"def program(a):\n    return {text}\n", {"a": A}))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a[::-1] + a.sum(axis=1, keepdims=True)", ("right", "")),
        ("a.sum(axis=5)", ("as written", "the axis 5 is outside of 2 axes")),
        ("np.sort(a)", ("as written", "it sorts")),
        ("a if type(a) is np.ndarray else a.astype('f8')", ("wrong", "dtype float64, want float32")),
    ],
)
def test_a_program_is_judged_by_what_numpy_gives(text, wanted):
    got = verdict(text)
    assert got[0] == wanted[0]
    assert wanted[1] in got[1]


def test_a_kernel_that_fails_its_certificate_is_wrong_though_the_values_are_right(monkeypatch):
    assert verdict("a * 3 - a.mean()") == ("right", "")
    monkeypatch.setattr(choice, "smoke_fault", lambda description, program: "a cell is off by 7 ulp")
    got = verdict("a * 3 - a.mean()")
    assert got[0] == "wrong"
    assert "certificate failed: a cell is off by 7 ulp" in got[1]


def test_programs_are_drawn_by_their_seed_and_most_run():
    programs = [drawn(seed) for seed in range(40)]
    assert [each.text for each in programs] == [drawn(seed).text for seed in range(40)]
    fails = 0
    for each in programs:
        try:
            with np.errstate(all="ignore"):
                each.function()(*each.inputs.values())
        except Exception:  # noqa: BLE001  of NumPy
            fails += 1
    assert fails < 20
    assert next(documented("np.tril")).inputs


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_goes_on_where_its_log_ends(tmp_path, capsys):
    log = tmp_path / "log"
    words = ["--only", "np.tril", "--log", str(log)]
    assert main(words) == 0
    first = log.read_text().splitlines()
    log.write_text("\n".join([first[0].replace('"right"', '"wrong"'), ""]))
    assert main(words) == 1
    assert log.read_text().splitlines()[1:] == first[1:]
    assert "1 wrong" in capsys.readouterr().out
