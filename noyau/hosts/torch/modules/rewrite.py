"""Kernels put into a graph of torch's in the place of the nodes that they compute.

Kernels as operators of torch's registry: what inductor, and whatever else reads graphs, calls them by.

Such a graph as JSON and back: operators by name, arguments as data. Nothing in such a text is code. Operators are those
of ATen and of torch's primitives, arithmetic on sizes, and kernels by name; whatever else a text names is refused.
"""

from __future__ import annotations

import math
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx

from noyau.compiler.partition.cut import Group, scalars_of
from noyau.errors import DeviceError, ModelError, UnsupportedError
from noyau.frontends.torch.sites import TO_TORCH
from noyau.hosts.torch.modules.sites import is_size, order_of
from noyau.hosts.torch.operator_registry import define, schema_of
from noyau.ir.graph import Graph
from noyau.ir.sizes import plan
from noyau.text import printable
from noyau.toolchain.cache import digest

_LOCK = threading.Lock()
_KNOWN: dict[str, Any] = {}
_DIGITS = 8


def operator_of(name: str, group: Group, kernel: Callable[..., Any]) -> Any:
    """The overload `noyau::<name>_<digest>` of a kernel in a place; the digest is of the numbers that the kernel is
    given there, so that equal places share one."""
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
    """Fake kernel, on tensors without cells: new tensors, packed, of the shapes that follow from theirs. Inputs
    of which `are_tensors` is false are numbers."""
    shapes = [node.shape for node in graph.inputs]
    bindings = plan(shapes)
    places = [at for at, is_given in enumerate(are_tensors) if is_given]
    outputs = [graph[name] for name in graph.outputs]

    def fake(*tensors: torch.Tensor) -> Any:
        known = dict(zip(places, tensors, strict=True))
        sizes: dict[str, Any] = {}
        for each in bindings:
            extent = known[each.input].shape[each.axis]
            sizes[each.size] = (extent - each.offset.evaluate(sizes)) // each.factor
        results = [
            tensors[0].new_empty([dim.evaluate(sizes) for dim in node.shape], dtype=TO_TORCH[node.dtype])
            for node in outputs
        ]
        return results[0] if len(results) == 1 else tuple(results)

    return fake


Target = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class KernelSwap:
    """A kernel in one place: the names of the nodes that it replaces, of those that it reads, in order, and of those
    whose values it makes, in order. `stand_ins`: nodes that are replaced and of which the shape is still asked for,
    and nodes of the same shape."""

    target: Target
    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def rewrite(program: fx.Graph, swaps: Sequence[KernelSwap]) -> fx.Graph:
    """The graph with calls of kernels; what nothing needs any more is gone. Values lie in memory as they did before."""
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
        """The sizes that only nodes in a kernel ask for, of values that are nowhere else, and what they make."""
        names: set[fx.Node] = set()
        for node in filter(is_size, self.program.nodes):
            if any(each in names or self.is_inside(each) for each in node.all_input_nodes):
                names.add(node)
        return names

    def is_inside(self, node: fx.Node) -> bool:
        """Whether a value stays in a kernel, and none that leaves it has its shape."""
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
        _drop_unused(self.graph)
        return self.graph

    def swap_behind(self, node: fx.Node) -> KernelSwap | None:
        """The kernel that makes what a node picks, where it picks a result of one that is replaced."""
        source = node.args[0] if node.target is operator.getitem else None
        return self.swap_of.get(source.name) if isinstance(source, fx.Node) else None

    def require(self, node: fx.Node) -> fx.Node:
        """The node of the new graph that stands for one of the old."""
        if node not in self.new:
            swap = self.swap_of.get(node.name) or self.swap_behind(node)
            if swap is not None:
                self.place(swap, node)
            else:
                for each in node.all_input_nodes:
                    self.require(self.shown(node, each))
                self.new[node] = self.copied(node)
        return self.new[node]

    def shown(self, reader: fx.Node, read: fx.Node) -> fx.Node:
        """Node that is read in the place of another: one of the same shape, where that is all that is asked for."""
        swap = self.swap_of.get(read.name)
        if swap is None or read.name in swap.makes or not is_size(reader):
            return read
        return self.by_name[swap.stand_ins[read.name]]

    def copied(self, node: fx.Node) -> fx.Node:
        return self.graph.node_copy(node, lambda each: self.new[self.shown(node, each)])

    def place(self, swap: KernelSwap, wanted: fx.Node | None = None) -> None:
        """The call of a kernel, after what it reads."""
        if id(swap) in self.placed:
            assert wanted is None or wanted in self.new, f"{wanted} is made inside a kernel alone"
            return
        self.placed.add(id(swap))
        arguments = tuple(self.in_memory(self.by_name[name]) for name in swap.reads)
        call = self.graph.call_function(swap.target, arguments)
        fakes = [_laid(self.by_name[name].meta["val"]) for name in swap.makes]
        if len(fakes) == 1:
            call.meta["val"] = fakes[0]
            self.new[self.by_name[swap.makes[0]]] = self.shown_as_before(call, swap.makes[0])
            return
        call.meta["val"] = tuple(fakes)
        for at, (name, fake) in enumerate(zip(swap.makes, fakes, strict=True)):
            part = self.graph.call_function(operator.getitem, (call, at))
            part.meta["val"] = fake
            self.new[self.by_name[name]] = self.shown_as_before(part, name)

    def in_memory(self, node: fx.Node) -> fx.Node:
        """Node that a kernel reads in the place of another: of a view that negates, which it would not see, a copy."""
        new, fake = self.require(node), node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or not fake.is_neg():
            return new
        if node not in self.resolved:
            self.resolved[node] = self.graph.call_function(torch.ops.aten.resolve_neg.default, (new,))
            self.resolved[node].meta["val"] = torch.empty_like(fake)
        return self.resolved[node]

    def shown_as_before(self, result: fx.Node, name: str) -> fx.Node:
        """View of what a kernel wrote in the order of memory, its axes in the order that they had."""
        order = order_of(self.by_name[name].meta["val"])
        if order is None:
            return result
        back = [order.index(axis) for axis in range(len(order))]
        shown = self.graph.call_function(torch.ops.aten.permute.default, (result, back))
        shown.meta["val"] = result.meta["val"].permute(back)
        return shown


def _laid(fake: torch.Tensor) -> torch.Tensor:
    """Fake result of a kernel: new, its axes in the order of memory."""
    order = order_of(fake)
    shape = fake.shape if order is None else [fake.shape[axis] for axis in order]
    with fake.fake_mode if hasattr(fake, "fake_mode") else torch.no_grad():
        return torch.empty(shape, dtype=fake.dtype, device=fake.device)


def _drop_unused(graph: fx.Graph) -> None:
    """Without the nodes that compute what nobody reads; what acts stays."""
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and not node.is_impure():
            graph.erase_node(node)


_PACKETS = ("aten", "prims")
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in "getitem add sub mul floordiv mod neg eq ne lt le gt ge truediv and_ or_ pow".split()
}
_MATH: Mapping[str, Callable[..., Any]] = {"sym_max": torch.sym_max, "sym_min": torch.sym_min, "trunc": math.trunc}
_KERNEL = "kernel"
_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
_LAYOUTS = {str(each): each for each in (torch.strided,)}
_FORMATS = {str(each): each for each in (torch.contiguous_format, torch.preserve_format, torch.channels_last)}
_TABLES: Mapping[str, Mapping[str, Any]] = {"dtype": _DTYPES, "layout": _LAYOUTS, "format": _FORMATS}


def graph_to_json(graph: fx.Graph, kernels: Mapping[Any, str]) -> list[dict[str, Any]]:
    """The nodes of a graph as data; `kernels` has the names of functions that are kernels in places.

    UnsupportedError for an operator or an argument that the format has no word for."""
    return [
        {
            "name": node.name,
            "op": node.op,
            "target": _target(node, kernels),
            "args": [_data(each) for each in node.args],
            "kwargs": {name: _data(each) for name, each in node.kwargs.items()},
        }
        for node in graph.nodes
    ]


def _target(node: fx.Node, kernels: Mapping[Any, str]) -> str:
    if node.op in ("placeholder", "output"):
        return str(node.op)
    if node.op != "call_function":
        raise UnsupportedError(f"a saved module has no {node.op} in its graph, as {node.name} is")
    if node.target in kernels:
        return f"{_KERNEL}.{kernels[node.target]}"
    name = str(node.target)
    if isinstance(node.target, torch._ops.OpOverload) and name.partition(".")[0] in _PACKETS:
        return name
    for spelling, function in {**_ARITHMETIC, **_MATH}.items():
        if node.target is function:
            return f"python.{spelling}"
    raise UnsupportedError(f"{name} cannot be saved: operators of ATen and kernels of noyau's can")


def _data(value: Any) -> Any:
    """An argument as JSON: plain values as they are, others as a pair of a word and a value."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case fx.Node():
            return {"node": value.name}
        case list() | tuple():
            return [_data(each) for each in value]
        case torch.device() if value.type in ("cpu", "cuda"):
            return {"device": str(value)}
    for word, table in _TABLES.items():
        if str(value) in table and table[str(value)] == value:
            return {word: str(value)}
    raise UnsupportedError(f"the argument {value!r} of an operator cannot be saved")


def device_here(name: str) -> torch.device:
    """A device that was saved; the CPU where there is no GPU. ValueError for a name that is no such device's,
    DeviceError for a GPU of a higher number than there are here."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name, re.ASCII):
        raise ValueError(f"{name!r} is no device")
    number, count = int(name.partition(":")[2] or 0), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count and number >= count:
        raise DeviceError(f"the module was saved for {name}, and there are {count} GPUs here; save it for cuda:0")
    return torch.device(name if torch.cuda.is_available() else "cpu")


def graph_from_json(nodes: Any, kernels: Mapping[str, Callable[..., Any]]) -> fx.Graph:
    """The graph that some data spells. ModelError where it is none, or names what is no operator."""
    graph, known = fx.Graph(), dict[str, fx.Node]()
    if not isinstance(nodes, list):
        raise ModelError("the graph of a saved module is a list of nodes, and here it is not")
    for each in nodes:
        try:
            op, target, name = each["op"], each["target"], each["name"]
            args = tuple(_value(value, known) for value in each["args"])
            kwargs = {str(word): _value(value, known) for word, value in each["kwargs"].items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelError(f"a node of the saved graph cannot be read: {printable(repr(error))}") from error
        if op == "placeholder":
            node = graph.placeholder(f"input_{len(known)}")
        elif op == "output":
            node = graph.output(args[0] if args else ())
        elif op == "call_function":
            node = graph.call_function(_function(target, kernels), args, kwargs)
        else:
            raise ModelError(f"{printable(str(op))} is no kind of node in a saved graph")
        known[str(name)] = node
    if not nodes or nodes[-1].get("op") != "output":
        raise ModelError("the graph of a saved module ends with its output, and this one does not")
    return graph


def _function(target: Any, kernels: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    packet, _, rest = str(target).partition(".")
    if packet == _KERNEL and rest in kernels:
        return kernels[rest]
    if packet == "python" and rest in {**_ARITHMETIC, **_MATH}:
        return {**_ARITHMETIC, **_MATH}[rest]
    name, _, overload = rest.rpartition(".")
    if packet in _PACKETS and name.isidentifier() and overload.isidentifier():
        overload_here = getattr(getattr(getattr(torch.ops, packet), name, None), overload, None)
        if isinstance(overload_here, torch._ops.OpOverload):
            return cast("Callable[..., Any]", overload_here)
    raise ModelError(f"the saved graph calls {printable(str(target))}, which is no operator of this torch")


def _value(data: Any, known: Mapping[str, fx.Node]) -> Any:
    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return [_value(each, known) for each in data]
        case {"node": str(name)}:
            return known[name]
        case {"float": ("inf" | "-inf" | "nan") as number}:
            return float(number)
        case {"device": str(name)} if re.fullmatch(r"cpu|cuda(:\d{1,3})?", name, re.ASCII):
            return device_here(name)
        case dict():
            for word, table in _TABLES.items():
                if isinstance(data.get(word), str):
                    return table[data[word]]
    raise ValueError(f"{data!r} is no argument")
