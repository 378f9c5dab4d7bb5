from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import CheckError, InputError, MissingExtraError, SignatureError
from noyau.jobs.check.torch_checks import LAYOUTS, check_function, expand_first, name_of

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


def scaled_square(x, k):
    return x * x * np.float32(k)


class Square(torch.autograd.Function):
    """k x^2, whose mistakes are chosen."""

    forward_mistake = backward_mistake = staticmethod(lambda value: value)

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return Square.forward_mistake(x * x * k)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Square.backward_mistake(g * 2 * x * ctx.k), None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_right_function_in_every_dtype(dtype):
    found = noyau.check(Square.apply, (X.to(dtype), 3.0), reference=lambda x, k: torch.square(x) * k)
    assert found.ok, str(found)
    assert [kernel.name for kernel in found.kernels] == ["values", "gradient"]
    assert "Square[gradient]: agreed on 4 cases" in str(found)
    assert "on packed, transposed, strided, expanded tensors" in str(found)
    assert found.place.startswith(__file__)


WRONG = {
    "a value": ("forward", lambda made: made * 1.01, "wrong-value", r"wrong at out\[\d, \d\] for x: f32\[4, 5\]"),
    "a shape": ("forward", lambda made: made[:2], "wrong-value", r"gave f32\[2, 5\] as out, not f32\[4, 5\]"),
    "a dtype": ("forward", lambda made: made.double(), "wrong-value", r"gave f64\[4, 5\] as out"),
    "no tensor": ("forward", lambda made: made.tolist(), "", "returned .*'list'.*, and not tensors|TypeError"),
    "a factor": ("backward", lambda made: made / 2, "gradient", r"grad_x\[\d, \d\] .*; \S+ by central differences"),
    "nothing given back": ("backward", lambda made: None, "gradient", "got 0, want"),
    "a shape given back": (
        "backward",
        lambda made: made[0],
        "gradient",
        "raised RuntimeError in its backward: .*invalid",
    ),
    "a sum where a gradient is": ("backward", lambda made: made.sum() + made * 0, "gradient", r"grad_x\["),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name, monkeypatch):
    which, mistake, kind, told = WRONG[name]
    monkeypatch.setattr(Square, f"{which}_mistake", staticmethod(mistake))
    found = check_function(Square.apply, (X, 3.0), scaled_square)
    assert not found.ok
    finding = found.findings[0]
    assert kind in ("", finding.kind)
    with pytest.raises(CheckError, match=f"(?s)Square.* is .*(?:{told})"):
        found.raise_if_bad()


def test_a_function_that_does_not_look_at_strides():
    def blind(x):
        return torch.as_strided(x, (20,), (1,)).view(4, 5).exp()

    found = noyau.check(blind, (X,), reference=np.exp)
    assert [kernel.ok for kernel in found.kernels] == [False, False]
    assert "(transposed tensors)" in found.findings[0].message
    assert found.findings[0].message.endswith("it is right on packed tensors, and not on transposed ones")


def test_a_function_that_changes_its_input():
    found = check_function(lambda x: x.mul_(1.0).add_(1.0), (X.clone(),), lambda x: x + 1)
    assert "it changed its input 0" in found.findings[0].message


def test_a_function_that_loses_the_gradient():
    found = check_function(lambda x: torch.from_numpy(np.exp(x.detach().numpy())), (X,), np.exp)
    values, gradient = found.kernels
    assert values.ok
    assert "gave result 0 without a gradient, though its inputs require one" in gradient.findings[0].message


def test_a_function_that_raises():
    def strict(x):
        if not x.is_contiguous():
            raise ValueError("packed ones alone")
        return x * 2

    found = check_function(strict, (X,), lambda x: x * np.float32(2))
    assert found.findings[0].kind == "crash"
    assert "raised ValueError: packed ones alone" in found.findings[0].message


def test_an_operator_of_torch_library_and_an_op_as_the_reference():
    @torch.library.custom_op("noyau_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_autograd(lambda ctx, g: g * 2.5)
    right = noyau.op("float[n, m] -> float[n, m]")(lambda x: x + x)
    found = check_function(torch.ops.noyau_tests.twice, (X,), right)
    values, gradient = found.kernels
    assert values.ok and not gradient.ok
    assert (found.op, found.place) == ("twice", "noyau_tests.twice")


def test_integers_have_no_gradient_and_several_results_are_taken():
    found = check_function(lambda x: (x + 1, x * 2), (torch.arange(6).reshape(2, 3),), lambda x: (x + 1, x * 2))
    assert found.ok and [kernel.name for kernel in found.kernels] == ["values"]
    both = check_function(lambda x: (x.exp(), x * 2), (X,), lambda x: (np.exp(x), x + x))
    assert both.ok and len(both.kernels) == 2


def test_a_tolerance_is_allowed_by_request():
    half = lambda x: (x.half().exp()).float()  # noqa: E731
    assert not check_function(half, (X,), np.exp).ok
    found = check_function(half, (X,), np.exp, tolerance=1e-2)
    assert found.ok and "allowed by request: 0.01" in str(found)


def test_expanded_tensors_have_their_first_cells_everywhere():
    assert torch.equal(expand_first(X), X[:1].expand(4, 5)) and expand_first(X).stride(0) == 0
    assert expand_first(torch.ones(0, 2)).shape == (0, 2)
    assert set(LAYOUTS) == {"packed", "transposed", "strided", "expanded"}


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "noyau.jobs.check.torch_checks", None)
    with pytest.raises(MissingExtraError, match=r"torch is not installed; run: pip install 'noyau-kernels\[torch\]'"):
        noyau.check(Square.apply, (X, 3.0), reference=scaled_square)


def test_names():
    assert [name_of(each) for each in (Square.apply, scaled_square, torch.exp)] == ["Square", "scaled_square", "exp"]


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: noyau.check(3), SignatureError, "takes an op alone, or a function of torch: .*it was given 3"),
        (lambda: noyau.check(Square.apply), SignatureError, r"noyau.check\(function, \(x, y\), reference=f\)"),
        (lambda: noyau.check(Square.apply, (X, 1.0)), SignatureError, "reference=f"),
        (lambda: check_function(3, (X,), np.exp), SignatureError, "3: noyau.check takes an op, or a function of torch"),
        (lambda: check_function(torch.exp, (1.0,), np.exp), InputError, "exp: there is no tensor among the args"),
        (lambda: check_function(torch.exp, (X.to(torch.complex64),), np.exp), InputError, "complex64 tensor on cpu"),
        (lambda: check_function(torch.exp, (X.to("meta"),), np.exp), InputError, "give dense tensors of the CPU"),
        (lambda: check_function(torch.exp, (X.to_sparse(),), np.exp), InputError, "sparse"),
        (lambda: check_function(torch.exp, (X,), scaled_square), InputError, "its reference does not take these"),
        (lambda: check_function(torch.exp, (X,), np.exp, tolerance=-1), InputError, "the tolerance is -1"),
    ],
)
def test_what_cannot_be_checked(make, error, told):
    with pytest.raises(error, match=told):
        make()
