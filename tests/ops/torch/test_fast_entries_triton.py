from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import InputError, OutsideError
from noyau.hosts.numpy.fast_calls import MISS
from noyau.kernels.programs.generate import build, generate, specialization_of
from noyau.kernels.triton.parameters import is_interpreted
from noyau.ops.dispatch.choice import Choice, Selection
from noyau.ops.dispatch.fast_entries import arguments_of
from noyau.ops.torch import fast_entries
from noyau.ops.torch.fast_entries import entry, through_program
from noyau.signatures.instances import bind
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


@noyau.op("f32[k], i64[n], i32[n] -> f32[n]")
def taken(x, at, step):
    return x[at + step] * np.float32(2)


def taken_call():
    bound = bind(taken.signature, (np.ones(8, "f4"), np.zeros(2, "i8"), np.zeros(2, "i4")), {}, taken.name)
    wanted = replace(specialization_of(taken.signature, bound, {}), device=DEVICE)
    built = build(generate(taken.description, wanted, "triton"))
    return through_program(built, arguments_of(taken.signature, wanted), taken.name)


def indexed(*at):
    steps = torch.ones(len(at), dtype=torch.int32, device=DEVICE)
    return torch.arange(8.0, device=DEVICE), torch.tensor(at, device=DEVICE), steps


@pytest.mark.parametrize(("at", "told"), [((0, 7), 8), ((-10, 2), -1)])
def test_the_first_call_with_such_tensors_looks_at_its_indices(at, told):
    call = taken_call()
    with pytest.raises(
        OutsideError, match=f"taken: an index is {told}, counted from the front, and the axis .* has 8$"
    ):
        call(indexed(*at))
    assert call(indexed(-3, 6)).tolist() == [12, 14]


@pytest.mark.parametrize(("waits", "looks"), [("0", False), ("1", True)])
def test_later_calls_look_where_each_launch_is_waited_for(waits, looks, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", waits)
    call = taken_call()
    call(indexed(0, 1))
    if looks:
        with pytest.raises(OutsideError, match="an index is 100"):
            call(indexed(0, 99))
    else:
        assert call(indexed(0, 99)).tolist() == [2, 0]


def test_a_call_that_a_cuda_graph_captures_leaves_the_look_to_the_next(monkeypatch):
    call = taken_call()
    with monkeypatch.context() as captured:
        captured.setattr(fast_entries, "is_captured", lambda _: True)
        assert call(indexed(0, 99)).tolist() == [2, 0]
    with pytest.raises(OutsideError, match="an index is 100"):
        call(indexed(0, 99))
    assert call(indexed(-3, 6)).tolist() == [12, 14]
    assert call(indexed(0, 99)).tolist() == [2, 0]  # as of shapes that were looked at
