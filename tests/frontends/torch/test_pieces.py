from __future__ import annotations

import pytest
import torch

from tests.frontends.torch.exports import compare
from tests.frontends.torch.test_calculations import numbers

F = torch.nn.functional


@pytest.mark.parametrize("dynamic", [False, True])
def test_pieces(dynamic):
    compare(
        lambda x: (
            torch.cat([x, x * 2], 1),
            torch.stack([x, x], -1),
            *x.split(2, -1),
            *torch.split(x, [1, 5], 2),
            *x.chunk(2, 2),
            *x.unbind(0)[:2],
            F.pad(x, (1, 2, 0, 3), value=0.5),
            torch.roll(x, 1, 2),
        ),
        numbers(3, 4, 6),
        dynamic=False,
    )
    compare(
        lambda x: (torch.cat([x, x * 2], 1), x.repeat(2, 1, 3), F.pad(x, (1, 2))), numbers(3, 4, 6), dynamic=dynamic
    )
