"""Flat functions, without a GPU."""

from __future__ import annotations

import pytest
import torch

from noyau.errors import DeviceError
from noyau.hosts.torch.modules.flat_codegen import Flat, flat


@pytest.fixture
def made():
    return Flat(torch.fx.symbolic_trace(lambda x: torch.relu(x)))


@pytest.mark.parametrize("when", ["first", "known"])
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RuntimeError("illegal memory access"), DeviceError, "a compiled graph: .* started again"),
        (RuntimeError("something"), RuntimeError, "something"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB. Of"),
            torch.OutOfMemoryError,
            "^a compiled graph needs more memory than the GPU has",
        ),
    ],
)
def test_an_error_says_what_became_of_the_device(when, error, kind, words):
    def fails(arguments):
        raise error

    run = flat(torch.fx.symbolic_trace(lambda x: torch.relu(x)), [])
    setattr(run.flat, when, fails)
    with pytest.raises(kind, match=words) as caught:
        run([])
    assert caught.value.__cause__ is not caught.value


def test_the_graph_is_let_go_of_once_it_is_known(made):
    x = torch.randn(3)
    assert torch.equal(made([x]), x.relu())
    assert made.module is None and made.known is not None
    assert torch.equal(made.first([x]), x.relu())
