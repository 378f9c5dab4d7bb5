"""Updates of arguments made where they lie."""

from __future__ import annotations

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from noyau.hosts.torch.modules.simplification import update_in_place


def run(function, *args):
    """The names of what a function's graph calls once its updates are made in place; its arguments are as eager has
    them."""
    called = []

    def compiler(graph, examples):
        update_in_place(graph.graph)
        graph.recompile()
        called.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    mine = [each.clone() for each in args]
    backend = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
    compiled = torch.compile(function, backend=backend)
    got, want = compiled(*mine), function(*args)
    assert torch.equal(got, want)
    assert all(map(torch.equal, mine, args))
    return called


def test_a_cache_is_written_where_it_lies():
    def function(cache, at, new):
        cache.index_copy_(1, at, new.tanh())
        return cache.sum(0) + new.sum()

    called = run(function, torch.randn(2, 8, 3), torch.tensor([5]), torch.randn(2, 1, 3))
    assert "aten.index_copy_.default" in called
    assert "aten.copy_.default" not in called


def test_what_is_read_as_it_was_is_copied():
    def function(cache, at, new):
        before = cache[0]
        cache.index_copy_(1, at, new)
        return cache.sum(0) + before.exp()

    def after(cache, at, new):
        made = cache.index_copy(1, at, new)
        found = cache * 2 + made
        cache.copy_(made)
        return found

    args = torch.randn(2, 8, 3), torch.tensor([5]), torch.randn(2, 1, 3)
    assert "aten.copy_.default" in run(after, *args)
    run(function, *args)


def test_what_is_given_is_not_the_argument():
    def function(state):
        made = state * 0.5
        state.copy_(made)
        return made[0].unsqueeze(0)

    assert "aten.copy_.default" in run(function, torch.randn(2, 3))
