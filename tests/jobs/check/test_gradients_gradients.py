from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

import noyau
from noyau.errors import CheckError, SignatureError
from noyau.jobs.check import gradients
from noyau.jobs.check.run import check_gradients


def logsumexp(x):
    return np.log(np.exp(x).sum(-1))


def largest(x):
    return x.max(-1)


def shares(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def op_of(function, gradient=None, signature="float[n, m] -> float[n]"):
    op = noyau.op(signature)(function)
    if gradient is not None:
        op.gradient(gradient)
    return op


@pytest.fixture
def _formula_alone(monkeypatch):
    """No kernels are built, and torch is not there."""
    monkeypatch.setattr(
        gradients, "check_gradient_kernels", lambda *_: gradients.KernelCheck("c", "c", None, (), skipped="-")
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("_formula_alone")
@pytest.mark.parametrize(
    ("function", "gradient"),
    [
        (logsumexp, lambda x, grad: grad[:, None] * shares(x)),
        (logsumexp, lambda grad_out, out, x: grad_out[:, None] * np.exp(x - out[:, None])),
        (logsumexp, None),
        (largest, None),
    ],
)
def test_gradients_that_are_right(function, gradient):
    (formula, _) = check_gradients(op_of(function, gradient), {}, 0, 1)
    assert formula.ok and "its formula is right on 4 cases" in formula.notes[0]
    beside = "the derivative of the reference and central differences" if gradient else "beside central differences"
    assert beside in formula.notes[0]


WRONG = {
    "a factor is missing": (
        logsumexp,
        lambda x, grad: grad[:, None] * np.exp(x),
        r"x\[\d, \d\] for x: f64\[\d+, \d+\] ",
    ),
    "the gradient above is not used": (
        logsumexp,
        lambda x, grad: shares(x),
        r"got \S+, want \S+ \(the derivative of the",
    ),
    "a sign": (logsumexp, lambda x, grad: -grad[:, None] * shares(x), "by central differences"),
    "each of the ties has all": (
        largest,
        lambda x, out, grad: (x == out[:, None]) * grad[:, None],
        "many equal numbers",
    ),
    "none at all": (logsumexp, lambda x, grad: None, r"got 0, want \S+ \(it gives None\)|returns"),
    "the shape": (logsumexp, lambda x, grad: grad, r"grad_x is f64\[n\], and f64 of 2 axes by the signature"),
    "a parameter": (logsumexp, lambda x, slope: x, "slope"),
    "the number of gradients": (logsumexp, lambda x, grad: (x, x), "2 gradients"),
}


@pytest.mark.usefixtures("_formula_alone")
@pytest.mark.parametrize("name", WRONG)
def test_gradients_that_are_wrong(name):
    function, gradient, told = WRONG[name]
    (formula,) = check_gradients(op_of(function, gradient), {}, 0, 1)
    (finding,) = formula.errors
    assert finding.kind == "gradient"
    assert __file__ in finding.place
    assert re.search(told, finding.message), finding.message


@pytest.mark.usefixtures("_formula_alone")
def test_a_missing_term_names_the_input_and_the_cell():
    def scaled(x, factor):
        return x * factor * factor

    op = op_of(scaled, lambda x, factor, grad: (grad * factor * factor, grad * x * factor), "f64[n], f64[n] -> f64[n]")
    (formula,) = check_gradients(op, {}, 0, 1)
    (finding,) = formula.errors
    assert finding.message.startswith("wrong gradient of factor at factor[")
    assert finding.cell is not None and len(finding.cell) == 1


@pytest.mark.usefixtures("_formula_alone")
def test_another_rule_upon_ties_that_a_slope_of_either_side_allows_is_a_warning():
    first = lambda x, grad: (np.arange(x.shape[1]) == x.argmax(-1)[:, None]) * grad[:, None]  # noqa: E731
    (formula, _) = check_gradients(op_of(largest, first), {}, 0, 1)
    (finding,) = formula.findings
    assert formula.ok and finding.severity == "warning"
    assert finding.message.startswith("upon ties it is another rule than torch's: wrong gradient of x at x[")


@pytest.mark.usefixtures("_formula_alone")
def test_a_gradient_of_what_cannot_be_derived_stands_beside_differences():
    def ordered(x):
        return np.partition(x, 1, axis=-1)[..., :1].sum(-1)

    right = lambda x, grad: (x == x.min(-1, keepdims=True)) * grad[:, None]  # noqa: E731
    assert check_gradients(op_of(ordered, right), {}, 0, 1)[0].ok
    (formula,) = check_gradients(op_of(ordered, lambda x, grad: x * 0 + grad[:, None]), {}, 0, 1)
    assert "by central differences" in formula.errors[0].message
    skipped = check_gradients(op_of(ordered), {}, 0, 1)[0]
    assert skipped.ok and skipped.skipped.startswith("it has none: ")


def test_without_a_signature():
    with pytest.raises(SignatureError, match="no signature, so its gradient cannot be checked; give it one"):
        check_gradients(noyau.op(largest), {}, 0, 1)


@pytest.mark.usefixtures("_formula_alone")
def test_a_check_asks_for_what_is_written_and_for_the_rest_where_it_is_told_to():
    wrong = op_of(logsumexp, lambda x, grad: grad[:, None] * np.exp(x))
    found = noyau.check(wrong, generated=False)
    assert not found.ok
    with pytest.raises(CheckError, match=r"logsumexp\[gradient\] is wrong gradient of x at"):
        found.raise_if_bad()
    assert "compare it with the derivative of the reference at the cell that is named" in str(found)
    assert noyau.check(wrong, generated=False, gradient=False).ok
    assert noyau.check(op_of(logsumexp), generated=False).kernels == ()
    told = str(noyau.check(op_of(logsumexp), generated=False, gradient=True))
    assert told.startswith("logsumexp[gradient]: its formula is right on 4 cases, beside central differences")
