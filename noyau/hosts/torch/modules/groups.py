"""Groups of a graph of torch's that are worth a kernel, which writes each value in torch's order of memory."""

from collections.abc import Hashable
from dataclasses import replace

import torch

from noyau.compiler.partition.cut import Cut, Group, Partition, Speller, group_of, partition, with_kernel, worth
from noyau.compiler.partition.def_use import DefUse, StructuralKey, StructuralKeys
from noyau.compiler.partition.traffic import Positions
from noyau.compiler.passes.normal_form import normalise
from noyau.errors import UnsupportedError
from noyau.frontends.torch.tensors import size_hint
from noyau.hosts.torch.modules.sites import TracedGraph, memory_name
from noyau.ir.dims import Dim, index_name
from noyau.ir.graph import Constant, Input, Node, View


def cut(source: TracedGraph, speller: Speller | None = None, *, reasons: bool = True) -> Partition:
    """The groups that are worth a kernel, which writes each value in the order of memory that torch would use. Views
    stay torch's, where they are free. `speller`, `reasons`: as in `partition`."""
    result = partition(source.model, speller=speller, reasons=reasons)
    groups, cuts, laying = list[Group](), list(result.cuts), _Laying(source, DefUse(source.model))
    for group in result.groups:
        positions = trim_views(source, frozenset(group.positions), laying.def_use)
        reason = "torch makes a view of it, which costs nothing"
        if positions:
            try:
                whole = laying.group(positions, group)
                if whole is not None:
                    groups.append(whole)
                    continue
            except UnsupportedError as error:
                reason = str(error)
        cuts += [Cut(position, None, reason) for position in group.positions]
    return Partition(tuple(groups), tuple(cuts))


class _Laying:
    """Groups in torch's order of memory; a group that equals an earlier one is derived from it."""

    def __init__(self, source: TracedGraph, def_use: DefUse) -> None:
        self.source, self.def_use, self.structural_keys = source, def_use, StructuralKeys(def_use)
        self.groups: dict[Hashable, tuple[StructuralKey, Group]] = {}

    def group(self, positions: Positions, whole: Group) -> Group | None:
        """The group of the positions left of `whole`, None if not worth a kernel. UnsupportedError for no group."""
        match = self.structural_keys.key_of(positions)
        orders = [order_of(self.source.givers[name].meta["val"]) for name in self.def_use.ends(positions)[0]]
        key = match and (match.key, str(orders))
        if match and key in self.groups:
            (first, group), graph = self.groups[key], self.source.model.graph
            names = dict(zip(first.names, match.names, strict=True))
            names |= {memory_name(old): memory_name(new) for old, new in names.items()}
            alike = group.at(positions, names, graph)
            if alike is not None:
                return alike
        if positions != frozenset(whole.positions):
            whole = group_of(self.source.model, positions, self.def_use)
        shows_inputs_alone = all(isinstance(node.kind, Input | Constant | View) for node in whole.graph.nodes)
        if not worth(positions, whole.graph) or shows_inputs_alone:
            return None
        whole = as_torch_lays_it(whole, self.source)
        if match:
            self.groups[key] = match, whole
        return whole


def as_torch_lays_it(group: Group, source: TracedGraph) -> Group:
    """The group with a kernel that writes its values in the order of torch's memory, on which readers may depend.
    UnsupportedError where they are not side by side there, or where no kernel writes so."""
    orders = {name: order_of(source.givers[name].meta["val"]) for name in group.outputs}
    if all(order is None for order in orders.values()):
        return group
    nodes, outputs = list(group.original.nodes), list[str]()
    for name in group.outputs:
        order, node = orders[name], group.original[name]
        if order is not None:
            index = tuple(Dim.of(index_name(order.index(axis))) for axis in range(len(order)))
            shape = tuple(node.shape[axis] for axis in order)
            nodes.append(Node(memory_name(name), View(index), (name,), node.dtype, shape))
        outputs.append(name if order is None else memory_name(name))
    turned = replace(group.original, nodes=tuple(nodes), outputs=tuple(outputs))
    graph = normalise(turned)
    return with_kernel(replace(group, original=replace(turned, outputs=graph.outputs), graph=graph))


def order_of(fake: torch.Tensor) -> list[int] | None:
    """The axes of a tensor from the outermost in memory to the innermost; None where that is their own order.

    UnsupportedError where its cells are not side by side."""
    if fake.is_contiguous():
        return None
    order = sorted(range(fake.dim()), key=lambda axis: (-size_hint(fake.stride(axis)), axis))
    expected = 1
    for axis in reversed(order):
        extent = size_hint(fake.shape[axis])
        if extent > 1 and size_hint(fake.stride(axis)) != expected:
            raise UnsupportedError("the cells of a value are not side by side in torch's memory")
        expected *= extent
    return order


def trim_views(source: TracedGraph, positions: frozenset[int], def_use: DefUse) -> frozenset[int]:
    """The positions of a group without the views at its ends that nodes outside read."""
    left = set(positions)
    while True:
        gone = {position for position in left if is_view(source, position) and _is_loose(def_use, position, left)}
        if not gone:
            return frozenset(left)
        left -= gone


def _is_loose(def_use: DefUse, position: int, positions: set[int]) -> bool:
    """Whether a view stands at an end of a group, and a node outside reads it."""
    readers, makers = set(def_use.consumers(position)), set(def_use.producers(position))
    return bool(readers - positions) and (not readers & positions or not makers & positions)


def is_view(source: TracedGraph, position: int) -> bool:
    """Whether torch makes a view at a position, which takes no time."""
    target = source.nodes[position].target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target in (torch.ops.aten._unsafe_view.default, torch.ops.aten.alias.default):
        return True
    return any(each.alias_info is not None and not each.alias_info.is_write for each in target._schema.returns)
