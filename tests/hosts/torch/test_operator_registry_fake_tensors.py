"""Tensors without cells: an op tells the shapes of its results, or that they do not fit."""

from __future__ import annotations

import pytest
import torch

from noyau.errors import SignatureError
from tests.hosts.torch.kinds import layer


def test_under_fake_tensors_shapes_are_told():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        made = layer(torch.ones(3, 4), torch.ones(4, 2))
        assert made.shape == (3, 2)
        with pytest.raises(SignatureError, match=r"w: f32\[5, 2\] binds n=2 and does not fit float\[k, n\]"):
            layer(torch.ones(3, 4), torch.ones(5, 2))
