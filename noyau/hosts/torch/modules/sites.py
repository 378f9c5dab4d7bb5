"""A graph of ATen operators as the partition sees it: torch's nodes are its places.

A part of a graph of torch's as a graph of its own, and tensors to run it with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from noyau.compiler.partition.cut import (
    Cut,
    Group,
    Model,
    ModelOperator,
    Partition,
    Speller,
    group_of,
    partition,
    with_kernel,
    worth,
)
from noyau.compiler.partition.sites import DefUse, Positions, StructuralKey, StructuralKeys
from noyau.compiler.passes.normal_form import normalise
from noyau.errors import UnsupportedError
from noyau.frontends.torch.importer import ImportedGraph, import_graph
from noyau.frontends.torch.sites import size_hint
from noyau.ir.dims import Dim, index_name
from noyau.ir.graph import Constant, Graph, Input, Node, View
from noyau.ir.sizes import bind

RESULT = "it is what the graph returns"
_LAID = "_as_laid_out"
ELSEWHERE = "it is not on the device that the graph runs on, or noyau has no kernels for modules there"
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class TracedGraph:
    """A graph of torch's and noyau's view of it: `nodes` are torch's by position, `givers` by the name of a value."""

    program: fx.Graph
    imported: ImportedGraph
    model: Model
    nodes: tuple[fx.Node, ...]
    givers: Mapping[str, fx.Node]
    device: torch.device = CPU

    @property
    def operators(self) -> tuple[str, ...]:
        """Torch's name of each operator."""
        return tuple(place.operator for place in self.model.places)


def trace_graph(program: fx.Graph) -> TracedGraph:
    """A graph whose nodes carry fake tensors. UnsupportedError where an input is no dense tensor of noyau's dtypes."""
    imported, device = import_graph(program), device_of(program)
    candidates = (node for node in program.nodes if node.op in ("call_function", "output"))
    nodes = tuple(node for node in candidates if node.target is not operator.getitem)
    places = [
        ModelOperator(at, operator_name(node), tuple(_read(node, imported)), _results(node, imported))
        for at, node in enumerate(nodes)
    ]
    at = {node.name: position for position, node in enumerate(nodes) if node.op == "call_function"}
    made_at = {value: at[name] for value, name in imported.made_by.items() if name in at}
    arithmetic = frozenset(at[node.name] for node in nodes if is_size(node))
    opaque = {at[name]: reason for name, reason in imported.opaque.items() if name in at}
    for position, node in enumerate(nodes):
        reason = _apart(node, device)
        if reason:
            opaque[position] = reason
    demands = {at[name]: each for name, each in imported.demands.items() if name in at and each}
    givers = {value: node for node in program.nodes for value in imported.results.get(node.name, ())[:2]}
    givers = {value: node for value, node in givers.items() if imported.results[node.name] == (value,)}
    model = Model(imported.graph, places, made_at, arithmetic, opaque, demands)
    return TracedGraph(program, imported, model, nodes, givers, device)


def device_of(program: fx.Graph) -> torch.device:
    """The GPU that the tensors of a graph are on, the first of several; the CPU where there is none."""
    results = [node.meta.get("val") for node in program.nodes if node.op == "placeholder"]
    results += [node.meta.get("val") for node in program.nodes if node.op == "call_function"]
    gpus = (each.device for each in results if isinstance(each, torch.Tensor) and each.device.type == "cuda")
    return next(gpus, CPU)


def cut(source: TracedGraph, speller: Speller | None = None, *, reasons: bool = True) -> Partition:
    """The groups that are worth a kernel, which writes each value as torch would lay it out. What only shows a value in
    another way stays torch's: there it is free. `speller`, `reasons`: as `partition` takes them."""
    result = partition(source.model, speller=speller, reasons=reasons)
    groups, cuts, laying = list[Group](), list(result.cuts), _Laying(source, DefUse(source.model))
    for group in result.groups:
        positions = trimmed(source, frozenset(group.positions), laying.def_use)
        reason = "torch shows a value in another way, which is free"
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
    """Groups as torch lays them out; one that is like another is made after that."""

    def __init__(self, source: TracedGraph, def_use: DefUse) -> None:
        self.source, self.def_use, self.structural_keys = source, def_use, StructuralKeys(def_use)
        self.groups: dict[Hashable, tuple[StructuralKey, Group]] = {}

    def group(self, positions: Positions, whole: Group) -> Group | None:
        """The group of what is left of one, None where it is not worth a kernel. UnsupportedError for no group."""
        match = self.structural_keys.key_of(positions)
        orders = [order_of(self.source.givers[name].meta["val"]) for name in self.def_use.ends(positions)[0]]
        key = match and (match.key, str(orders))
        if match and key in self.groups:
            (first, group), graph = self.groups[key], self.source.model.graph
            names = dict(zip(first.names, match.names, strict=True))
            alike = group.at(
                positions, names | {memory_name(old): memory_name(new) for old, new in names.items()}, graph
            )
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
    """The group whose kernel writes its values in the order that they have in torch's memory: what reads them may
    depend on that. UnsupportedError where they are not side by side there, or no kernel writes so."""
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


def memory_name(name: str) -> str:
    """Name of a value in the order of memory."""
    return f"{name}{_LAID}"


def plain(name: str) -> str:
    """The value that something shows in the order of memory, or the name itself."""
    return name.removesuffix(_LAID)


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


def trimmed(source: TracedGraph, positions: frozenset[int], def_use: DefUse) -> frozenset[int]:
    """The positions of a group without the views at its ends, which others read or that show what others have."""
    left = set(positions)
    while True:
        gone = {position for position in left if is_view(source, position) and _is_loose(def_use, position, left)}
        if not gone:
            return frozenset(left)
        left -= gone


def _is_loose(def_use: DefUse, position: int, positions: set[int]) -> bool:
    """Whether a view at an end of a group can leave it, and something outside reads it."""
    readers = set(def_use.consumers(position))
    makers = set(def_use.producers(position))
    return bool(readers - positions) and (not readers & positions or not makers & positions)


def is_view(source: TracedGraph, position: int) -> bool:
    """Whether torch makes a view there, which takes no time."""
    target = source.nodes[position].target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return any(each.alias_info is not None and not each.alias_info.is_write for each in target._schema.returns) or (
        target in (torch.ops.aten._unsafe_view.default, torch.ops.aten.alias.default)
    )


def is_size(node: fx.Node) -> bool:
    """Whether a node makes a size, or says something of sizes, and no tensor."""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat | int | float)


def operator_name(node: fx.Node) -> str:
    """Operator of a node, in torch's words: `aten.mul.Tensor`."""
    name = str(getattr(node.target, "__name__", node.target)).replace("<built-in function ", "")
    return "the result" if node.op == "output" else name


def _read(node: fx.Node, imported: ImportedGraph) -> list[str]:
    """The values that a node reads; a size that another node makes is one."""
    results: list[str] = []
    for each in node.all_input_nodes:
        results += imported.results.get(each.name, (each.name,) if is_size(each) else ())
    return results


def _results(node: fx.Node, imported: ImportedGraph) -> tuple[str, ...]:
    if node.op == "output":
        return ()
    return imported.results.get(node.name, (node.name,) if is_size(node) else ())


def _apart(node: fx.Node, device: torch.device) -> str:
    """Why a node is in no group whatever it means, or nothing."""
    if node.op == "output":
        return RESULT
    if "val" not in node.meta:
        return "it makes no tensor"
    fakes = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    tensors = [each for fake in fakes for each in (fake if isinstance(fake, tuple | list) else [fake])]
    devices = {each.device for each in tensors if isinstance(each, torch.Tensor)}
    return ELSEWHERE if devices - {device} else ""


def isolate(source: TracedGraph, group: Group) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The nodes of a group as a module, and the nodes outside that it reads, in the order of its arguments."""
    inside = {source.nodes[position] for position in group.positions}
    inside |= {user for node in inside for user in node.users if getattr(user.target, "__name__", "") == "getitem"}
    graph, new, reads = fx.Graph(), dict[fx.Node, fx.Node](), list[fx.Node]()
    for node in source.program.nodes:
        if node in inside:
            reads += [each for each in node.all_input_nodes if each not in inside and each not in reads]
    for node in reads:
        new[node] = graph.placeholder(node.name)
        new[node].meta["val"] = node.meta["val"]
    for node in source.program.nodes:
        if node in inside:
            new[node] = graph.node_copy(node, lambda each: new[each])
    graph.output(tuple(new[source.givers[plain(name)]] for name in group.outputs))
    return fx.GraphModule({}, graph), reads


def draw(node: fx.Node) -> Any:
    """A value for a node that no group tells the use of: numbers at random, zeros for integers; a size as it was."""
    fake = node.meta["val"]
    if not isinstance(fake, torch.Tensor):
        return size_hint(fake)
    shape, strides = [size_hint(extent) for extent in fake.shape], [size_hint(stride) for stride in fake.stride()]
    tensor = torch.empty_strided(shape, strides, dtype=fake.dtype)
    return tensor.normal_() if fake.dtype.is_floating_point else tensor.zero_()


def sizes_of(group: Group, source: TracedGraph, sized: Callable[[Any], int] = size_hint) -> dict[str, int]:
    """The sizes of a group as torch saw them, or as `sized` has them. InputError where they do not fit together."""
    return sizes_in(group.original, source, sized)


def sizes_in(graph: Graph, source: TracedGraph, sized: Callable[[Any], int] = size_hint) -> dict[str, int]:
    """The sizes of a graph over values of torch's, as `sizes_of` has them."""
    inputs = [node for node in graph.inputs if node.output in source.givers]
    shapes = [[sized(extent) for extent in source.givers[node.output].meta["val"].shape] for node in inputs]
    return bind([node.shape for node in inputs], shapes, [node.output for node in inputs])
