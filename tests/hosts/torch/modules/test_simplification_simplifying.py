"""Graphs with less to launch, which compute the same."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from noyau.hosts.torch.modules.simplification import (
    changed_arguments,
    fill_zeros,
    join_copies,
    join_updates,
    simplify,
    update_in_place,
)


def run(function, *args):
    """How often a function's graph calls what, once it is simplified, and the places that it changes; its arguments and
    results are as eager has them."""
    called, places = [], []

    def compiler(graph, examples):
        simplify(graph.graph)
        update_in_place(graph.graph)
        join_updates(graph.graph)
        graph.recompile()
        calls = (node for node in graph.graph.nodes if node.op == "call_function")
        called.extend(str(node.target).removeprefix("aten.") for node in calls)
        places.append(changed_arguments(graph.graph))
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    mine = [each.clone() for each in args]
    with torch.no_grad():
        backend = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
        got, want = torch.compile(function, backend=backend)(*mine), function(*args)
    assert all(map(torch.equal, got, want))
    assert all(map(torch.equal, mine, args))
    return called, places[0]


def test_counters_of_a_cache_go_on_together_and_their_masks_are_one():
    def function(one, two, cache, new):
        seen, made = torch.arange(4) <= one, []
        for begin in (one, two):
            at = torch.arange(2) + begin
            begin.add_(1)
            cache.index_copy_(0, at, new)
            made.append(torch.where(seen, 0.0, -1.0).exp() + new[0, 0])
        return made[0] * made[1], cache.sum(0)

    called, places = run(function, torch.tensor(0), torch.tensor(2), torch.zeros(4, 3), torch.ones(2, 3))
    assert called.count("_foreach_add_.Scalar") == called.count("where.self") == 1
    assert called.count("arange.default") == 2
    assert called.count("copy_.default") == 1
    assert len(places) == 3


def test_numbers_that_begin_positions_and_views_of_what_is_changed():
    def function(begin, cache, new):
        at = torch.arange(1) + begin
        begin.add_(1)
        cache.view(2, 3).t().copy_(new)
        return cache[at], at * 2

    called, places = run(function, torch.tensor(3), torch.zeros(6), torch.ones(3, 2))
    assert "arange.default" not in called
    assert places == {0, 1}


def test_what_leaves_the_graph_or_draws_stays_its_own():
    def function(x):
        return torch.exp(x), torch.exp(x), torch.exp(x) + x + torch.empty_like(x).fill_(2), x + 0 + torch.arange(1)

    called, _ = run(function, torch.ones(1))
    assert called.count("exp.default") == 3
    two = torch.fx.symbolic_trace(lambda x: torch.ops.aten.rand_like.default(x) - torch.ops.aten.rand_like.default(x))
    simplify(two.graph)
    assert sum(node.op == "call_function" for node in two.graph.nodes) == 3


def test_updates_by_zeros_of_other_signs_are_not_joined():
    graph, mul = torch.fx.Graph(), torch.ops.aten.mul_.Tensor
    for at, number in enumerate((0.0, -0.0, 0.0)):
        state = graph.placeholder(f"x{at}")
        graph.call_function(mul, (state, number)).meta["val"] = torch.ones(2)
    graph.output(())
    join_updates(graph)
    module, given = torch.fx.GraphModule(torch.nn.Module(), graph), [torch.ones(2) for _ in range(3)]
    module(*given)
    assert [str(float(each[0])) for each in given] == ["0.0", "-0.0", "0.0"]
    assert sum(node.target is torch.ops.aten._foreach_mul_.Scalar for node in graph.nodes) == 1


def copies(*between):
    """A graph of copies into three tensors alike, the second of them and the third with what is given between them."""
    aten, graph = torch.ops.aten, torch.fx.Graph()
    nodes = [graph.placeholder(name) for name in ("one", "other", "more", "at", "row")]
    for each in nodes:
        each.meta["val"] = torch.zeros({"at": (1,), "row": (1, 4)}.get(each.name, (3, 4)))
    for each in nodes[:3]:
        copy = graph.call_function(aten.index_copy_.default, (each, 0, *nodes[3:]))
        copy.meta["val"] = each.meta["val"]
        ends = [graph.call_function(target, (each,)) for target in between] if each is nodes[0] else []
        for end in ends:
            end.meta["val"] = torch.zeros(3, 4)
    graph.output((copy, *ends))
    return graph


def joint(tensors, axis, index, rows):
    for each, row in zip(tensors, rows, strict=True):
        each.index_copy_(axis, index, row)


@pytest.mark.parametrize(
    ("between", "pairs"), [((), ("one", "other")), ((torch.ops.aten.clone.default,), ("other", "more"))]
)
def test_two_copies_to_one_place_are_one_call_where_nothing_is_read_between(between, pairs):
    graph = copies(*between)
    want, got = ([torch.zeros(3, 4) for _ in range(3)] for _ in range(2))
    rest = torch.tensor([2]), torch.arange(4.0)[None]
    before = torch.fx.GraphModule({}, copies(*between))(*want, *rest)
    join_copies(graph, joint)
    after = torch.fx.GraphModule({}, graph)(*got, *rest)
    assert all(map(torch.equal, (*want, *before), (*got, *after)))
    (call,) = (node for node in graph.nodes if node.target is joint)
    assert tuple(each.name for each in call.args[0]) == pairs


def test_a_copy_of_what_the_one_before_it_wrote_comes_after_it():
    graph = copies()
    first, second, _ = graph.find_nodes(op="call_function", target=torch.ops.aten.index_copy_.default)
    with graph.inserting_after(first):
        row = graph.call_function(torch.ops.aten.slice.Tensor, (first, 0, 2, 3))
    row.meta["val"] = torch.zeros(1, 4)
    second.args = (*second.args[:3], row)
    join_copies(graph, joint)
    (call,) = (node for node in graph.nodes if node.target is joint)
    assert [each.name for each in call.args[0]] == ["other", "more"]


def test_copies_of_several_rows_or_into_one_tensor_stay_as_they_are():
    several, same = copies(), copies()
    several.find_nodes(op="placeholder")[3].meta["val"] = torch.zeros(2)
    for node in same.find_nodes(op="call_function", target=torch.ops.aten.index_copy_.default):
        node.args = (same.find_nodes(op="placeholder")[0], *node.args[1:])
    for graph in (several, same):
        join_copies(graph, joint)
        assert not any(node.target is joint for node in graph.nodes)


def test_zeros_without_memory_and_their_products_have_memory():
    aten, graph = torch.ops.aten, torch.fx.Graph()
    x = graph.placeholder("x")
    zeros = graph.call_function(aten._efficientzerotensor.default, ([2, 3],), {"dtype": torch.float32})
    turned = graph.call_function(aten.t.default, (zeros,))
    by_zero = graph.call_function(aten.mul.Tensor, (x, turned))
    quotient = graph.call_function(aten.div.Tensor, (by_zero, x))
    other = graph.call_function(aten.div.Tensor, (x, quotient))
    for node, shape in ((x, (3, 2)), (zeros, (2, 3)), (turned, (3, 2)), (by_zero, (3, 2)), (quotient, (3, 2))):
        node.meta["val"] = torch.empty(shape)
    graph.output((zeros, turned, by_zero, quotient, other))
    fill_zeros(graph)
    assert [node.target for node in (by_zero, quotient, other)] == [aten.zeros.default] * 2 + [aten.div.Tensor]
    x = torch.full((3, 2), torch.inf)
    *found, endless = torch.fx.GraphModule({}, graph)(x)
    assert not any(each._is_zerotensor() or each.any() for each in found) and endless.isinf().all()
