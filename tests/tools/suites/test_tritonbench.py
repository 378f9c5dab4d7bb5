"""The scripts of TritonBench-G are its cases; there are no labels."""

from __future__ import annotations

import runpy
import sys

from tools.suites import tritonbench

TESTS = "def test_one():\n    print('called')\n"


def test_the_scripts_of_a_checkout(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "data" / "TritonBench_G_v1"
    folder.mkdir(parents=True)
    for name, text in (("b.py", TESTS), ("a.py", f"{TESTS}result_gold = test_one()\n"), ("a.txt", "")):
        (folder / name).write_text(text, "utf-8")
    found = [(case.name, case.words[-1], case.folder, case.is_defective) for case in tritonbench.cases_of(tmp_path)]
    assert found == [("a", "a.py", folder, None), ("b", "b.py", folder, None)]
    program, path = tritonbench.cases_of(tmp_path)[1].words  # it calls nothing by itself
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [program, path])
    runpy.run_path(program, run_name="__main__")
    assert capsys.readouterr().out == "called\n"
