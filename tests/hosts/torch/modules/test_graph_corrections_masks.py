"""Masks of attention that rest on no input, in graphs that dynamo captured."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from noyau.hosts.torch.modules.graph_corrections import arguments_of, fold_masks

Q = torch.randn(2, 1, 4, 8, generator=torch.Generator().manual_seed(0))


def causal(n, m):
    return (torch.arange(m)[None, :] <= torch.arange(n)[:, None]) & torch.ones((), dtype=torch.bool)


def written(n):
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[0, 1:] = False
    return mask


MASKS = {
    "causal": (lambda q: causal(4, 4).expand(2, 1, 4, 4), (False, True)),
    "all": (lambda q: torch.ones(1, 1, 1, 4, dtype=torch.bool), (False, False)),
    "a band": (lambda q: causal(4, 4) & ~causal(4, 4).tril(-3), (True, False)),
    "of the input": (lambda q: q[:, :, :, :4] == q[:, :, :, :4], (True, False)),
    "of chance": (lambda q: torch.rand(4, 4) >= 0, (True, False)),
    "written into": (lambda q: written(4), (True, False)),
    "of numbers": (lambda q: torch.zeros(4, 4), (True, False)),
}


ATTENTIONS = {
    "by keyword": lambda q, mask: scaled_dot_product_attention(query=q, key=q, value=q, attn_mask=mask),
    "by place": lambda q, mask: scaled_dot_product_attention(q, q, q, mask, 0.0, False, scale=2.0),
}


@pytest.mark.parametrize(
    ("name", "way"), [*((name, "by keyword") for name in MASKS), ("causal", "by place"), ("of numbers", "by place")]
)
def test_constant_masks_are_folded_and_no_others(name, way):
    (mask, want), attention = MASKS[name], ATTENTIONS[way]
    seen = []

    def backend(module, inputs):
        fold_masks(module)
        nodes = module.graph.find_nodes(op="call_function", target=scaled_dot_product_attention)
        words = [arguments_of(each, ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")) for each in nodes]
        seen.extend((each["attn_mask"] is not None, each.get("is_causal", False)) for each in words)
        return module.forward

    def attend(q):
        return attention(q, mask(q))

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(attend, backend=backend, dynamic=False)(Q), attend(Q))
    assert seen == [want]
