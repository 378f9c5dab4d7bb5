"""Every op of the catalogue by torch's own rules for operators, in each dtype and however the cells lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau import nn
from noyau.ops.torch_entry import tensor_calls
from tests.nn.cases import CASES
from tests.nn.catalogue_model import Everything

pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")
LIES = {
    "packed": lambda x: x,
    "spread": lambda x: torch.stack([x, x], -1)[..., 0],
    "turned": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "offset": lambda x: torch.cat([x[:1], x])[1:] if x.dim() else x,
    "expanded": lambda x: x[:1].expand(x.shape) if x.dim() > 1 else x,
    "no rows": lambda x: x[:0],
}

# The last one compares results, and takes NaN, the mean of no losses, for another one.
TRIED = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
WAYS = [
    *((dtype, lies) for dtype in (torch.float64, torch.float32, torch.bfloat16) for lies in LIES),
    (torch.float16, "packed"),
]


def laid(given, lies):
    """The inputs as they are to lie; where there are no rows, what has fewer axes stays."""
    rows = [each.dim() == given[0].dim() or not each.is_floating_point() for each in given]
    return [LIES[lies](each) if is_row or lies != "no rows" else each for each, is_row in zip(given, rows, strict=True)]


def tensors(case, dtype, lies="packed"):
    """The inputs of a case; those that are floats want a gradient."""
    found = laid([torch.from_numpy(array.copy()) for array in case.arrays(np.dtype(np.float64))], lies)
    return [each.to(dtype).requires_grad_() if each.is_floating_point() else each for each in found]


def overload(op, given, constants):
    calls = tensor_calls(op.calls)
    known = {**op.description.reference.constants, **constants}
    made = calls.operator(tuple(isinstance(each, torch.Tensor) for each in given), known, {})
    return made, {f"c{at}": value for at, value in enumerate(known.values())}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("dtype", "lies"), WAYS, ids=str)
def test_operators_keep_torch_s_rules(case, lies, dtype):
    given = tensors(case, dtype, lies)
    operator, constants = overload(case.op, given, case.constants)
    tried = TRIED[:-1] if lies == "no rows" and case.op is nn.cross_entropy_mean else TRIED
    found = torch.library.opcheck(operator, tuple(given), constants, test_utils=tried, raise_exception=False)
    assert {name: each for name, each in found.items() if each != "SUCCESS"} == {}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("lies", LIES)
def test_gradients_are_those_of_finite_differences(case, lies):
    def call(*given):
        return case.op(*laid(given, lies), **case.constants)

    if lies == "no rows" and case.op is nn.cross_entropy_mean:
        pytest.skip("a mean over no rows is NaN, and no difference says what its slope is")
    assert torch.autograd.gradcheck(call, tensors(case, torch.float64), fast_mode=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_have_gradients(case):
    leaves = tensors(case, torch.float64)
    assert torch.autograd.gradgradcheck(lambda *given: case.op(*given, **case.constants), leaves, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_whole_catalogue_within_a_compiled_model(backend, dtype):
    torch.compiler.reset()
    model, x, labels = Everything(dtype), *Everything.inputs(dtype)
    exact = Everything(torch.float64)
    exact.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    want = slopes(exact, x.detach().double().requires_grad_(), labels)
    for found, plain, truth in zip(slopes(compiled, x, labels), slopes(model, x, labels), want, strict=True):
        assert found.dtype is dtype
        size = truth.abs().max()
        far, usual = ((each.double() - truth).abs().max() / size for each in (found, plain))
        assert far <= 2 * usual + 8 * torch.finfo(dtype).eps


def slopes(model, x, labels):
    """The loss, and its gradient by the input and each parameter."""
    loss = model(x, labels)
    return loss, *torch.autograd.grad(loss, [x, *model.parameters()])


@pytest.mark.parametrize("strict", [False, True])
def test_the_whole_catalogue_within_an_exported_model(strict):
    model, x, labels = Everything(torch.float32), *Everything.inputs(torch.float32)
    x = x.detach()
    rows = torch.export.Dim("rows")
    exported = torch.export.export(model, (x, labels), dynamic_shapes=({0: rows}, {0: rows}), strict=strict)
    called = {str(node.target).split(".")[1] for node in exported.graph.nodes if str(node.target).startswith("noyau.")}
    assert {op.name for op in nn.CATALOGUE} == {name.rsplit("_", 1)[0] for name in called}
    x, labels = x.repeat(2, 1, 1), labels.repeat(2, 1)
    torch.testing.assert_close(exported.module()(x, labels), model(x, labels))


def results(made):
    return made if isinstance(made, tuple) else (made,)


def slopes_of(call, given):
    """The gradients of the sum of all results by what wants them."""
    leaves = [each.detach().requires_grad_() if each.is_floating_point() else each for each in given]
    total = sum(each.square().sum() for each in results(call(*leaves)))
    return torch.autograd.grad(total, [each for each in leaves if each.is_floating_point()])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_under_vmap_as_call_after_call(case):
    def call(*given):
        return case.op(*given, **case.constants)

    def slopes(*given):
        floats = tuple(at for at, each in enumerate(given) if each.is_floating_point())
        return torch.func.grad(lambda *all_: sum(each.square().sum() for each in results(call(*all_))), floats)(*given)

    given = [each.detach() for each in tensors(case, torch.float64)]
    batch = [torch.stack([each, each * 0.5 if each.is_floating_point() else each]) for each in given]
    wanted = [results(call(*(each[at] for each in batch))) for at in range(2)]
    for found, *want in zip(results(torch.vmap(call)(*batch)), *wanted, strict=True):
        torch.testing.assert_close(found, torch.stack(want))
    wanted = [slopes_of(call, [each[at] for each in batch]) for at in range(2)]
    for found, *want in zip(torch.vmap(slopes)(*batch), *wanted, strict=True):
        torch.testing.assert_close(found, torch.stack(want))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast_widens_floats_that_differ(case):
    def call(*given):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return case.op(*given, **case.constants)

    wide = [each.detach() for each in tensors(case, torch.bfloat16)]
    wide = [each.float() if each.is_floating_point() else each for each in wide]
    mixed = [wide[0].bfloat16(), *wide[1:]]
    alike = sum(each.is_floating_point() for each in wide) == 1
    for found, want in zip(results(call(*mixed)), results(case.op(*wide, **case.constants)), strict=True):
        assert found.dtype is (torch.bfloat16 if alike else torch.float32)
        torch.testing.assert_close(found.float(), want, rtol=0.01 if alike else 1e-6, atol=0.01 if alike else 1e-6)
    assert next(each.dtype for each in slopes_of(call, mixed)) is torch.bfloat16


@pytest.mark.parametrize("case", CASES, ids=str)
def test_channels_may_come_last(case):
    first, *others = case.arrays(np.dtype(np.float32))
    if any(each.shape not in (first.shape, first.shape[-1:], ()) for each in others) or "axis" in case.constants:
        pytest.skip("labels and tables have fewer axes")
    torch.manual_seed(0)
    shapes = [(2, 5, 4, first.shape[-1]) if each.shape == first.shape else each.shape for each in (first, *others)]
    packed = [torch.randn(shape) for shape in shapes]
    last = [each.to(memory_format=torch.channels_last) if each.dim() == 4 else each for each in packed]
    assert not last[0].is_contiguous()
    for how in (lambda given: results(case.op(*given, **case.constants)), lambda given: slopes_of(case.op, given)):
        for found, want in zip(how(last), how(packed), strict=True):
            torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
