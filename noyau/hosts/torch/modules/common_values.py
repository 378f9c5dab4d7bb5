"""Equal values of a graph of torch's as one: torch's own way to that imports all of inductor.

Values that are compared with what was computed from them, as the gradient of a maximum does to find its place: what
was equal in forward must be in backward, where another kernel, which computes a value again, may round otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import must_recompute
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils.checkpoint import CheckpointPolicy

KNOWN = ("aten", "prims")  # operators of other libraries may draw numbers, or keep a state
_OTHERWISE = (  # what calls give another time
    torch.Tag.nondeterministic_seeded,
    torch.Tag.dynamic_output_shape,
    torch.Tag.data_dependent_output,
)


def merge_equal(graph: fx.Graph) -> None:
    """Let equal nodes be one: what is computed of the same values in the same way, with nothing changed in between.
    What draws numbers, what leaves the graph and what is changed stay, each in memory of its own."""
    changing = [node for node in graph.nodes if node.op == "output" or may_change(node)]
    apart = memory_of(each for node in changing for each in node.all_input_nodes)
    known: dict[Any, fx.Node] = {}
    region = 0
    for node in list(graph.nodes):
        region += may_change(node)
        if node in apart or not _is_pure(node):
            continue
        first = known.setdefault((region, node.target, _told(node.args), _told(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def drop_detached(graph: fx.Graph) -> None:
    """Let what reads a value without its gradient read the value itself: a graph has no gradients. Torch's partitioner
    takes neither for a map, and would keep each tanh, sigmoid and exp for backward that it can compute again."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        source = node.args[0]
        node.replace_all_uses_with(source, delete_user_cb=lambda user: user.op != "output")
        if not node.users:
            graph.erase_node(node)


def may_change(node: fx.Node) -> bool:
    """Whether a node changes memory that it reads, as far as that is known."""
    if node.op in ("call_method", "call_module") or isinstance(node.target, HigherOrderOperator):
        return True
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _is_pure(node: fx.Node) -> bool:
    """Whether a node gives the same tensors whenever it is called between two changes."""
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, OpOverload) or target.namespace not in KNOWN or may_change(node):
        return False
    gives = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    is_number = any(isinstance(each, torch.SymInt | torch.SymFloat | torch.SymBool) for each in gives)
    is_unset = "empty" in str(target._schema.name)
    return not (is_number or is_unset or any(tag in target.tags for tag in _OTHERWISE))


def _told(value: Any) -> Any:
    """Key of an argument, so that equal ones are the same: 1, 1.0 and True differ, as 0.0 and -0.0 do."""
    match value:
        case fx.Node():
            return value
        case list() | tuple():
            return tuple(map(_told, value))
        case dict():
            return tuple((key, _told(each)) for key, each in sorted(value.items()))
        case _:
            return type(value), repr(value)


def shows(node: fx.Node) -> bool:
    """Whether a node may give memory of what it reads."""
    if node.op == "output":
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        is_view = node.target is torch.ops.aten._unsafe_view.default
        return is_view or any(each.alias_info is not None for each in schema.returns)
    own = set(_storages(node))
    return not own or not own.isdisjoint(_storages(*node.all_input_nodes))


def memory_of(nodes: Iterable[fx.Node], shows: Callable[[fx.Node], bool] = shows) -> set[fx.Node]:
    """The nodes whose memory these nodes may show, they themselves among them."""
    waiting, found = list(nodes), set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes if shows(node) else ()
    return found


def _storages(*nodes: fx.Node) -> Iterator[int]:
    """The memory of the tensors that nodes make, as far as that is known."""
    for node in nodes:
        for each in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided:
                yield each.untyped_storage()._cdata


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
    waiting, results = [each for each in nodes if isinstance(each, fx.Node)], set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node not in results:
            results.add(node)
            waiting += node.all_input_nodes
    return results


def _sources(node: fx.Node, forward: set[fx.Node]) -> set[fx.Node]:
    """Values of forward that backward makes a value of, through views; nothing where it hangs on gradients."""
    waiting, results = [node], set[fx.Node]()
    while waiting:
        each = waiting.pop()
        if each in forward and each.op != "placeholder" and not shows(each):
            results.add(each)
        elif each.op == "placeholder" and each not in forward:
            return set()
        else:
            waiting += each.all_input_nodes
    return results


def _stems(some: set[fx.Node], others: set[fx.Node]) -> bool:
    """Whether some of these nodes are computed from some of those, or are the same."""
    return not _behind(some).isdisjoint(others)


def _is_repeated(nodes: set[fx.Node]) -> bool:
    """Whether one checkpoint computes all of them again, and no later one has torch keep its own inputs among them."""
    regions = {node.meta.get(_REGION) for node in nodes if must_recompute(node)}
    users = [user for node in nodes for user in node.users if must_recompute(user)]
    return all(map(must_recompute, nodes)) and len(regions | {user.meta.get(_REGION) for user in users}) == 1
