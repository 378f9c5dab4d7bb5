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


def test_conjugates_negated_views_and_zeros_without_memory_are_read_as_what_they_are():
    """The first call, which is recorded, and those of the text after it."""
    aten, graph = torch.ops.aten, torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    conjugated = graph.call_function(aten._conj.default, (x,))
    part = graph.call_function(aten.select.int, (conjugated, 0, 1))
    again = graph.call_function(aten._conj.default, (part,))
    negated = graph.call_function(aten._neg_view.default, (y,))
    row = graph.call_function(aten.select.int, (negated, 0, 1))
    zeros = graph.call_function(aten._efficientzerotensor.default, ([3],))
    turned = graph.call_function(aten.view.default, (zeros, [3, 1]))
    read = (conjugated, part, again, row, turned)
    graph.output(tuple(graph.call_function(aten.mul.Tensor, (each, 2)) for each in read))
    run = Flat(torch.fx.GraphModule({}, graph))
    for _ in range(3):
        x, y = torch.randn(2, 3, dtype=torch.complex64), torch.randn(2, 3)
        want = [x.conj() * 2, x[1].conj() * 2, x[1] * 2, y[1] * -2, torch.zeros(3, 1)]
        assert all(map(torch.equal, run([x, y]), want))
