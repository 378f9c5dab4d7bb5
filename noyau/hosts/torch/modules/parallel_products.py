"""Small products of one input in parallel, where a CUDA graph records them: queries, keys and values, gate and up.

A product of few rows takes less time than a GPU needs to begin it. Concatenated weights gain as much, but hold each
weight twice, and a user's change of one through `.data` would go unseen: so each product has a stream of its own.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from noyau.hosts.torch.modules.cuda_graph import is_capturing
from noyau.hosts.torch.modules.simplification import may_change

MOST_ROWS = 256  # of an input; products of more fill a GPU by themselves
_MOST = 4  # products at once
_ATEN = torch.ops.aten
_CALLS = {_ATEN.mm.default: torch.mm, _ATEN.addmm.default: torch.addmm}
_VIEWS = (_ATEN.t.default, _ATEN.permute.default, _ATEN.transpose.int)


def join_products(graph: fx.Graph) -> None:
    """Replace products of few rows that read one input by the results of one call."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    for first, *others in list(_families(graph)):
        for view in (each for product in others for each in product.all_input_nodes if order[each] > order[first]):
            first.prepend(view)  # of a weight
        with graph.inserting_before(first):
            calls = [first, *others]
            functions = tuple(_CALLS[each.target] for each in calls)
            joint = graph.call_function(side_by_side(functions), tuple(each.args for each in calls))
            parts = [graph.call_function(operator.getitem, (joint, at)) for at in range(len(calls))]
        for each, part in zip(calls, parts, strict=True):
            part.meta = dict(each.meta)
            each.replace_all_uses_with(part)
            graph.erase_node(each)


def _families(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    """Products of one input without a mutation between them, whose other operands exist before the first."""
    families, region = dict[Any, list[fx.Node]](), 0
    before = set[fx.Node]()  # values that exist early: arguments, and views of them
    for node in graph.nodes:
        region += may_change(node)
        if node.op in ("placeholder", "get_attr") or (node.target in _VIEWS and node.args[0].op == "placeholder"):
            before.add(node)
        elif node.target in _CALLS and not node.kwargs:
            *others, source, weight = node.args
            others, rows = [*others, weight], source.meta["val"].shape[0]
            if isinstance(rows, int) and rows <= MOST_ROWS and all(each in before for each in others):
                families.setdefault((region, source), []).append(node)
    for each in families.values():
        yield from (part for at in range(0, len(each), _MOST) if len(part := each[at : at + _MOST]) > 1)


@cache
def side_by_side(functions: tuple[Callable[..., Any], ...]) -> Callable[..., tuple[Any, ...]]:
    """Calls of these functions as one; on streams of their own while a CUDA graph is recorded, which gets branches."""

    def products(*operands: Sequence[Any]) -> tuple[Any, ...]:
        calls = zip(functions, operands, strict=True)
        if not (operands[0][0].is_cuda and is_capturing()):
            return tuple(function(*each) for function, each in calls)
        now, results = torch.cuda.current_stream(), list[Any]()
        branches = [now, *_branches(now.device_index)][: len(functions)]
        for branch in branches[1:]:
            branch.wait_stream(now)
        for branch, (function, each) in zip(branches, calls, strict=True):
            with torch.cuda.stream(branch):
                results.append(function(*each))
        for branch in branches[1:]:
            now.wait_stream(branch)  # memory of a branch is reused on it alone, after it has waited for this stream
        return tuple(results)

    return products


@cache
def _branches(device: int) -> list[Any]:
    """Streams for all products but the first."""
    return [torch.cuda.Stream(device) for _ in range(_MOST - 1)]
