"""A graph of torch's as JSON and back: operators by name, arguments as data.

Nothing in it is code: operators are those of ATen and torch's primitives, arithmetic on sizes, and kernels by name."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import fx

from noyau.errors import DeviceError, ModelError, UnsupportedError
from noyau.text import printable

_PACKETS = ("aten", "prims")
_ARITHMETIC = "getitem add sub mul floordiv mod neg eq ne lt le gt ge truediv and_ or_ pow"
_PYTHON: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in _ARITHMETIC.split()},
    "sym_max": torch.sym_max,
    "sym_min": torch.sym_min,
    "trunc": math.trunc,
}
_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
_FORMATS = {str(each): each for each in (torch.contiguous_format, torch.preserve_format, torch.channels_last)}
_LAYOUTS = {"torch.strided": torch.strided}
_TABLES: Mapping[str, Mapping[str, Any]] = {"dtype": _DTYPES, "layout": _LAYOUTS, "format": _FORMATS}


def graph_to_json(graph: fx.Graph, kernels: Mapping[Any, str]) -> list[dict[str, Any]]:
    """The nodes of a graph as data; `kernels`: the names of functions that are kernels.

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
        return f"kernel.{kernels[node.target]}"
    name = str(node.target)
    if isinstance(node.target, torch._ops.OpOverload) and name.partition(".")[0] in _PACKETS:
        return name
    for spelling, function in _PYTHON.items():
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
    """A saved device; the CPU where there is no GPU. ValueError for a name of no such device, DeviceError for a GPU of
    a higher number than there are here."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name, re.ASCII):
        raise ValueError(f"{name!r} is no device")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count and int(name.partition(":")[2] or 0) >= count:
        raise DeviceError(f"the module was saved for {name}, and there are {count} GPUs here; save it for cuda:0")
    return torch.device(name if torch.cuda.is_available() else "cpu")


def graph_from_json(nodes: Any, kernels: Mapping[str, Callable[..., Any]]) -> fx.Graph:
    """The graph of some data. ModelError where the data is no graph, or has an unknown operator."""
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
            known[str(name)] = graph.placeholder(f"input_{len(known)}")
        elif op == "output":
            known[str(name)] = graph.output(args[0] if args else ())
        elif op == "call_function":
            known[str(name)] = graph.call_function(_function(target, kernels), args, kwargs)
        else:
            raise ModelError(f"{printable(str(op))} is no kind of node in a saved graph")
    if not nodes or nodes[-1].get("op") != "output":
        raise ModelError("the graph of a saved module ends with its output, and this one does not")
    return graph


def _function(target: Any, kernels: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    packet, _, rest = str(target).partition(".")
    by_name = {"kernel": kernels, "python": _PYTHON}.get(packet, {})
    if rest in by_name:
        return by_name[rest]
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
        case {"device": str(name)}:
            return device_here(name)
        case dict():
            for word, table in _TABLES.items():
                if isinstance(data.get(word), str):
                    return table[data[word]]
    raise ValueError(f"{data!r} is no argument")
