"""Tensors without cells: the arguments and the results of an operator, of sizes that may have no number yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.tensors import device_of, dtype_of
from noyau.ir.dims import Shape
from noyau.ir.graph import Graph
from noyau.ir.sizes import plan
from noyau.signatures.binding import Bound, bind
from noyau.signatures.instances import sizing_integers
from noyau.signatures.types import Signature, Value

_UNKNOWN = 7  # stands for a size that only the data will tell


def bound_of(signature: Signature, arguments: Sequence[Any], known: Mapping[str, int], label: str) -> Bound:
    """Bind tensors, whether they have cells or not; sizes that have no number yet count by those that they were
    traced with. SignatureError as for arrays."""
    sizing = sizing_integers(signature)
    pairs = zip(signature.inputs, arguments, strict=True)
    return bind(signature, [stand_in(each, exact=term.name in sizing) for term, each in pairs], known, label)


def stand_in(value: Any, *, exact: bool = False) -> Any:
    """An array of the dtype and the shape of a tensor, of one cell in memory; a number for a symbolic one. `exact`: the
    number is taken as it is, and what was traced then holds for it alone."""
    if isinstance(value, torch.Tensor):
        zero = np.zeros((), dtype_of(value).numpy)
        return np.broadcast_to(zero, tuple(number(extent) for extent in value.shape))
    if isinstance(value, torch.SymInt):
        return int(value) if exact else number(value)
    if isinstance(value, torch.SymFloat | torch.SymBool):
        return 0.5 if isinstance(value, torch.SymFloat) else False
    return value


def number(extent: Any) -> int:
    """An extent as a number: of a symbolic one, what it was traced with."""
    if isinstance(extent, torch.SymInt):
        hint = getattr(extent.node, "hint", None)
        return _UNKNOWN if hint is None else int(hint)
    return int(extent)


def results_of(bound: Bound, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """Tensors without values as an op with these arguments gives them."""
    inputs, outputs = bound.instance.inputs, bound.instance.outputs
    sizes = solve_sizes([value.shape for value in inputs], arguments)
    return [_empty(value, sizes, arguments) for value in outputs]


def results_of_graph(graph: Graph, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """Tensors without values as a graph gives them."""
    sizes = solve_sizes([node.shape for node in graph.inputs], arguments)
    nodes = [graph[name] for name in graph.outputs]
    return [_empty(Value(node.output, node.dtype, node.shape), sizes, arguments) for node in nodes]


def solve_sizes(shapes: Sequence[Shape], arguments: Sequence[Any]) -> dict[str, Any]:
    """The sizes, as they are: symbolic ones stay so, and what must be equal is asked of them."""
    extents = [tuple(each.shape) if isinstance(each, torch.Tensor) else () for each in arguments]
    sizes: dict[str, Any] = {}
    for binding in plan(shapes):
        extent = extents[binding.input][binding.axis] - binding.offset.evaluate(sizes)
        sizes[binding.size] = extent if binding.factor == 1 else extent // binding.factor
    for shape, own in zip(shapes, extents, strict=True):
        for dim, extent in zip(shape, own, strict=True):
            if dim.names <= sizes.keys():
                torch._check(dim.evaluate(sizes) == extent, lambda: "shapes do not fit the operator's signature")
    return sizes


def _empty(value: Value, sizes: Mapping[str, Any], arguments: Sequence[Any]) -> torch.Tensor:
    shape = [dim.evaluate(sizes) for dim in value.shape]
    return torch.empty(shape, dtype=TO_TORCH[value.dtype], device=device_of(arguments))
