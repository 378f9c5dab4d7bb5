"""The C that reads tensors: there wherever torch lets it."""

from __future__ import annotations

from noyau.hosts.torch.fast_calls import library


def test_torch_is_read_in_c():
    assert library() is not None
