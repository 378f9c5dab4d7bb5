"""Updates of a graph's own arguments made where they lie.

AOTAutograd writes `cache.index_copy_(...)` as a copy of all of the cache, and copies that back at the end. Where
nothing reads the cache as it was any more, the update itself goes into it again.

A graph for a GPU with less to launch: equal calls are one, positions of one token are no sum, and counters go on at
the end, together.

A launch takes the host longer than a small kernel takes the GPU, so that a step of one token is as long as its calls
are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.common_values import may_change, memory_of, merge_equal, shows

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
    entries: dict[fx.Node, fx.Node] = {}
    for back in copies_back(graph):
        argument, update = back.args[:2]
        is_update = isinstance(update, fx.Node) and update.target in IN_PLACE and update.args[0] is argument
        if is_update and _has_same_layout(argument, update) and _is_free(argument, update, back, order):
            entries[update] = back
    return entries


def copies_back(graph: fx.Graph) -> Iterator[fx.Node]:
    """The nodes that copy something to an argument."""
    for node in graph.nodes:
        if node.target is aten.copy_.default and getattr(node.args[0], "op", "") == "placeholder":
            yield node


def _has_same_layout(argument: fx.Node, update: fx.Node) -> bool:
    """Whether an update is of the shape and dtype of what it updates."""
    one, other = argument.meta.get("val"), update.meta.get("val")
    return one is not None and other is not None and one.shape == other.shape and one.dtype == other.dtype


def _is_free(argument: fx.Node, update: fx.Node, back: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Whether nothing reads an argument as it was, from the update on, and no result of its own shows the update."""
    if leaves(update, back):
        return False
    return all(order[reader] < order[update] for reader in _readers(argument) - {update, back})


def _readers(value: fx.Node) -> set[fx.Node]:
    """Nodes that read memory of a value, through views too."""
    waiting, visited = [value], set[fx.Node]()
    while waiting:
        fresh = [user for user in waiting.pop().users if user not in visited]
        visited.update(fresh)
        waiting += [user for user in fresh if _shows(user)]
    return visited


def leaves(value: fx.Node, back: fx.Node | None = None) -> bool:
    """Whether memory of a value is given as a result, by itself or through views, but for the copy of it, `back`."""
    waiting, visited = [value], {value, back}
    while waiting:
        for user in waiting.pop().users:
            if user.op == "output":
                return True
            if user not in visited and _shows(user):
                visited.add(user)
                waiting.append(user)
    return False


def changed_arguments(graph: fx.Graph) -> frozenset[int]:
    """The places of the arguments that calls in a graph change, by themselves or through views."""
    found = memory_of((each for node in graph.nodes if may_change(node) for each in node.all_input_nodes), _shows)
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    return frozenset(at for at, node in enumerate(arguments) if node in found)


def _shows(node: fx.Node) -> bool:
    """Whether a node may give memory of what it reads: what noyau's own kernels give is new."""
    return not isinstance(node.target, DeviceCall) and shows(node)


def simplify(graph: fx.Graph) -> None:
    """Make all of these changes in a graph of ATen operators."""
    merge_equal(graph)
    drop_zeros(graph)
    sink_updates(graph)
    graph.lint()


def drop_zeros(graph: fx.Graph) -> None:
    """The position that is added to none, `arange(1) + begin`, is where it begins."""
    for node in list(graph.nodes):
        if node.target is aten.add.Tensor and not node.kwargs and not leaves(node):
            other = next((two for one, two in (node.args, node.args[::-1]) if _is_zero(one)), None)
            if isinstance(other, fx.Node) and _is_alike(node, other):
                node.replace_all_uses_with(_with_an_axis(graph, node, other) if _rank(other) == 0 else other)
                graph.erase_node(node)
    graph.eliminate_dead_code()


def _is_zero(value: Any) -> bool:
    """Whether a node gives the numbers from 0 up to 1."""
    if not isinstance(value, fx.Node):
        return False
    return (value.target is aten.arange.default and value.args == (1,)) or (
        value.target is aten.arange.start_step and value.args[:2] == (0, 1)
    )


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    """Whether the first is a list of one number, and the second that or the number, of one dtype on one device."""
    left, right = one.meta.get("val"), other.meta.get("val")
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or right.dim() > 1:
        return False
    kinds = {(each.dtype, each.device, each.numel()) for each in (left, right)}
    return len(kinds) == 1 and tuple(left.shape) == (1,)


def _rank(node: fx.Node) -> int:
    return int(node.meta["val"].dim())


def _with_an_axis(graph: fx.Graph, node: fx.Node, number: fx.Node) -> fx.Node:
    """A number as a list of one, before a node."""
    with graph.inserting_before(node):
        made = graph.call_function(aten.unsqueeze.default, (number, 0))
    made.meta["val"] = number.meta["val"].unsqueeze(0)
    return made


def sink_updates(graph: fx.Graph) -> None:
    """An update of an argument by a number alone, which nothing else reads, is made at the end: then it can be made
    where the argument lies."""
    for back in list(copies_back(graph)):
        argument, update = back.args[:2]
        is_update = isinstance(update, fx.Node) and update.target in IN_PLACE and update.all_input_nodes == [argument]
        if is_update and set(update.users) == {back}:
            back.prepend(update)


TOGETHER: dict[Any, Any] = {
    aten.add_.Tensor: aten._foreach_add_.Scalar,
    aten.sub_.Tensor: aten._foreach_sub_.Scalar,
    aten.mul_.Tensor: aten._foreach_mul_.Scalar,
}


def join_updates(graph: fx.Graph) -> None:
    """Updates of several arguments by the same number, which nothing reads any more, are one call, where the last of
    them is."""
    entries: dict[Any, list[fx.Node]] = {}
    for node, key in _by_number(graph):
        entries.setdefault(key, []).append(node)
    for (target, *_), nodes in entries.items():
        if len(nodes) > 1:
            with graph.inserting_after(nodes[-1]):
                graph.call_function(TOGETHER[target], ([node.args[0] for node in nodes], nodes[0].args[1]))
            for node in nodes:
                graph.erase_node(node)


def _by_number(graph: fx.Graph) -> Iterator[tuple[fx.Node, Any]]:
    for node in graph.nodes:
        if node.target in TOGETHER and not node.users and not node.kwargs and type(node.args[1]) in (int, float):
            fake, number = node.meta["val"], node.args[1]
            yield node, (node.target, fake.dtype, fake.device, type(number), repr(number))  # 0.0 and -0.0 differ
