"""Planned kernels put into a model: their nodes, and the library that onnxruntime loads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.builders import cc
from noyau.ir.dims import Dim
from noyau.ir.graph import Node
from noyau.passes.partition import Group
from noyau.planning import Planned
from noyau.runtimes.bodies import Fused, ValueType
from noyau.runtimes.onnxruntime import build_library
from noyau.runtimes.write_back import refusals, write_back

if TYPE_CHECKING:
    import onnx


def put_back(model: onnx.ModelProto, kernels: Iterable[Planned], folder: Path) -> onnx.ModelProto:
    """The model with a node in each place of each kernel; `folder` is where its external data lies."""
    kernels = list(kernels)
    return write_back(measured_elsewhere(model, kernels), fused_of(kernels), folder)


def unfit(model: onnx.ModelProto, kernels: Sequence[Planned], folder: Path) -> dict[str, str]:
    """Operators that cannot become nodes of the model, each with the reason."""
    fused = fused_of(kernels)
    found = refusals(measured_elsewhere(model, kernels), fused, folder)
    return {fused[place].operator: reason for place, reason in found.items()}


def fused_of(kernels: Iterable[Planned]) -> list[Fused]:
    """A Fused for each place of each kernel."""
    return [fused(kernel.operator, group) for kernel in kernels for group in kernel.groups]


def fused(operator: str, group: Group) -> Fused:
    types = tuple(value_type(group.graph[name]) for name in group.outputs)
    return Fused(operator, group.positions, group.inputs, group.outputs, types)


def value_type(node: Node) -> ValueType:
    """The type of a value as a model writes it: extents that are neither numbers nor names are left open."""
    return ValueType(node.dtype, tuple(_extent(dim) for dim in node.shape))


def _extent(dim: Dim) -> int | str | None:
    if dim.constant is not None:
        return dim.constant
    return str(dim) if str(dim) in dim.names else None


def measured_elsewhere(model: onnx.ModelProto, kernels: Iterable[Planned]) -> onnx.ModelProto:
    """The model in which shape arithmetic reads no value that lives within a kernel alone, but one of the same shape."""
    stand_ins: Mapping[str, str] = {
        name: other for kernel in kernels for group in kernel.groups for name, other in group.stand_ins.items()
    }
    inside = {position for kernel in kernels for group in kernel.groups for position in group.positions}
    if not stand_ins:
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for position, node in enumerate(changed.graph.node):
        if position not in inside:
            for k, name in enumerate(node.input):
                node.input[k] = stand_ins.get(name, name)
    return changed


def library(kernels: Sequence[Planned], options: cc.Options) -> Path | None:
    """The library of these kernels, in a private temporary folder; None for no kernels."""
    if not kernels:
        return None
    output = Path(tempfile.mkdtemp(prefix="noyau-")) / "kernels.so"
    build_library({kernel.operator: kernel.text for kernel in kernels}, output, options)
    return output
