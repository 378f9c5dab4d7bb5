"""Planned kernels put into a model: their nodes, and the library that onnxruntime loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.codegen.plan import Plan, Planned, without
from noyau.compiler.partition.cut import Group
from noyau.hosts.onnxruntime.custom_ops import cached_library
from noyau.hosts.onnxruntime.function_bodies import FusedNode, ValueType
from noyau.hosts.onnxruntime.write_back import refusals, write_back
from noyau.ir.dims import Dim
from noyau.ir.graph import Node
from noyau.toolchain.c import compiler as c_compiler

if TYPE_CHECKING:
    import onnx


def put_back(model: onnx.ModelProto, kernels: Iterable[Planned], folder: Path) -> onnx.ModelProto:
    """The model with a node in each place of each kernel; `folder` is where its external data lies."""
    kernels = list(kernels)
    return write_back(redirect_shape_reads(model, kernels), fused_of(kernels), folder)


def installable(plan: Plan, model: onnx.ModelProto, folder: Path) -> Plan:
    """The plan without the places that cannot become nodes of the model, which are among the refused."""
    places = [group for kernel in plan.kernels for group in kernel.groups]
    found = refusals(redirect_shape_reads(model, plan.kernels), fused_of(plan.kernels), folder)
    return without(plan, [(places[number], reason) for number, reason in sorted(found.items())])


def fused_of(kernels: Iterable[Planned]) -> list[FusedNode]:
    """A Fused for each place of each kernel."""
    return [fused(kernel.operator, group) for kernel in kernels for group in kernel.groups]


def fused(operator: str, group: Group) -> FusedNode:
    types = tuple(value_type(group.graph[name]) for name in group.outputs)
    return FusedNode(operator, group.positions, group.inputs, group.outputs, types)


def value_type(node: Node) -> ValueType:
    """The type of a value as a model writes it: extents that are neither numbers nor names are left open."""
    return ValueType(node.dtype, tuple(_extent(dim) for dim in node.shape))


def _extent(dim: Dim) -> int | str | None:
    if dim.constant is not None:
        return dim.constant
    return str(dim) if str(dim) in dim.names else None


def redirect_shape_reads(model: onnx.ModelProto, kernels: Iterable[Planned]) -> onnx.ModelProto:
    """The model in which shape arithmetic reads no value that lives within a kernel, but one of the same shape."""
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


def library(kernels: Sequence[Planned], options: c_compiler.CompilerOptions) -> Path | None:
    """The library of these kernels, in the disk cache; None for no kernels. BuildError where it cannot be built."""
    return cached_library({kernel.operator: kernel.text for kernel in kernels}, options) if kernels else None
