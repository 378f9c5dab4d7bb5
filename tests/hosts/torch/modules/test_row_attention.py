"""Attention of few rows in graphs: what is taken, in Triton's interpreter, and what is left to torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from noyau.hosts.torch.modules.row_attention import attention_sites
from noyau.hosts.torch.modules.row_products import OPERATOR, attention_call, launch_products, with_products
from tests.hosts.torch.modules.test_row_products import captured, drawn


class Attention(nn.Module):
    """One token more behind those of a cache, whose heads others share."""

    def __init__(self, share=1, repeats=True, **named):
        super().__init__()
        self.share, self.repeats, self.named = share, repeats, named

    def forward(self, query, keys, values, new, at, mask=None):
        keys.index_copy_(2, at, new)
        values.index_copy_(2, at, new * 2)
        if self.repeats and self.share > 1:
            keys, values = (self.repeat(each) for each in (keys, values))
        result = scaled_dot_product_attention(query, keys, values, attn_mask=mask, **self.named)
        return result.transpose(1, 2).reshape(query.shape[0], query.shape[2], -1)

    def repeat(self, each):
        batch, heads, length, depth = each.shape
        wide = each[:, :, None, :, :].expand(batch, heads, self.share, length, depth)
        return wide.reshape(batch, heads * self.share, length, depth)


def inputs_of(share=1, rows=1, length=40, depth=16, mask=None, dtype=torch.float32, batch=2):
    keys, values, new = (drawn(batch, 2, n, depth, dtype=dtype, seed=at) for at, n in enumerate((length, length, 1)))
    query = drawn(batch, rows, 2 * share, depth, dtype=dtype, seed=9).transpose(1, 2)
    given = [query, keys, values, new, torch.tensor([length // 2])]
    shown = torch.arange(length) <= length // 2
    if mask == "bool":
        given.append(shown.view(1, 1, 1, length))
    elif mask == "float":
        given.append(torch.where(shown, drawn(batch, 1, rows, length), -torch.inf).to(dtype))
    return given


def copies(given):
    return [each.clone() for each in given]


@pytest.mark.parametrize(
    ("share", "named", "rest"),
    [
        (1, {}, {"mask": "bool"}),
        (3, {}, {"mask": "bool", "depth": 24}),
        (2, {"scale": 0.5}, {"rows": 3, "mask": "float"}),
        (1, {"scale": 0.0}, {"mask": "bool"}),
        (2, {"repeats": False, "enable_gqa": True}, {"dtype": torch.bfloat16, "length": 70}),
        (1, {}, {"rows": 2, "length": 300, "depth": 128, "batch": 1}),
    ],
)
def test_attention_is_a_kernel_in_its_graph(share, named, rest):
    torch._dynamo.reset()
    module, given = Attention(share, **named), inputs_of(share, **rest)
    want = module(*copies(given))
    graph, order = graph_of(module, given)
    (site,) = attention_sites(graph.graph)
    assert site.attention.share == share
    call = attention_call(site.attention)  # it lives as long as it is held
    after, places = with_products(graph, {site: call})
    assert len(places) == len(order)
    result = after(*(given[at].clone() for at in order))[0]
    close = 2e-2 if rest.get("dtype") else 1e-5
    assert torch.allclose(result, want, atol=close, rtol=close)
    launch_products(after)
    assert not after.graph.find_nodes(op="call_function", target=OPERATOR)
    assert torch.equal(after(*(given[at].clone() for at in order))[0], result)


def graph_of(module, given):
    """The graph of a module, and the place of each of its arguments among the inputs."""
    own = copies(given)
    graph, arguments = captured(module, *own)
    return graph, [next(at for at, one in enumerate(own) if one is each) for each in arguments]


@pytest.mark.parametrize(
    ("named", "rest"),
    [
        ({"is_causal": True}, {}),
        ({"dropout_p": 0.1}, {}),
        ({}, {"rows": 17}),
        ({}, {"dtype": torch.float64}),
    ],
)
def test_other_attention_is_torchs(named, rest):
    torch._dynamo.reset()
    graph, _ = captured(Attention(**named), *inputs_of(**rest))
    assert not attention_sites(graph.graph)


class Late(nn.Module):
    """Keys that change between the copies for heads and their use."""

    def forward(self, query, keys):
        wide = keys[:, :, None, :, :].expand(2, 2, 2, 8, 16).reshape(2, 4, 8, 16)
        keys.mul_(2)
        return scaled_dot_product_attention(query, wide, wide)


def test_keys_that_change_after_they_are_copied_are_read_as_they_were():
    torch._dynamo.reset()
    query, keys = drawn(2, 4, 1, 16), drawn(2, 2, 8, 16, seed=1)
    want = Late()(query, keys.clone())
    graph, order = graph_of(Late(), (query, keys))
    (site,) = attention_sites(graph.graph)
    assert site.attention.share == 1
    call = attention_call(site.attention)
    after, _ = with_products(graph, {site: call})
    assert torch.allclose(after(*((query, keys)[at].clone() for at in order))[0], want, atol=1e-5)


class Flat(nn.Module):
    """A result that is seen as a row, in the order in which torch's lies, within an autocast to `dtype` or none."""

    def __init__(self, dtype=None):
        super().__init__()
        self.dtype = dtype

    def forward(self, query, keys, values):
        with torch.autocast("cpu", self.dtype, enabled=self.dtype is not None):
            return scaled_dot_product_attention(query, keys, values).view(1, -1)


def test_results_lie_as_torchs():
    torch._dynamo.reset()
    given = [drawn(1, 2, n, 16, seed=at) for at, n in enumerate((3, 9, 9))]
    graph, order = graph_of(Flat(), given)
    (site,) = attention_sites(graph.graph)
    call = attention_call(site.attention)
    after, _ = with_products(graph, {site: call})
    assert torch.allclose(after(*(given[at] for at in order))[0], Flat()(*given), atol=1e-5)


def test_attention_of_another_dtype_under_autocast_is_torchs():
    torch._dynamo.reset()
    given = [drawn(1, 2, n, 16, seed=at) for at, n in enumerate((3, 9, 9))]
    assert not attention_sites(captured(Flat(torch.bfloat16), *given)[0].graph)
