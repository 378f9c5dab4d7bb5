from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest
import torch

from noyau import nn
from tests.nn.cases import CASES

pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")
each_case = pytest.mark.parametrize("case", [case for case in CASES if not case.constants], ids=str)
FEW = (nn.add_rms_norm, nn.softmax, nn.cross_entropy_mean, nn.rope, nn.piecewise_linear)
each_or_few = pytest.mark.parametrize(  # the others by hand
    "case",
    [
        pytest.param(case, id=str(case), marks=() if case.op in FEW else pytest.mark.long)
        for case in CASES
        if not case.constants
    ],
)
each_of_few = pytest.mark.parametrize("case", [case for case in CASES if case.op in FEW], ids=str)


def tensors(case, dtype):
    """The inputs of a case; those that are floats want a gradient."""
    found = [torch.from_numpy(array.copy()) for array in case.arrays(np.dtype(np.float64))]
    return [each.to(dtype).requires_grad_() if each.is_floating_point() else each for each in found]


def called(case):
    def call(*given):
        made = case.op(*given, **case.constants)
        return made if isinstance(made, tuple) else (made,)

    return call


def gradients(call, given):
    """Of a sum in which each cell has another weight, of either sign."""
    results = call(*given)
    total = sum(
        (each.float() * torch.cos(3.0 * torch.arange(each.numel())).reshape(each.shape)).sum() for each in results
    )
    return torch.autograd.grad(total, [each for each in given if each.requires_grad])


@each_case
def test_gradients_are_those_of_finite_differences(case):
    given = tensors(case, torch.float64)
    assert torch.autograd.gradcheck(called(case), given, fast_mode=True)


@each_or_few
def test_gradients_by_strided_inputs_are_too(case):
    given = tensors(case, torch.float64)
    spread = [torch.stack([each.detach()] * 2, -1)[..., 0].requires_grad_(each.requires_grad) for each in given]
    assert torch.autograd.gradcheck(called(case), spread, fast_mode=True)


@each_or_few
@pytest.mark.parametrize("dtype", [torch.bfloat16], ids=str)
def test_gradients_are_rounded_once(case, dtype):
    given = tensors(case, dtype)
    exact = [each.detach().double().requires_grad_() if each.is_floating_point() else each for each in given]
    for found, want in zip(gradients(called(case), given), gradients(called(case), exact), strict=True):
        assert found.dtype == dtype
        size = max(1.0, float(want.abs().max()))  # the weights are up to 1, and their sum may nearly cancel
        assert (found.double() - want).abs().max() <= 4 * torch.finfo(dtype).eps * size


@each_of_few
def test_no_rows_have_gradients_of_no_rows(case):
    given = tensors(case, torch.float32)
    rank = given[0].dim()
    empty = [each.detach()[:0] if each.dim() == rank or not each.requires_grad else each.detach() for each in given]
    empty = [each.requires_grad_() if each.is_floating_point() else each for each in empty]
    found = gradients(called(case), empty)
    assert [each.shape for each in found] == [each.shape for each in empty if each.requires_grad]
    assert not any(each.nan_to_num().any() for each in found)  # a mean over no rows is NaN


def test_within_a_compiled_function_and_an_exported_one():
    """One function of a few ops: a compilation takes longer than what it compiles."""
    torch._dynamo.reset()
    few = [case for case in CASES if case.op in FEW]
    given = [each for case in few for each in tensors(case, torch.float32)]
    ends = [0, *accumulate(len(tensors(case, torch.float32)) for case in few)]
    calls = [(called(case), slice(*part)) for case, part in zip(few, pairwise(ends), strict=True)]

    def call(*given):
        return tuple(each for one, part in calls for each in one(*given[part]))

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    for found, want in zip(gradients(compiled, given), gradients(call, given), strict=True):
        torch.testing.assert_close(found, want)

    class Model(torch.nn.Module):
        def forward(self, *given):
            return call(*given)

    plain = tuple(each.detach() for each in given)
    torch.testing.assert_close(torch.export.export(Model(), plain).module()(*plain), call(*plain))
