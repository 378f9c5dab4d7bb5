"""examples/defects/interfaces.py: each defect by kind, its twin right."""

from __future__ import annotations

import importlib.util

import pytest

import noyau
from noyau.jobs.check import gradients
from noyau.jobs.check.run import check_gradients
from noyau.verify.checks import KernelCheck
from tests.defects import module_of

module = module_of("interfaces")


@pytest.mark.parametrize(("name", "budget_s"), [("product", 0.5), ("squares", 4)])
def test_a_kernel_that_takes_its_arguments_for_something_else(name, budget_s):
    broken, mended = noyau.check(getattr(module, name), generated=False, budget_s=budget_s).kernels
    assert [each.kind for each in broken.findings] == ["wrong-value"]
    assert mended.findings == ()
    assert mended.certificate is not None


def test_a_gradient_that_forgets_what_comes_from_behind(monkeypatch):
    monkeypatch.setattr(gradients, "check_gradient_kernels", lambda *_: KernelCheck("c", "c", None, (), skipped="-"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # the formula alone
    broken, mended = (check_gradients(op, {}, 0, 1)[0] for op in (module.scaled_forgetting, module.scaled))
    assert {each.kind for each in broken.findings} == {"gradient"}
    assert mended.ok
