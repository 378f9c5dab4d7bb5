from __future__ import annotations

from tools.suites import pmpp


def test_labels_are_the_folders_of_solutions(tmp_path):
    folder = tmp_path / "problems" / "pmpp_v2" / "sum_py"
    for name in ("solutions/correct/one.py", "solutions/wrong/two.py", "solutions/notes/three.py", "submission.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    cases = pmpp.cases_of(tmp_path)
    assert [(each.name, each.is_defective) for each in cases] == [
        ("sum_py/correct/one.py", False),
        ("sum_py/wrong/two.py", True),
    ]
    assert cases[0].words == ("sum_py", "--solution", "sum_py/solutions/correct/one.py")
