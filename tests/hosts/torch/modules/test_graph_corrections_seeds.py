"""The seeds of attention that draws nothing, which would lie on the host in a graph of a GPU."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from noyau.jobs.optimize.torch.backend import cut_in_two

aten = torch.ops.aten
ATTENTION, BACK = (getattr(aten, f"_scaled_dot_product_efficient_attention{end}").default for end in ("", "_backward"))


def seeds_between(drops):
    """The whole numbers that attention's forward hands to its backward, and those that the backward reads."""

    def joint(query, key, value, gradient):
        result, sums, *seeds = ATTENTION(query, key, value, None, True, drops)
        return result, *BACK(gradient, query, key, value, None, result, sums, *seeds, drops, [True] * 3 + [False])[:3]

    with FakeTensorMode():
        tensors = [torch.empty(2, 2, 8, 8, device="cuda") for _ in range(4)]
        module = make_fx(joint, tracing_mode="fake")(*tensors)
    for number, node in enumerate(module.graph.find_nodes(op="placeholder")):
        node.name = node.target = "tangents_1" if number == 3 else f"primals_{number}"
    forward, backward = cut_in_two(module, tensors, num_fwd_outputs=1)
    results = [each for each in forward.graph.output_node().args[0] if each.meta["val"].dtype == torch.int64]
    (node,) = backward.graph.find_nodes(op="call_function", target=BACK)
    return len(results), [each.target for each in node.args[7:9]]


def test_attention_without_dropout_hands_no_seed_to_its_backward():
    assert seeds_between(0.0) == (0, [aten.empty.memory_format] * 2)


def test_dropout_draws_the_same_numbers_again():
    count, read = seeds_between(0.5)
    assert count == 2 and aten.empty.memory_format not in read
