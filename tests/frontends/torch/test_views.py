from __future__ import annotations

import pytest
import torch

from tests.frontends.torch.exports import compare, imported
from tests.frontends.torch.test_calculations import numbers

F = torch.nn.functional


@pytest.mark.parametrize("dynamic", [False, True])
def test_views(dynamic):
    compare(
        lambda x: (
            x.reshape(-1),
            x.flatten(1),
            x.permute(2, 0, 1),
            x.transpose(0, -1),
            x[0].t(),
            x.unsqueeze(1),
            x.unsqueeze(-1).squeeze(-1),
            x.mT,
            x[:, None].expand(-1, 7, -1, -1),
            x[1],
            x[..., -1],
            x[:, 1:3],
            x[:, -2:],
            x[:, ::2],
            x[:, -9:-1],
            x[:, -9::2],
            x[:, 7:],
            x[:, 1:9],
            torch.slice_scatter(x, 2 * x, 1, -9, 9),
            x.flip(0, 2),
            x.narrow(2, 1, 3),
            x.unflatten(2, (2, -1)),
        ),
        numbers(3, 4, 6),
        dynamic=dynamic,
    )


def test_diagonals():
    compare(lambda x: (x.diagonal(), x.diagonal(1, 1, 2), torch.diagonal(x, -1, 0, 2)), numbers(3, 4, 5))


def test_names_are_torchs():
    graph = imported(lambda x: (x + 1).transpose(0, 1), [numbers(2, 3)], dynamic=True).graph
    assert graph.outputs == ("permute",)
    assert "add" in graph.by_name
