"""Updates of a graph's own arguments made where they lie.

AOTAutograd writes `cache.index_copy_(...)` as a copy of all of the cache, and copies that back at the end. Where
nothing reads the cache as it was any more, the update itself goes into it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from noyau.torch_modules.device_kernels import DeviceCall
from noyau.torch_modules.merging import may_change, memory_of, shows

aten = torch.ops.aten
IN_PLACE: dict[Any, Any] = {
    aten.index_copy.default: aten.index_copy_.default,
    aten.index_put.default: aten.index_put_.default,
    aten.index_add.default: aten.index_add_.default,
    aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.add.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
}


def update_in_place(graph: fx.Graph) -> None:
    """Make each update of an argument, which is copied to it at the end, in the argument itself."""
    for update, back in updates(graph).items():
        update.target = IN_PLACE[update.target]
        back.replace_all_uses_with(update)
        graph.erase_node(back)
    graph.lint()


def updates(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """The updates of arguments that can be made where those lie, and the copies that they then need not."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    found: dict[fx.Node, fx.Node] = {}
    for back in copied_back(graph):
        argument, update = back.args[:2]
        is_update = isinstance(update, fx.Node) and update.target in IN_PLACE and update.args[0] is argument
        if is_update and _is_alike(argument, update) and _is_free(argument, update, back, order):
            found[update] = back
    return found


def copied_back(graph: fx.Graph) -> Iterator[fx.Node]:
    """The nodes that copy something to an argument."""
    for node in graph.nodes:
        if node.target is aten.copy_.default and getattr(node.args[0], "op", "") == "placeholder":
            yield node


def _is_alike(argument: fx.Node, update: fx.Node) -> bool:
    """Whether an update is of the shape and dtype of what it updates."""
    one, other = argument.meta.get("val"), update.meta.get("val")
    return one is not None and other is not None and one.shape == other.shape and one.dtype == other.dtype


def _is_free(argument: fx.Node, update: fx.Node, back: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Whether nothing reads an argument as it was, from the update on, and no result of its own shows the update."""
    if leaves(update, back):
        return False
    return all(order[reader] < order[update] for reader in _readers(argument) - {update, back})


def _readers(value: fx.Node) -> set[fx.Node]:
    """What reads memory of a value, through views too."""
    waiting, seen = [value], set[fx.Node]()
    while waiting:
        fresh = [user for user in waiting.pop().users if user not in seen]
        seen.update(fresh)
        waiting += [user for user in fresh if _shows(user)]
    return seen


def leaves(value: fx.Node, back: fx.Node | None = None) -> bool:
    """Whether memory of a value is given as a result, by itself or through views, but for the copy of it, `back`."""
    waiting, seen = [value], {value, back}
    while waiting:
        for user in waiting.pop().users:
            if user.op == "output":
                return True
            if user not in seen and _shows(user):
                seen.add(user)
                waiting.append(user)
    return False


def changed(graph: fx.Graph) -> frozenset[int]:
    """The places of the arguments that calls in a graph change, by themselves or through views."""
    found = memory_of((each for node in graph.nodes if may_change(node) for each in node.all_input_nodes), _shows)
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    return frozenset(at for at, node in enumerate(arguments) if node in found)


def _shows(node: fx.Node) -> bool:
    """Whether a node may give memory of what it reads: what noyau's own kernels give is new."""
    return not isinstance(node.target, DeviceCall) and shows(node)
