"""The cases of flash-linear-attention are found in a checkout, and their arguments are tensors by words."""

from __future__ import annotations

import pytest

from tools.suites import fla
from tools.suites.programs.fla_function import CASES


def test_a_case_is_the_file_itself_as_a_script(tmp_path):
    for place in ("ops/gla", "ops/utils", "modules"):
        (tmp_path / "fla" / place).mkdir(parents=True)
    (tmp_path / "fla" / "modules" / "l2norm.py").touch()
    cases = fla.cases_of(tmp_path)  # those that this release has
    assert {case.name for case in cases} == {
        name for name, (module, _) in CASES.items() if module in ("ops.gla", "ops.utils", "modules.l2norm")
    }
    assert cases[0].words == ("fla_function.py", str(tmp_path), "chunk_gla")
    assert not any(case.is_defective for case in cases)


@pytest.mark.parametrize("word", sorted({each for _, words in CASES.values() for each in words if each}, key=str))
def test_arguments_are_tensors_and_what_is_no_word_is_itself(word, monkeypatch):
    import torch

    from tools.suites.programs import fla_function

    monkeypatch.setattr(torch.Tensor, "to", lambda self, device, dtype: self.type(dtype))  # there need be no GPU
    argument = fla_function._argument(word)
    assert argument == word if isinstance(word, int) else argument.requires_grad
