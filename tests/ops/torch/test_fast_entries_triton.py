from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from noyau.errors import InputError
from noyau.hosts.numpy.fast_calls import MISS
from noyau.kernels.programs.generate import specialization_of
from noyau.kernels.triton.parameters import is_interpreted
from noyau.ops.dispatch.choice import Choice, Selection
from noyau.ops.torch.fast_entries import entry
from noyau.signatures.binding import bind
from tests.kernels import triton_ops

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not is_interpreted(triton_ops.blocks),
    reason="triton was imported before it was asked to interpret",
)


def fast_call():
    op = triton_ops.scaled
    bound = bind(op.signature, (torch.ones(5).numpy(), 2.0), {}, op.name)
    wanted = replace(specialization_of(op.signature, bound, {}), device=DEVICE)
    kernel = op.kernels["blocks"]
    made = entry(
        op.name, op.signature, Selection(wanted, ((Choice("blocks", "triton", "", kernel), float("inf")),), ())
    )
    assert made is not None
    return made


def test_a_kernel_by_hand_is_called_on_tensors_and_numbers():
    x = torch.arange(100.0, device=DEVICE)
    assert torch.equal(fast_call()((x, 3.0)), 3 * x)
    assert torch.equal(fast_call()((x, torch.tensor(3.0))), 3 * x)


def test_what_is_of_another_key_is_missed():
    made = fast_call()
    x = torch.arange(5.0, device=DEVICE)
    assert made((x.double(), 3.0)) is MISS
    assert made((x.reshape(1, 5), 3.0)) is MISS
    assert made((x,)) is MISS
    with pytest.raises(InputError, match="these tensors do not fit its kernel"):
        made.insist((x.double(), 3.0))
