"""The derivatives of reductions and running results beside those of torch, at ties, zeros, infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.compiler.autodiff.adjoints import derive
from noyau.ir.graph import Reduce, Scan
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.autodiff.nodes import alone, given

INF, NAN = np.inf, np.nan
ROWS = np.array(
    [
        [1.0, -2.0, 3.0, 0.5],
        [2.0, 2.0, -1.0, 2.0],
        [0.0, -0.0, 0.0, 0.0],
        [0.0, 5.0, -3.0, 4.0],
        [INF, 1.0, INF, 0.0],
        [-INF, 1.0, 2.0, 3.0],
        [-INF, -INF, -INF, -INF],
        [1e-310, 1e-310, 2.0, 1.0],
    ]
)
ABOVE = np.array([1.0, 3.0, -6.0, 0.5, 2.0, 1.0, 1.0, 1.0])
REDUCED = {
    "sum": lambda x: x.sum(-1),
    "prod": lambda x: x.prod(-1),
    "max": lambda x: x.amax(-1),
    "min": lambda x: x.amin(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "variance": lambda x: x.var(-1, correction=0),
}
RUNNING = {
    "sum": lambda x: x.cumsum(-1),
    "prod": lambda x: x.cumprod(-1),
    "max": lambda x: x.cummax(-1).values,
    "min": lambda x: x.cummin(-1).values,
    "logsumexp": lambda x: x.logcumsumexp(-1),
}


def ours(kind, rows, above, left):
    derived = derive(alone(kind, [given("x", ("r", "n"))], left), ["x"]).gradient
    return evaluate(derived, {"x": rows, "grad_y": above})[derived.outputs[0]]


def theirs(function, rows, above):
    x = torch.tensor(rows, requires_grad=True)
    function(x).backward(torch.tensor(above))
    return x.grad.numpy()


@pytest.mark.parametrize("monoid", REDUCED)
def test_reductions(monoid):
    finite, some = np.isfinite(ROWS).all(1), (ROWS > -INF).any(1)  # of -inf alone, our logsumexp gives 0, torch's NaN
    rows = {"max": ROWS, "min": ROWS, "sum": ROWS, "logsumexp": ROWS[some]}.get(monoid, ROWS[finite])
    above = ABOVE[: len(rows)]
    want = theirs(REDUCED[monoid], rows, above)
    np.testing.assert_allclose(ours(Reduce(monoid, (1,)), rows, above, ("r",)), want, rtol=1e-12)


@pytest.mark.parametrize("monoid", ["max", "min"])
def test_a_maximum_that_is_nan(monoid):
    rows = np.array([[1.0, NAN, 3.0]])
    assert np.isnan(theirs(REDUCED[monoid], rows, ABOVE[:1])).all()
    assert np.isnan(ours(Reduce(monoid, (1,)), rows, ABOVE[:1], ("r",))).all()


@pytest.mark.parametrize("monoid", RUNNING)
def test_running_results(monoid):
    rows = ROWS[:4] if monoid not in ("max", "min") else np.array([[1.0, -2.0, 3.0, 0.5], [-1.0, 4.0, 5.0, -6.0]])
    above = np.linspace(-1, 2, rows.size).reshape(rows.shape)
    want = theirs(RUNNING[monoid], rows, above)
    np.testing.assert_allclose(ours(Scan(monoid, 1), rows, above, ("r", "n")), want, rtol=1e-11, atol=1e-12)


def test_ties_of_a_running_maximum_go_to_the_first_and_in_torch_to_the_last():
    rows, above = np.array([[2.0, 2.0, 1.0]]), np.array([[1.0, 10.0, 100.0]])
    np.testing.assert_array_equal(ours(Scan("max", 1), rows, above, ("r", "n")), [[111, 0, 0]])
    np.testing.assert_array_equal(theirs(RUNNING["max"], rows, above), [[1, 110, 0]])


@noyau.op("float[n, m], float[m] -> float[n]")
def highest(x, weight):
    return (x * weight).max(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_maximum_of_what_is_computed_again(dtype):
    """Which in a kernel is rounded otherwise than what was returned, so that no cell equals that."""
    torch.manual_seed(0)
    x, weight = torch.randn(7, 19, dtype=dtype), torch.randn(19, dtype=dtype)
    leaves = [each.clone().requires_grad_() for each in (x, weight)]
    exact = [each.double().requires_grad_() for each in (x, weight)]
    found = torch.autograd.grad(highest(*leaves).sum(), leaves)
    want = torch.autograd.grad((exact[0] * exact[1]).amax(-1).sum(), exact)
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2 * torch.finfo(dtype).eps, atol=0.02)
