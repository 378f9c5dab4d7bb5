"""Kernels as operators of torch's registry: what inductor, and whatever else reads graphs, calls them by."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from noyau.builders.cache import digest
from noyau.frontends.torch.dtypes import TO_TORCH
from noyau.ir.binding import plan
from noyau.ir.graph import Graph
from noyau.passes.partition import Group
from noyau.runtimes.torch.registering import DEVICES
from noyau.torch_modules.kernels import scalars_of

_LIBRARY = torch.library.Library("noyau", "FRAGMENT")
_LOCK = threading.Lock()
_KNOWN: dict[str, Any] = {}
_DIGITS = 8


def operator_of(name: str, group: Group, kernel: Callable[..., Any]) -> Any:
    """The overload `noyau::<name>_<digest>` of a kernel in a place; the digest is of the numbers that the kernel is
    given there, so that equal places share one."""
    scalars = scalars_of(group)
    fixed = [scalars.get(node.output) for node in group.graph.inputs]
    told = ["none" if each is None else f"{each.dtype} {each.tobytes().hex()}" for each in fixed]
    called = f"{name}_{digest(*told)[:_DIGITS]}"
    with _LOCK:
        if called not in _KNOWN:
            given = [node is None for node in fixed]
            _KNOWN[called] = _registered(called, given, group.graph, kernel)
        return _KNOWN[called]


def _registered(name: str, given: Sequence[bool], graph: Graph, kernel: Callable[..., Any]) -> Any:
    count, results = sum(given), len(graph.outputs)
    made = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    _LIBRARY.define(f"{name}({', '.join(f'Tensor x{at}' for at in range(count))}) -> {made}")
    for device in DEVICES:
        _LIBRARY.impl(name, kernel, device)
    torch.library.register_fake(f"noyau::{name}", fake_of(graph, given), lib=_LIBRARY)
    return getattr(torch.ops.noyau, name).default


def fake_of(graph: Graph, given: Sequence[bool]) -> Callable[..., Any]:
    """What a kernel makes of tensors without cells: new tensors, packed, of the shapes that follow from theirs. Inputs
    that are not `given` are numbers."""
    shapes = [node.shape for node in graph.inputs]
    bindings = plan(shapes)
    places = [at for at, is_given in enumerate(given) if is_given]
    outputs = [graph[name] for name in graph.outputs]

    def fake(*tensors: torch.Tensor) -> Any:
        known = dict(zip(places, tensors, strict=True))
        sizes: dict[str, Any] = {}
        for each in bindings:
            extent = known[each.input].shape[each.axis]
            sizes[each.size] = (extent - each.offset.evaluate(sizes)) // each.factor
        made = [
            tensors[0].new_empty([dim.evaluate(sizes) for dim in node.shape], dtype=TO_TORCH[node.dtype])
            for node in outputs
        ]
        return made[0] if len(made) == 1 else tuple(made)

    return fake
