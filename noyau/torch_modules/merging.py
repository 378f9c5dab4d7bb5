"""Equal values of a graph of torch's as one: torch's own way to that imports all of inductor."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

_ATEN = torch.ops.aten
_VIEWS = (
    _ATEN.view.default,
    _ATEN._unsafe_view.default,
    _ATEN.t.default,
    _ATEN.transpose.int,
    _ATEN.unsqueeze.default,
)
_UNSET = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


def merge_equal(graph: fx.Graph) -> None:
    """Let equal nodes be one: views of one value, and what is computed of the same values in the same way. What draws
    numbers and what is returned, in memory of its own, stays; so does a graph in which a value is changed."""
    if any(isinstance(node.target, OpOverload) and node.target._schema.is_mutable for node in graph.nodes):
        return
    returned = {each for node in graph.nodes if node.op == "output" for each in _storages(*node.all_input_nodes)}
    known: dict[tuple[Any, str], fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not (node.target in _VIEWS or _is_pure(node, returned)):
            continue
        first = known.setdefault((node.target, f"{node.args} {node.kwargs}"), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _is_pure(node: fx.Node, returned: set[int]) -> bool:
    """Whether a node makes the same tensors whenever it runs, none in memory that the graph returns."""
    if isinstance(node.target, OpOverload):
        if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.name.endswith(_UNSET):
            return False
    elif node.target is not operator.getitem:
        return False
    storages = list(_storages(node))
    return bool(storages) and returned.isdisjoint(storages)


def _storages(*nodes: fx.Node) -> Iterator[int]:
    """The memory of the tensors that nodes make, as far as that is known."""
    for node in nodes:
        for each in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided:
                yield each.untyped_storage()._cdata
