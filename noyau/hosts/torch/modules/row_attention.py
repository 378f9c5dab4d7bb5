"""Attention of few rows in a graph that dynamo captured, and its kernel, which reads shared keys without copies."""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn.functional import scaled_dot_product_attention

from noyau.codegen.triton.row_attention import RowAttention
from noyau.codegen.triton.row_products import MOST_ROWS
from noyau.frontends.torch.tensors import FROM_TORCH
from noyau.hosts.torch.modules.graph_corrections import arguments_of
from noyau.hosts.torch.modules.row_products import FLOATS, OPERATOR, PackedProducts, may_change

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")


@dataclass(frozen=True, slots=True, eq=False)
class AttentionSite:
    """Attention in a graph: its node, what it computes, and the nodes of queries, keys, values and a mask."""

    node: fx.Node
    attention: RowAttention
    operands: tuple[fx.Node, ...]
    members: tuple[Any, ...] = ()  # products, which a ProductFamily has

    def join(self, graph: fx.Graph, call: PackedProducts, new: dict[fx.Node, fx.Node]) -> None:
        """Replace it by its kernel, in a graph whose nodes are `new`; results have the strides of torch's kernels."""
        own, old = self.attention, new[self.node]
        with graph.inserting_before(old):
            query, *others = (new[each] for each in self.operands)
            query = graph.call_method("reshape", (query, (own.rows, own.depth)))
            query, *others = (graph.call_method("contiguous", (each,)) for each in (query, *others))
            rows = graph.call_function(operator.getitem, (graph.call_function(OPERATOR, (query, others, call.key)), 0))
            rows = graph.call_method("view", (rows, (own.batch, own.queries, own.heads, own.depth)))
            new[self.node] = graph.call_method("transpose", (rows, 1, 2))
            if not self.node.meta["example_value"].transpose(1, 2).is_contiguous():
                new[self.node] = graph.call_method("contiguous", (new[self.node],))
        new[self.node].meta = dict(self.node.meta)
        old.replace_all_uses_with(new[self.node])
        graph.erase_node(old)


def attention_sites(graph: fx.Graph) -> list[AttentionSite]:
    """The sites of a graph at which few rows attend to packed keys and values, without dropout."""
    nodes = graph.find_nodes(op="call_function", target=scaled_dot_product_attention)
    return [*filter(None, (_site(node, arguments_of(node, _NAMES)) for node in nodes))]


def _site(node: fx.Node, words: Mapping[str, Any]) -> AttentionSite | None:
    operands = words["query"], *(_keys_of_source(words[name], node) for name in ("key", "value"))
    operands += tuple(words[name] for name in ("attn_mask",) if words.get(name) is not None)
    fakes = [each.meta.get("example_value") for each in operands]
    if not all(isinstance(each, Tensor) and all(type(n) is int for n in each.shape) for each in fakes):
        return None
    (rows, keys, values, *masks), result = fakes, node.meta["example_value"]  # autocast may give it another dtype
    if not rows.ndim == keys.ndim == 4 or not keys.numel() or words.get("dropout_p") or words.get("is_causal"):
        return None
    (batch, heads, queries, depth), length = rows.shape, keys.shape[2]
    share, scale = max(1, heads // keys.shape[1]), words.get("scale")
    scale = 1 / math.sqrt(depth) if scale is None else scale
    mask = masks[0] if masks else torch.empty(length, dtype=rows.dtype, device="meta")
    shape = (*(1,) * (4 - mask.ndim), *mask.shape)
    fits = keys.shape == values.shape == (batch, heads // share, length, depth) and not heads % share
    fits = fits and keys.is_contiguous() and values.is_contiguous()
    fits = fits and {rows.dtype} == {each.dtype for each in (keys, values, result)}
    fits = fits and shape[3] == length and all(n in (1, most) for n, most in zip(shape, rows.shape[:3], strict=False))
    fits = fits and mask.dtype in (torch.bool, rows.dtype) and all(each.numel() < 1 << 31 for each in fakes)
    fits = fits and isinstance(scale, float) and math.isfinite(scale) and rows.dtype in FLOATS
    if not fits or not 0 < queries <= MOST_ROWS or depth > 512:
        return None
    kind, steps = FROM_TORCH[mask.dtype] if masks else None, [math.prod(shape[at:]) for at in (1, 2, 3)]
    steps = [step * (n > 1) for step, n in zip(steps, shape, strict=False)]
    sizes = batch, heads, queries, share, length, depth, scale, FROM_TORCH[rows.dtype]
    return AttentionSite(node, RowAttention(*sizes, kind, (steps[0], steps[1], steps[2])), operands)


def _keys_of_source(node: fx.Node, reader: fx.Node) -> fx.Node:
    """The keys or values that a graph copies for each head, if nothing may change before the reader; else the node."""
    all_of, between = (slice(None),) * 2, node
    wide = node.args[0] if node.op == "call_method" and node.target == "reshape" else node
    lifted = wide.args[0] if wide.op == "call_method" and wide.target == "expand" else node
    if lifted.target is not operator.getitem or lifted.args[1] != (*all_of, None, *all_of):
        return node
    while between is not reader and not may_change(between):
        between = between.next
    before, among, after = (each.meta["example_value"].shape for each in (lifted.args[0], wide, node))
    fits = len(before) == len(after) == 4 and among[:2] == before[:2] and before[2:] == after[2:]
    return lifted.args[0] if between is reader and fits and before[0] == after[0] else node
