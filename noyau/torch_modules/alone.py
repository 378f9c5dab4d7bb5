"""A part of a graph of torch's as a graph of its own, and tensors to run it with."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from noyau.frontends.torch.dtypes import hinted
from noyau.passes.partition import Group
from noyau.torch_modules.places import Traced, plain


def alone(found: Traced, group: Group) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The nodes of a group as a module, and the nodes outside that it reads, in the order of its arguments."""
    inside = {found.nodes[position] for position in group.positions}
    inside |= {user for node in inside for user in node.users if user.op == "call_function" and _picks(user)}
    graph, new, reads = fx.Graph(), dict[fx.Node, fx.Node](), list[fx.Node]()
    for node in found.program.nodes:
        if node in inside:
            reads += [each for each in node.all_input_nodes if each not in inside and each not in reads]
    for node in reads:
        new[node] = graph.placeholder(node.name)
        new[node].meta["val"] = node.meta["val"]
    for node in found.program.nodes:
        if node in inside:
            new[node] = graph.node_copy(node, lambda each: new[each])
    graph.output(tuple(new[found.givers[plain(name)]] for name in group.outputs))
    return fx.GraphModule({}, graph), reads


def _picks(node: fx.Node) -> bool:
    """Whether a node takes one of several results."""
    return getattr(node.target, "__name__", "") == "getitem"


def drawn(node: fx.Node) -> Any:
    """A value for a node that no group tells the use of: numbers at random, zeros for integers; a size as it was."""
    fake = node.meta["val"]
    if not isinstance(fake, torch.Tensor):
        return hinted(fake)
    shape, strides = [hinted(extent) for extent in fake.shape], [hinted(stride) for stride in fake.stride()]
    made = torch.empty_strided(shape, strides, dtype=fake.dtype)
    return made.normal_() if fake.dtype.is_floating_point else made.zero_()
