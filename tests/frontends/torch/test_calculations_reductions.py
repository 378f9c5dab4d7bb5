from __future__ import annotations

import pytest
import torch

from tests.frontends.torch.exports import compare
from tests.frontends.torch.test_calculations import numbers

F = torch.nn.functional


@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions(dynamic):
    compare(
        lambda x: (
            x.sum(),
            x.sum(-1),
            x.sum((0, 2), keepdim=True),
            x.mean(),
            x.mean(1, keepdim=True),
            x.amax(-1),
            x.amin((0, 1)),
            x.max(),
            x.min(),
            x.prod(-1),
            x.var(-1),
            x.var(-1, correction=0),
            x.std(1),
        ),
        numbers(3, 4, 5),
        dynamic=dynamic,
        rtol=1e-4,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions_that_give_several_or_places(dynamic):
    compare(
        lambda x: (
            *torch.var_mean(x, dim=(0, 2)),
            *x.max(1),
            *x.min(-1, keepdim=True),
            *(x.argmax(), x.argmin(-1), x.argmax(1, keepdim=True)),
            *((x > 0.5).any(), (x > 0.5).all(1), (x > 2).any((0, 1))),
            *(torch.logsumexp(x, -1), x.cumsum(1), x.cumprod(0)),
        ),
        numbers(3, 4, 5),
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_softmax_and_norms(dtype):
    x, weight, bias = numbers(3, 4, 8, dtype=dtype), numbers(8, dtype=dtype), numbers(8, dtype=dtype)
    rough = 3e-2 if dtype is torch.bfloat16 else 1e-5
    compare(
        lambda x, w, b, t: (
            torch.softmax(x, -1),
            torch.log_softmax(x, 1),
            F.layer_norm(x, (8,), w, b, 1e-3),
            F.layer_norm(x, (4, 8)),
            F.rms_norm(x, (8,), w),
            F.cross_entropy(x[:, 0], t),
        ),
        *(x, weight, bias, torch.tensor([1, 7, 0])),
        rtol=rough,
    )


def test_integers_and_bools():
    compare(lambda x: (x.sum(), x.sum(0), x.prod(), x.amax(1), x.cumsum(0)), numbers(3, 4, dtype=torch.int32))
    compare(lambda x: (x.sum(), x.any(), x.all(0)), numbers(3, 4, dtype=torch.bool))


def test_values_without_axes():
    compare(lambda x: (x.sum(), x.amax(0), torch.softmax(x, 0), x.cumsum(0)), numbers())


def test_ends_of_a_value_of_rank_0():
    def ends(x, y):
        return *x.max(0), *x.min(0, keepdim=True), x.argmax(0), x.argmin(), y.argmax(keepdim=True)

    compare(ends, torch.tensor(2.5), numbers(2, 3))


def test_no_axes_at_all():
    def none(x, mask):
        return x.amax(()), x.sum([]), torch.squeeze(x, ()), torch.ops.aten.any.dims(mask, []), x.flip(())

    compare(none, numbers(1, 3), numbers(1, 3) > 0)
