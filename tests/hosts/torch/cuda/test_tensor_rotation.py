from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.errors import InputError
from noyau.hosts.torch.cuda.tensor_rotation import (
    TensorRotation,
    alike,
    flat_of,
    poison,
    same_bits,
    shares_memory,
)


def draws(*, count=3):
    return [
        [torch.full((4, 6), float(k)).t(), torch.full((1, 5), float(k)).expand(3, 5), torch.arange(0) + k]
        for k in range(count)
    ]


def test_each_turn_is_another_set_with_other_values():
    rotation = TensorRotation(draws(), np.random.default_rng(0))
    seen = []
    for _ in range(4):
        number, change = rotation.turn()
        before = [each.clone() for each in rotation.sets[number]]
        change.apply(rotation.sets[number], rotation.sources)
        seen.append(number)
        assert not same_bits(before[0], rotation.sets[number][0])
    assert seen == [0, 1, 0, 1]
    assert rotation.sets[0][0].data_ptr() != rotation.sets[1][0].data_ptr()


def test_cells_come_from_their_own_places():
    base = torch.arange(1000.0)
    rotation = TensorRotation([[base + 1000 * k] for k in range(3)], np.random.default_rng(0))
    for _ in range(20):
        number, change = rotation.turn()
        change.apply(rotation.sets[number], rotation.sources)
        assert torch.equal(rotation.sets[number][0] % 1000, base)


def test_strides_stay():
    for tensor in draws()[0]:
        copy = alike(tensor)
        assert copy.stride() == tensor.stride()
        assert same_bits(copy, tensor)
        assert not shares_memory(copy, tensor)
    assert len(flat_of(draws()[0][1])) == 5


def test_unlike_draws_are_refused():
    with pytest.raises(InputError, match="the same input every time"):
        TensorRotation(draws(count=1), np.random.default_rng(0))
    with pytest.raises(InputError, match=r"differ: .*\(3, 1\).* and .*\(1, 2\).*; draw them alike"):
        TensorRotation([[torch.ones(2, 3)], [torch.ones(3, 2).t()]], np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "uint8"])
def test_poison_leaves_nothing(dtype):
    tensor = torch.zeros(5, dtype=getattr(torch, dtype))
    poison([tensor])
    assert not same_bits(tensor, torch.zeros_like(tensor))


def test_bits_are_compared_not_values():
    nan = torch.tensor([float("nan")])
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.ones(2), torch.ones(2, dtype=torch.float64))
