"""Operators that take a graph, which torch runs between kernels: values and gradients, of sizes by name too."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from tests.jobs.optimize.torch.modules import F, compiled, same


def chosen(x):
    y = F.silu(x * 2) + 1
    (z,) = torch.cond(y.sum() > 0, lambda a: (a.sin() * 2 + a,), lambda a: (a.cos() * 3,), (y,))
    return F.softmax(z * 1.5 + x, -1)


def scanned(x):
    carry, states = scan(lambda c, v: (c * 0.9 + v, c * v), torch.zeros_like(x[0]), F.silu(x) * 2)
    return F.gelu(states) * x + carry.tanh()


def recurrent(x):
    def step(decay, state, later_decay, later_state):
        return decay * later_decay, later_decay * state + later_state

    decay = torch.sigmoid(x) * 0.9 + 0.05
    _, state = associative_scan_op(step, (decay, F.silu(x) * x), ())  # torch's own function unrolls it on a CPU
    return F.gelu(state) * x + decay


def repeated(x):
    start = torch.zeros((), dtype=torch.int64), F.silu(x) * 2
    _, z = while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v.sin() * 1.1), start)
    return F.softmax(z + x * 2, -1)


def attentive(x):
    q = (F.silu(x) * 2).reshape(1, 2, -1, 16)
    return F.gelu(flex_attention(q, q * 2, q + 1, score_mod=lambda score, b, h, i, j: score + (i - j))) * 2


def saved(x):
    inner = torch.utils.checkpoint.checkpoint(lambda v: F.gelu(v * 2).tanh() * v, x, use_reentrant=False)
    return inner + F.softmax(x, -1)


def rows():
    """Functions, whether their sizes are names, and whether they have gradients, where torch has them."""
    for function in (chosen, scanned, recurrent, saved, repeated, attentive):
        for dynamic in (False, True):
            for trains in (False, True)[
                : 1 if function in (repeated, attentive) or (function is recurrent and dynamic) else 2
            ]:
                marks = () if function is chosen and dynamic and trains else pytest.mark.long
                name = f"{function.__name__}{', names' * dynamic}{', gradients' * trains}"
                yield pytest.param(function, dynamic, trains, id=name, marks=marks)


@pytest.mark.parametrize(("function", "dynamic", "trains"), rows())
def test_values_and_gradients(function, dynamic, trains):
    call, record = compiled(function, dynamic=dynamic)
    for count in (4, 6)[: 1 + dynamic]:
        for shift in (3, -3):
            x = torch.randn(count, 32, generator=torch.Generator().manual_seed(count)) + shift
            x.requires_grad_(trains)
            got, want = call(x), function(x)
            assert same(got, want, 1e-4)
            if trains:
                change = want.detach().cos()
                assert same(torch.autograd.grad(got, x, change), torch.autograd.grad(want, x, change), 1e-3)
    assert record.graphs and all(graph.kept and not graph.whole for graph in record.graphs)
