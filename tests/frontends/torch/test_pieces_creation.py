from __future__ import annotations

import pytest
import torch

from tests.frontends.torch.exports import compare
from tests.frontends.torch.test_calculations import numbers


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_made_of_nothing(dynamic):
    compare(
        lambda x: (
            torch.zeros_like(x) + torch.ones(x.shape[0], 1, 1),
            torch.full((x.shape[0], 2), 3.5),
            torch.arange(x.shape[1]) * 2,
            torch.arange(1, x.shape[1], 2),
            torch.arange(0.5, 3.0, 0.5),
            torch.full_like(x, 7, dtype=torch.int64),
            x.tril(),
            x.triu(1),
            torch.eye(4) + x.new_zeros(4, 4),
        ),
        numbers(3, 4, 6),
        dynamic=dynamic,
    )
