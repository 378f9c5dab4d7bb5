"""The scripts of TritonBench-G are its cases; there are no labels."""

from __future__ import annotations

from tools.suites import tritonbench


def test_the_scripts_of_a_checkout(tmp_path):
    folder = tmp_path / "data" / "TritonBench_G_v1"
    folder.mkdir(parents=True)
    for name in ("b.py", "a.py", "a.txt"):
        (folder / name).write_text("", "utf-8")
    found = [(case.name, case.words, case.folder, case.is_defective) for case in tritonbench.cases_of(tmp_path)]
    assert found == [("a", ("a.py",), folder, None), ("b", ("b.py",), folder, None)]
