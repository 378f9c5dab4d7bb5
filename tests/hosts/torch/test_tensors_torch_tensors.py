from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import MissingExtraError
from noyau.hosts.torch import as_tensors
from noyau.hosts.torch.tensors import in_memory
from tests.jobs.bench.samples import add_op


def test_a_tensor_is_the_same_memory():
    array = np.zeros(5, np.float32)
    tensor, word = as_tensors((array, "word"))
    array[2] = 7
    assert tensor[2] == 7 and word == "word"


def test_a_peer_named_for_torch_is_given_tensors():
    seen = []

    def plus(x, y):
        seen.append(type(x))
        return torch.add(x, y)

    found = noyau.bench(add_op(), peers={"torch": plus, "like torch": torch.add}, sizes={"n": 40}, budget_s=0.05)
    assert set(seen) == {torch.Tensor}
    assert {"torch", "like torch"} <= {row.name for row in found.at[0].ranked}


def test_a_peer_that_writes_to_tensors_is_timed_with_out_as_well():
    def plus(x, y, out=None):
        return torch.add(x, y, out=out)

    found = noyau.bench(add_op(), peers={"torch": plus}, sizes={"n": 40}, budget_s=0.05)
    assert found.at[0].time_s("torch", "out=") > 0


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"noyau-kernels\[torch\]"):
        as_tensors((np.zeros(3),))


@pytest.mark.parametrize("view", [torch.conj, torch._neg_view, lambda x: torch._efficientzerotensor(x.shape)])
def test_what_memory_does_not_hold_as_it_reads_is_copied(view):
    shown = view(torch.randn(3, dtype=torch.complex64))
    copy = in_memory(shown)
    assert torch.equal(copy, shown) and not (copy.is_conj() or copy.is_neg() or copy._is_zerotensor())
