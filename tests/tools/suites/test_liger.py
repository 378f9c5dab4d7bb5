"""The cases of Liger are found, in a checkout or where pip put it."""

from __future__ import annotations

import pytest

from tools.suites import liger


@pytest.mark.parametrize("folder", ["src", "."])
def test_a_case_is_the_file_itself_as_a_script(tmp_path, folder):
    ops = tmp_path / folder / "liger_kernel" / "ops"
    (ops / "experimental").mkdir(parents=True)
    for name in ("cross_entropy.py", "experimental/embedding.py", "utils.py"):
        (ops / name).touch()
    cases = liger.cases_of(tmp_path)  # those that this release has
    assert [case.name for case in cases] == ["cross_entropy", "embedding"]
    assert cases[0].words == ("liger_function.py", str(tmp_path / folder), "cross_entropy")
    assert not any(case.is_defective for case in cases)


def test_arguments_are_tensors_and_what_is_no_word_is_itself():
    from tools.suites.programs import liger_function

    assert liger_function._argument(1e-6) == 1e-6
    assert liger_function._argument(None) is None
