from __future__ import annotations

import numpy as np
import torch

import noyau
from noyau.dtypes import DType
from noyau.jobs.check import torch_checks
from noyau.jobs.check.gradients import cases_of
from noyau.jobs.check.torch_checks import GRADIENT_LAYOUTS, check_tensors


def product(x, y):
    return np.tanh(x * y)


def op_of(gradient=None):
    op = noyau.op("float[n, m], float[m] -> float[n, m]")(product)
    if gradient is not None:
        op.gradient(gradient)
    return op


def test_layouts_keep_the_values():
    x = torch.arange(24.0).reshape(2, 3, 4)
    for name, lay in GRADIENT_LAYOUTS.items():
        assert torch.equal(lay(x), x)
        assert lay(x).is_contiguous() == (name == "packed")


def test_autograd_of_an_op_is_right():
    found = check_tensors(op_of(), {}, 0, "here:1")
    assert found.ok and not found.skipped, found
    assert found.notes == ("autograd is right on 4 cases, on packed, transposed, strided tensors, and by gradcheck",)


def test_an_autograd_that_is_wrong_names_input_and_cell(monkeypatch):
    whole = torch_checks.gradients_by_torch

    def off(op, subject, case, lay):
        found = whole(op, subject, case, lay)
        if "strided" in case.label:
            found["y"].flat[-1] += 1
        return found

    monkeypatch.setattr(torch_checks, "gradients_by_torch", off)
    (finding,) = check_tensors(op_of(), {}, 0, "here:1").errors
    assert (finding.kind, finding.kernel, finding.place) == ("gradient", "gradient in torch", "here:1")
    assert finding.message.startswith(
        "wrong gradient of y at y[2] for x: f64[5, 3], y: f64[3] (normal numbers, strided"
    )


def test_an_autograd_that_fails_is_a_finding(monkeypatch):
    def fails(*_):
        raise RuntimeError("no grad_fn")

    monkeypatch.setattr(torch_checks, "gradients_by_torch", fails)
    (finding,) = check_tensors(op_of(), {}, 0, "here:1").errors
    assert "autograd ends with RuntimeError: no grad_fn; for x: f64[5, 3]" in finding.message


def test_gradcheck_has_the_last_word(monkeypatch):
    subject, case = next(cases_of(op_of(), {}, DType.F64, 0))
    backwards = lambda op, inputs, **_: (_ for _ in ()).throw(RuntimeError("Jacobian mismatch"))  # noqa: E731
    monkeypatch.setattr(torch.autograd, "gradcheck", backwards)
    found = list(torch_checks._of_case(subject, case, "here:1"))
    assert ["torch.autograd.gradcheck fails for x: f64[5, 3]" in each.message for each in found] == [True]
