"""Values that are compared with what was computed from them, as the gradient of a maximum does to find its place: what
was equal in forward must be in backward, where another kernel, which computes a value again, may round otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx
from torch._functorch.partitioners import must_recompute
from torch.utils.checkpoint import CheckpointPolicy

from noyau.torch_modules.merging import shows

_NAMES = ("eq", "ne", "ge", "gt", "le", "lt")
COMPARISONS = tuple(getattr(torch.ops.aten, name).Tensor for name in _NAMES)
_REGION = "ac_graph_id"  # which checkpoint a node lies in


def keep_compared(graph: fx.Graph, results: int) -> None:
    """Let no value of forward be computed again in backward where a comparison holds it against what was computed from
    it, unless one checkpoint has both computed again. `graph` is of forward and backward; its first `results` results
    are those of forward."""
    forward: set[fx.Node] | None = None
    for node in graph.nodes:
        if node.target not in COMPARISONS or not _is_inexact(node):
            continue
        forward = forward or _behind(graph.output_node().args[0][:results])
        sides = [_sources(each, forward) for each in node.all_input_nodes]
        if len(sides) == 2 and (_stems(*sides) or _stems(*reversed(sides))) and not _is_repeated(set().union(*sides)):
            for each in set().union(*sides):
                each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _is_inexact(comparison: fx.Node) -> bool:
    """Whether floating-point numbers are compared, which rounding may change."""
    return any(each.meta["val"].is_floating_point() for each in comparison.all_input_nodes)


def _behind(nodes: Iterable[object]) -> set[fx.Node]:
    """The nodes, and all that they are computed from."""
    waiting, found = [each for each in nodes if isinstance(each, fx.Node)], set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _sources(node: fx.Node, forward: set[fx.Node]) -> set[fx.Node]:
    """What forward computes and backward makes a value of, through views; nothing where it hangs on gradients."""
    waiting, found = [node], set[fx.Node]()
    while waiting:
        each = waiting.pop()
        if each in forward and each.op != "placeholder" and not shows(each):
            found.add(each)
        elif each.op == "placeholder" and each not in forward:
            return set()
        else:
            waiting += each.all_input_nodes
    return found


def _stems(some: set[fx.Node], others: set[fx.Node]) -> bool:
    """Whether some of these nodes are computed from some of those, or are the same."""
    return not _behind(some).isdisjoint(others)


def _is_repeated(nodes: set[fx.Node]) -> bool:
    """Whether one checkpoint computes all of them again, and no later one has torch keep its own inputs among them."""
    regions = {node.meta.get(_REGION) for node in nodes if must_recompute(node)}
    users = [user for node in nodes for user in node.users if must_recompute(user)]
    return all(map(must_recompute, nodes)) and len(regions | {user.meta.get(_REGION) for user in users}) == 1
