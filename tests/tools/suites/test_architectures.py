"""Plain modules of the suite of architectures: one that is small, and by hand all of them."""

from __future__ import annotations

import pytest
import torch

from tools.suites.architecture_modules import MODULES
from tools.suites.architectures import Case, judge, main


@pytest.mark.parametrize(
    ("name", "trains"),
    [
        ("graph_network", False),
        *(pytest.param(name, True, marks=[pytest.mark.long, pytest.mark.slow]) for name in MODULES),
    ],
)
def test_a_module_is_right(name, trains):
    assert judge(Case(name, trains, keep="all")) == ("right", "")


def test_what_the_suite_tells(monkeypatch, capfd):
    def run(case, backend, dtype=torch.float32):
        if case.trains and backend:
            raise KeyError("odd")
        return [torch.full((2,), 1.001 if backend else 1.0, dtype=dtype)]

    monkeypatch.setattr("tools.suites.architectures.run", run)
    assert main(["--only", "lstm"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(" in 0")[0] for line in lines[:2]] == ["lstm forward: wrong", "lstm in training: exception"]
    assert lines[2].startswith("0 right, 1 wrong, 1 exception, 0 hang")
