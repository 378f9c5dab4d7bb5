"""The tutorials of a checkout of Triton are cases, those of Gluon are not."""

from __future__ import annotations

from tools.suites import triton_tutorials


def test_the_tutorials_of_a_checkout(tmp_path):
    folder = tmp_path / "python" / "tutorials"
    (folder / "gluon").mkdir(parents=True)
    for name in ("02-fused-softmax.py", "01-vector-add.py", "gluon/01-intro.py", "README.rst"):
        (folder / name).touch()
    found = [(case.name, case.words, case.is_defective) for case in triton_tutorials.cases_of(tmp_path)]
    assert found == [
        ("01-vector-add", ("01-vector-add.py",), False),
        ("02-fused-softmax", ("02-fused-softmax.py",), False),
    ]
