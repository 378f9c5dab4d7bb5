"""A graph of ATen operators in the form that the partition takes, with torch's nodes as its places.

Also a part of a graph of torch's as a graph of its own, and tensors to run it with."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import fx

from noyau.compiler.partition.cut import Group, Model, ModelOperator
from noyau.frontends.torch.importer import ImportedGraph, import_graph
from noyau.frontends.torch.tensors import size_hint

RESULT = "it is what the graph returns"
_LAID = "_as_laid_out"
ASSERTING = torch.ops.aten.binary_cross_entropy.default  # a failed assertion ends the context of the process
ASSERTS = "torch's kernel for a GPU asserts that cells are from 0 to 1, which those of made-up inputs are not"
ELSEWHERE = "it is not on the device that the graph runs on, or noyau has no kernels for modules there"
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class TracedGraph:
    """A graph of torch's, and its import. `nodes`: torch's nodes by position; `givers`: the node of a value by name."""

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

    def values(node: fx.Node) -> tuple[str, ...]:
        """The values of a node; a size that it computes counts as one."""
        return imported.results.get(node.name, (node.name,) if is_size(node) else ())

    places = [
        ModelOperator(at, operator_name(node), tuple(chain(*map(values, node.all_input_nodes))), values(node))
        for at, node in enumerate(nodes)
    ]
    at = {node.name: position for position, node in enumerate(nodes) if node.op == "call_function"}
    made_at = {value: at[name] for value, name in imported.made_by.items() if name in at}
    arithmetic = frozenset(at[node.name] for node in nodes if is_size(node))
    opaque = {at[name]: reason for name, reason in imported.opaque.items() if name in at}
    opaque |= {position: reason for position, node in enumerate(nodes) if (reason := _apart(node, device))}
    demands = {at[name]: each for name, each in imported.demands.items() if name in at and each}
    givers = {value: node for node in program.nodes for value in imported.results.get(node.name, ())[:2]}
    givers = {value: node for value, node in givers.items() if imported.results[node.name] == (value,)}
    model = Model(imported.graph, places, made_at, arithmetic, opaque, demands)
    return TracedGraph(program, imported, model, nodes, givers, device)


def device_of(program: fx.Graph) -> torch.device:
    """The GPU that the tensors of a graph are on, the first of several; the CPU where there is none."""
    fakes = (node.meta.get("val") for op in ("placeholder", "call_function") for node in program.nodes if node.op == op)
    gpus = (each.device for each in fakes if isinstance(each, torch.Tensor) and each.device.type == "cuda")
    return next(gpus, CPU)


def memory_name(name: str) -> str:
    """Name of a value in the order of memory."""
    return f"{name}{_LAID}"


def plain(name: str) -> str:
    """The name of the value of which `memory_name` gives a name, or the name itself."""
    return name.removesuffix(_LAID)


def is_size(node: fx.Node) -> bool:
    """Whether a node computes a size, or a fact about sizes, and no tensor."""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat | int | float)


def operator_name(node: fx.Node) -> str:
    """Operator of a node, in torch's words: `aten.mul.Tensor`."""
    name = str(getattr(node.target, "__name__", node.target)).replace("<built-in function ", "")
    return "the result" if node.op == "output" else name


def _apart(node: fx.Node, device: torch.device) -> str:
    """Why a node is in no group whatever its meaning, or an empty text."""
    if node.op == "output":
        return RESULT
    if "val" not in node.meta:
        return "it makes no tensor"
    if node.target is ASSERTING and device.type == "cuda":
        return ASSERTS
    fakes = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    tensors = [each for fake in fakes for each in (fake if isinstance(fake, tuple | list) else [fake])]
    return ELSEWHERE if {each.device for each in tensors if isinstance(each, torch.Tensor)} - {device} else ""


def isolate(source: TracedGraph, group: Group) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The nodes of a group as a module, and the nodes outside that it reads, in the order of its arguments."""
    inside = {source.nodes[position] for position in group.positions}
    inside |= {user for node in inside for user in node.users if getattr(user.target, "__name__", "") == "getitem"}
    graph, new, reads = fx.Graph(), dict[fx.Node, fx.Node](), list[fx.Node]()
    for node in (node for node in source.program.nodes if node in inside):
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
    """A value for a node whose use is unknown: random numbers, zeros for integers; a size as torch saw it."""
    fake = node.meta["val"]
    if not isinstance(fake, torch.Tensor):
        return size_hint(fake)
    shape, strides = [size_hint(extent) for extent in fake.shape], [size_hint(stride) for stride in fake.stride()]
    tensor = torch.empty_strided(shape, strides, dtype=fake.dtype)
    return tensor.normal_() if fake.dtype.is_floating_point else tensor.zero_()
