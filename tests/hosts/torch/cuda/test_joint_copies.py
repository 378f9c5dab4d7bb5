"""Rows of two tensors copied to one place of two others, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from noyau.hosts.torch.cuda import joint_copies
from noyau.hosts.torch.cuda.joint_copies import copy_rows


@pytest.mark.parametrize(("shape", "axis", "at"), [((2, 3, 7, 40), 2, 6), ((5, 1), 0, 0), ((1, 4, 1), 2, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_both_are_as_torch_copies_them(shape, axis, at, dtype):
    got = torch.randn(2, *shape).to(dtype)
    want, index = got.clone(), torch.tensor([at])
    rows = [torch.randn(*shape[:axis], *shape[axis + 1 :]).to(dtype).unsqueeze(axis) for _ in range(2)]
    copy_rows((got[0], got[1]), axis, index, tuple(rows))
    for each, row in zip(want, rows, strict=True):
        each.index_copy_(axis, index, row)
    assert torch.equal(got, want)


def test_a_kernel_with_other_bits_is_not_used(monkeypatch):
    monkeypatch.setattr(joint_copies, "TRUSTED", {})
    monkeypatch.setattr(joint_copies, "launch", lambda tensors, *_: tensors[0].zero_())
    got = torch.ones(2, 3, 4)
    copy_rows((got[0], got[1]), 0, torch.tensor([1]), (torch.full((1, 4), 2.0), torch.full((1, 4), 3.0)))
    assert [each[1, 0].item() for each in got] == [2, 3] and got.sum() == 16 + 8 + 12


def test_nothing_is_tried_in_a_recording(monkeypatch):
    monkeypatch.setattr(joint_copies, "TRUSTED", {})
    monkeypatch.setattr(joint_copies, "is_capturing", lambda tensor: True)
    monkeypatch.setattr(joint_copies, "launch", lambda tensors, *_: tensors[0].zero_())
    got = torch.ones(2, 3, 4)
    copy_rows((got[0], got[1]), 0, torch.tensor([1]), (torch.full((1, 4), 2.0), torch.full((1, 4), 3.0)))
    assert not joint_copies.TRUSTED and got.sum() == 16 + 8 + 12
