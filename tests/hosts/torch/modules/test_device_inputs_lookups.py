"""Made-up inputs of groups that look up: on a GPU an index outside ends the context of the whole process."""

from __future__ import annotations

import pytest
import torch

from noyau.errors import OutsideError
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.device_inputs import PATTERNS, Drawer
from tests.frontends.torch.exports import graph_of

WEIGHT, INDEX, FLAGS = torch.randn(8, 4), torch.arange(8), torch.arange(8) % 2 == 0


def draw(function, *args, seed=0):
    """Inputs of the one group of a function, as its certificate draws them."""
    source = modules_sites.trace_graph(graph_of(function, args))
    (group,) = modules_groups.cut(source).groups
    return Drawer(group, source, torch.device("cpu")).draw(PATTERNS[0], seed)


def buckets(weight, flags, near, far):
    return torch.nn.functional.embedding(near + torch.where(flags, far, torch.minimum(near, far)), weight) * 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("flags", [FLAGS, FLAGS[:1].expand(8)])
def test_indices_are_inside_together(flags, seed):
    """As a T5 has them: a sum of integers, of which flags choose one. Inputs that are outside would be refused."""
    drawn = draw(buckets, WEIGHT, flags, INDEX // 4, INDEX // 4, seed=seed)
    assert sum(bool(each.any()) for each in drawn.values() if each.dtype is torch.int64)


def test_an_index_of_floats_that_is_outside_is_none():
    def floats(weight, x):
        return torch.nn.functional.embedding((x * 1000).to(torch.int64), weight) * 2

    with pytest.raises(OutsideError, match="made-up inputs"):
        draw(floats, WEIGHT, torch.zeros(8))


def test_indices_inside_are_drawn():
    drawn = draw(lambda weight, index: torch.nn.functional.embedding(index + 2, weight) * 2, WEIGHT, INDEX - 2)
    (index,) = {id(each): each for each in drawn.values() if each.dtype is torch.int64}.values()
    assert int(index.min()) >= -2 and int(index.max()) < 6 and index.unique().numel() > 1
