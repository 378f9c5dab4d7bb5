"""Replacement of nodes in a graph of torch's by kernels that compute them, as operators of torch's registry.

By these operators, inductor and any other reader of graphs calls the kernels."""

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from noyau.compiler.partition.cut import Group, scalars_of
from noyau.hosts.torch.modules.groups import order_of
from noyau.hosts.torch.modules.sites import is_size
from noyau.hosts.torch.operator_registry import define, results_of_graph, schema_of
from noyau.ir.graph import Graph
from noyau.toolchain.cache import digest

_LOCK = threading.Lock()
_KNOWN: dict[str, Any] = {}
_DIGITS = 8


def operator_of(name: str, group: Group, kernel: Callable[..., Any]) -> Any:
    """The overload `noyau::<name>_<digest>` of a kernel at a place; the digest covers the numbers that the kernel gets
    there, so that equal places share one overload."""
    scalars = scalars_of(group)
    fixed = [scalars.get(node.output) for node in group.graph.inputs]
    message = ["none" if each is None else f"{each.dtype} {each.tobytes().hex()}" for each in fixed]
    names = f"{name}_{digest(*message)[:_DIGITS]}"
    with _LOCK:
        if names not in _KNOWN:
            arguments = [node is None for node in fixed]
            schema = schema_of(["Tensor"] * sum(arguments), (), len(group.graph.outputs))
            _KNOWN[names] = define(names, schema, kernel, fake_of(group.graph, arguments))
        return _KNOWN[names]


def fake_of(graph: Graph, are_tensors: Sequence[bool]) -> Callable[..., Any]:
    """The fake kernel, on tensors without cells: new tensors, packed, of the inferred shapes. Inputs of which
    `are_tensors` is false are numbers."""

    def fake(*tensors: torch.Tensor) -> Any:
        remaining = iter(tensors)
        results = results_of_graph(graph, [next(remaining) if each else None for each in are_tensors])
        return results[0] if len(results) == 1 else tuple(results)

    return fake


@dataclass(frozen=True, slots=True)
class KernelSwap:
    """A kernel at one place: the names of the nodes that it replaces, of the nodes that it reads, in order, and of the
    nodes whose values it makes, in order. `stand_ins`: from replaced nodes whose shapes are still read to nodes of the
    same shape."""

    target: Callable[..., Any]
    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def rewrite(program: fx.Graph, swaps: Sequence[KernelSwap]) -> fx.Graph:
    """The graph with calls of kernels, without nodes that nothing needs any more. Values keep their order of memory."""
    return _GraphRewriting(program, swaps).result()


class _GraphRewriting:
    """The new graph, in the order of the old one; a kernel stands with its last node, or before its first reader."""

    def __init__(self, program: fx.Graph, swaps: Sequence[KernelSwap]) -> None:
        self.program, self.graph = program, fx.Graph()
        self.by_name = {node.name: node for node in program.nodes}
        self.orders = {node.name: at for at, node in enumerate(program.nodes)}
        self.swap_of = {name: swap for swap in swaps for name in swap.nodes}
        self.last = {id(swap): max(self.orders[name] for name in swap.nodes) for swap in swaps}
        self.new: dict[fx.Node, fx.Node] = {}
        self.resolved: dict[fx.Node, fx.Node] = {}
        self.placed: set[int] = set()
        self.gone = self.within()

    def within(self) -> set[fx.Node]:
        """The nodes of sizes of values that stay in kernels, and of sizes computed from these."""
        names: set[fx.Node] = set()
        for node in filter(is_size, self.program.nodes):
            if any(each in names or self.is_inside(each) for each in node.all_input_nodes):
                names.add(node)
        return names

    def is_inside(self, node: fx.Node) -> bool:
        """Whether a value stays in a kernel, without a stand-in of its shape."""
        swap = self.swap_of.get(node.name)
        return swap is not None and node.name not in swap.makes and node.name not in swap.stand_ins

    def result(self) -> fx.Graph:
        for node in self.program.nodes:
            swap = self.swap_of.get(node.name)
            if node in self.gone:
                continue
            if swap is None and self.swap_behind(node) is None:
                self.require(node)
            elif swap is not None and self.orders[node.name] == self.last[id(swap)]:
                self.place(swap)
        self.graph.lint()
        for node in reversed(list(self.graph.nodes)):  # unread nodes are removed, but for impure ones
            if node.op == "call_function" and not node.users and not node.is_impure():
                self.graph.erase_node(node)
        return self.graph

    def swap_behind(self, node: fx.Node) -> KernelSwap | None:
        """The kernel that replaces the node from whose results a node takes one, or None."""
        source = node.args[0] if node.target is operator.getitem else None
        return self.swap_of.get(source.name) if isinstance(source, fx.Node) else None

    def require(self, node: fx.Node) -> fx.Node:
        """The node of the new graph for a node of the old one."""
        if node not in self.new:
            swap = self.swap_of.get(node.name) or self.swap_behind(node)
            if swap is not None:
                self.place(swap, node)
            else:
                for each in node.all_input_nodes:
                    self.require(self.stand_in(node, each))
                self.new[node] = self.copy(node)
        return self.new[node]

    def stand_in(self, reader: fx.Node, read: fx.Node) -> fx.Node:
        """The node that is read in the place of another: its stand-in of the same shape, if the reader is a size."""
        swap = self.swap_of.get(read.name)
        if swap is None or read.name in swap.makes or not is_size(reader):
            return read
        return self.by_name[swap.stand_ins[read.name]]

    def copy(self, node: fx.Node) -> fx.Node:
        return self.graph.node_copy(node, lambda each: self.new[self.stand_in(node, each)])

    def place(self, swap: KernelSwap, wanted: fx.Node | None = None) -> None:
        """Place the call of a kernel, behind the nodes that it reads."""
        if id(swap) in self.placed:
            assert wanted is None or wanted in self.new, f"{wanted} is made inside a kernel alone"
            return
        self.placed.add(id(swap))
        call = self.graph.call_function(swap.target, tuple(self.in_memory(self.by_name[name]) for name in swap.reads))
        fakes = [_laid(self.by_name[name].meta["val"]) for name in swap.makes]
        if len(fakes) == 1:
            call.meta["val"] = fakes[0]
            self.new[self.by_name[swap.makes[0]]] = self.restore_order(call, swap.makes[0])
            return
        call.meta["val"] = tuple(fakes)
        for at, (name, fake) in enumerate(zip(swap.makes, fakes, strict=True)):
            part = self.graph.call_function(operator.getitem, (call, at))
            part.meta["val"] = fake
            self.new[self.by_name[name]] = self.restore_order(part, name)

    def in_memory(self, node: fx.Node) -> fx.Node:
        """The node that a kernel reads for another: a copy of a view that negates, which it would not see."""
        new, fake = self.require(node), node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or not fake.is_neg():
            return new
        if node not in self.resolved:
            self.resolved[node] = self.graph.call_function(torch.ops.aten.resolve_neg.default, (new,))
            self.resolved[node].meta["val"] = torch.empty_like(fake)
        return self.resolved[node]

    def restore_order(self, result: fx.Node, name: str) -> fx.Node:
        """A view of a kernel's result, which is in the order of memory, with its axes in their own order."""
        order = order_of(self.by_name[name].meta["val"])
        if order is None:
            return result
        back = [order.index(axis) for axis in range(len(order))]
        shown = self.graph.call_function(torch.ops.aten.permute.default, (result, back))
        shown.meta["val"] = result.meta["val"].permute(back)
        return shown


def _laid(fake: torch.Tensor) -> torch.Tensor:
    """Fake result of a kernel: new, with its axes in the order of memory."""
    order = order_of(fake)
    shape = fake.shape if order is None else [fake.shape[axis] for axis in order]
    with fake.fake_mode if hasattr(fake, "fake_mode") else torch.no_grad():
        return torch.empty(shape, dtype=fake.dtype, device=fake.device)
