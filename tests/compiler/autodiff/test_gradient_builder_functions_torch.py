"""The derivatives of functions beside those of torch, at infinities, NaN, zeros of both signs, ties, denormals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.compiler.autodiff.test_gradient_builder_functions import FLAT, FLOATS, SPECIAL, gradients, operands_for

CALLED = {
    "identity": lambda x: x * 1,
    "rounded": lambda x: x * 1,
    "floor_mod": torch.remainder,
    "multiply": torch.mul,
    "truncate": torch.trunc,
    "cast": None,
    "power": torch.pow,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
}


@pytest.mark.parametrize("name", [name for name in FLOATS if name not in (*FLAT, "cbrt")])  # torch has no cbrt
def test_derivatives_at_special_values_are_those_of_torch(name):
    cells = SPECIAL[:-1] if name == "abs" else SPECIAL  # of NaN our sign is NaN, and torch's is 0
    operands = operands_for(name, cells)
    above = np.full(len(operands[0]), 1.5)
    given = [torch.tensor(each, requires_grad=each.dtype != bool) for each in operands]
    called = CALLED.get(name) or getattr(torch, name)
    called(*given).backward(torch.tensor(above))
    want = [each.grad.numpy() for each in given if each.requires_grad]
    for ours, theirs in zip(gradients(name, operands, above), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=0)
