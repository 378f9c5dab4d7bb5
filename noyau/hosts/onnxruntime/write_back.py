"""Fused nodes put back into the model they came from; what no part covers stays as it was.

A fused node is an operator of the domain "noyau" and a model-local function of the same name, whose body is the
original subgraph: with the library onnxruntime runs the kernel, without it the body.

Planned kernels put into a model: their nodes, and the library that onnxruntime loads.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.codegen.plan import Plan, Planned, without
from noyau.compiler.partition.cut import Group
from noyau.dtypes import DType
from noyau.errors import GraphError, ModelError
from noyau.hosts.onnxruntime import function_bodies
from noyau.hosts.onnxruntime.custom_ops import IDENTIFIER, cached_library
from noyau.ir.graph import Node
from noyau.toolchain.c import compiler as c_compiler

if TYPE_CHECKING:
    import onnx


_FUNCTIONS_SINCE = 8  # the first IR version with model-local functions


def refusals(
    model: onnx.ModelProto, fused: Sequence[function_bodies.FusedNode], folder: Path | None = None
) -> dict[int, str]:
    """The parts that `write_back` would refuse, by their places in `fused`, each with the reason."""
    values = function_bodies.ModelValues.of(model, folder)
    used = _used_operators(model, fused)
    by_name: dict[int, str] = {}
    for place, part in enumerate(fused):
        reason = _name_refusal(part, used) or function_bodies.refusal(part, values)
        if reason:
            by_name[place] = reason
    right = [place for place in range(len(fused)) if place not in by_name]
    by_name |= _twice_made(fused, right)
    bodies = {place: function_bodies.body_of(fused[place], values) for place in right if place not in by_name}
    chosen = _chosen({place: fused[place].operator for place in bodies}, bodies)
    for place, body in bodies.items():
        if not _fits(body, bodies[chosen[fused[place].operator]]):
            by_name[place] = (
                "another place of its operator reads other values from outside, so they cannot share a body"
            )
    return by_name


def write_back(
    model: onnx.ModelProto, fused: Sequence[function_bodies.FusedNode], folder: Path | None = None
) -> onnx.ModelProto:
    """The model with one node in place of each part; `model` itself is unchanged.

    A covered node whose results something outside still reads stays beside the fused node. Constants and shape
    arithmetic that lose their last reader go. `folder` is where the model's external data lies: onnxruntime wants small
    constants of a body in the body. GraphError where a part cannot become a node (see `refusals`).
    """
    for place, reason in sorted(refusals(model, fused, folder).items()):
        raise GraphError(f"{fused[place].operator!r} cannot be put back into the model: {reason}")
    values = function_bodies.ModelValues.of(model, folder)
    bodies = {place: function_bodies.body_of(part, values) for place, part in enumerate(fused)}
    chosen = _chosen({place: part.operator for place, part in enumerate(fused)}, bodies)
    extras = [bodies[place].extras if bodies[chosen[part.operator]].extras else () for place, part in enumerate(fused)]
    result = type(model)()
    result.CopyFrom(model)
    if fused:
        _replace_nodes(result, model, fused, extras)
        _add_functions(result, {name: bodies[place] for name, place in chosen.items()})
    return result


def _name_refusal(part: function_bodies.FusedNode, names: set[str]) -> str | None:
    if not IDENTIFIER.fullmatch(part.operator):
        return "its operator's name is not made of letters, digits and _"
    return "the model has an operator of this name already" if part.operator in names else None


def _used_operators(model: onnx.ModelProto, fused: Sequence[function_bodies.FusedNode]) -> set[str]:
    """The operators of noyau's domain that no part covers."""
    covered = {position for part in fused for position in part.nodes}
    rest = [node for position, node in enumerate(model.graph.node) if position not in covered]
    rest += [node for function in model.functions for node in function.node]
    return {node.op_type for node in function_bodies.every_node(rest) if node.domain == function_bodies.DOMAIN}


def _twice_made(fused: Sequence[function_bodies.FusedNode], right: Iterable[int]) -> dict[int, str]:
    """The parts with an output that an earlier one gives already."""
    result: set[str] = set()
    by_name: dict[int, str] = {}
    for place in right:
        double = result.intersection(fused[place].outputs)
        if double:
            by_name[place] = f"another operator gives {min(double)!r} already"
        result.update(fused[place].outputs)
    return by_name


def _chosen(operators: Mapping[int, str], bodies: Mapping[int, function_bodies.FunctionBody]) -> dict[str, int]:
    """The place whose body each operator's function has: the first that reads what the kernel reads, or the first."""
    chosen: dict[str, int] = {}
    for place, operator in operators.items():
        if operator not in chosen or (bodies[chosen[operator]].extras and not bodies[place].extras):
            chosen[operator] = place
    return chosen


def _fits(body: function_bodies.FunctionBody, chosen: function_bodies.FunctionBody) -> bool:
    """Whether a place can call the function of another: it has the same inputs, and the extras where there are any."""
    alike = len(body.inputs) == len(chosen.inputs) and len(body.outputs) == len(chosen.outputs)
    return alike and (not chosen.extras or body is chosen or function_bodies.same_text(body, chosen))


def _replace_nodes(
    result: onnx.ModelProto,
    model: onnx.ModelProto,
    fused: Sequence[function_bodies.FusedNode],
    extras: Sequence[tuple[str, ...]],
) -> None:
    graph = model.graph
    covered = {position for part in fused for position in part.nodes}
    provided = {name for part in fused for name in part.outputs}
    names = {each.name for each in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer)}
    names.update(*(node.output for node in graph.node))
    nodes = [(max(part.nodes), _fused_node(part, more, graph, names)) for part, more in zip(fused, extras, strict=True)]
    count = len(nodes)
    nodes += [
        (position, _without(node, provided, names) if position in covered else node)
        for position, node in enumerate(graph.node)
    ]
    always = _live(list(graph.node), {value.name for value in graph.output})
    roots = {value.name for value in graph.output}.union(*(function_bodies.reads(node) for _, node in nodes[:count]))
    dead = [position for position, alive in enumerate(always) if not alive and position not in covered]
    roots.update(
        name
        for position in dead
        for name in (*graph.node[position].output, *function_bodies.reads(graph.node[position]))
    )
    alive = _live([node for _, node in nodes], roots)
    kept = [entry for number, entry in enumerate(nodes) if number < count or alive[number] or not any(entry[1].output)]
    _check_operators(kept, count)
    ordered = _in_order(kept)
    del result.graph.node[:]
    result.graph.node.extend(ordered)
    _drop_unread(result.graph, graph)
    _write_types(result.graph, fused)


def _check_operators(nodes: Sequence[tuple[int, onnx.NodeProto]], result: int) -> None:
    """GraphError where a node that was there before would now call the function of one of the first `made` nodes."""
    operators = {node.op_type for _, node in nodes[:result]}
    for _, node in nodes[result:]:
        if node.domain == function_bodies.DOMAIN and node.op_type in operators:
            raise GraphError(f"{node.op_type!r} cannot be put back: a node of the model has an operator of this name")


def _fused_node(
    part: function_bodies.FusedNode, extras: tuple[str, ...], graph: onnx.GraphProto, names: set[str]
) -> onnx.NodeProto:
    name = function_bodies.unused(part.operator, names)
    names.add(name)
    node = type(graph)().node.add(op_type=part.operator, domain=function_bodies.DOMAIN, name=name)
    node.input.extend((*part.inputs, *extras))
    node.output.extend(part.outputs)
    return node


def _without(node: onnx.NodeProto, provided: set[str], names: set[str]) -> onnx.NodeProto:
    """The node with other names for the outputs that a fused node gives."""
    if provided.isdisjoint(node.output):
        return node
    copy = type(node)()
    copy.CopyFrom(node)
    for number, name in enumerate(node.output):
        if name in provided:
            copy.output[number] = function_bodies.unused(f"{name}_unread", names)
            names.add(copy.output[number])
    return copy


def _live(nodes: Sequence[onnx.NodeProto], roots: Iterable[str]) -> list[bool]:
    """For each node, whether one of the values `roots` needs it."""
    producers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    alive, pending = [False] * len(nodes), list(roots)
    while pending:
        number = producers.get(pending.pop())
        if number is not None and not alive[number]:
            alive[number] = True
            pending.extend(function_bodies.reads(nodes[number]))
    return alive


def _in_order(nodes: Sequence[tuple[int, onnx.NodeProto]]) -> list[onnx.NodeProto]:
    """The nodes, producers before readers, otherwise by their positions. GraphError where a part is not convex."""
    producers = {name: number for number, (_, node) in enumerate(nodes) for name in node.output if name}
    needs = [{producers[name] for name in function_bodies.reads(node) if name in producers} for _, node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for number, needed in enumerate(needs):
        for producer in needed:
            readers[producer].append(number)
    missing = [len(needed) for needed in needs]
    ready = [(nodes[number][0], number) for number, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, number = heapq.heappop(ready)
        ordered.append(nodes[number][1])
        for reader in readers[number]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, (nodes[reader][0], reader))
    if len(ordered) < len(nodes):
        stuck = [node for number, (_, node) in enumerate(nodes) if missing[number]]
        fused = next((node for node in stuck if node.domain == function_bodies.DOMAIN), None)
        if fused is None:
            raise ModelError(f"the model has a cycle through a node of type {stuck[0].op_type!r}")
        raise GraphError(f"{fused.op_type!r} cannot be put back: a path leaves it and comes back to it")
    return ordered


def _drop_unread(graph: onnx.GraphProto, before: onnx.GraphProto) -> None:
    """Remove the initializers and types that only nodes which are gone have used."""
    was_read = {name for node in before.node for name in function_bodies.reads(node)}
    was_made = {name for node in before.node for name in node.output}
    kept = {value.name for value in (*graph.output, *graph.input)}
    kept.update(name for node in graph.node for name in function_bodies.reads(node))
    names = {name for node in graph.node for name in node.output}
    unread, unmade = was_read - kept, was_made - names
    function_bodies.drop(graph.initializer, lambda tensor: tensor.name in unread)
    function_bodies.drop(graph.value_info, lambda value: value.name in unmade)


def _write_types(graph: onnx.GraphProto, fused: Sequence[function_bodies.FusedNode]) -> None:
    typed = {value.name for value in (*graph.output, *graph.value_info) if value.HasField("type")}
    for part in fused:
        for name, kind in zip(part.outputs, part.output_types, strict=False):
            if name not in typed and kind.dtype is not DType.OTHER:
                graph.value_info.append(value_info(graph, name, kind))


def value_info(graph: onnx.GraphProto, name: str, kind: function_bodies.ValueType) -> onnx.ValueInfoProto:
    """A value's type as a message of the same kind as those of `graph`."""
    value = type(graph)().value_info.add(name=name)
    value.type.tensor_type.elem_type = kind.dtype.onnx
    value.type.tensor_type.shape.SetInParent()
    for dim in kind.shape:
        entry = value.type.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif dim is not None:
            entry.dim_param = dim
    return value


def _add_functions(result: onnx.ModelProto, bodies: Mapping[str, function_bodies.FunctionBody]) -> None:
    """Add one function an operator; one of the same name that nothing uses any more makes room for it."""
    function_bodies.drop(
        result.functions, lambda function: function.domain == function_bodies.DOMAIN and function.name in bodies
    )
    for operator, body in bodies.items():
        result.functions.append(function_bodies.function_of(body, operator, result, function_bodies.clean()))
    if not any(entry.domain == function_bodies.DOMAIN for entry in result.opset_import):
        result.opset_import.add(domain=function_bodies.DOMAIN, version=1)
    result.ir_version = max(result.ir_version, _FUNCTIONS_SINCE)


def put_back(model: onnx.ModelProto, kernels: Iterable[Planned], folder: Path) -> onnx.ModelProto:
    """The model with a node in each place of each kernel; `folder` is where its external data lies."""
    kernels = list(kernels)
    return write_back(redirect_shape_reads(model, kernels), fused_of(kernels), folder)


def installable(plan: Plan, model: onnx.ModelProto, folder: Path) -> Plan:
    """The plan without the places that cannot become nodes of the model, which are among the refused."""
    places = [group for kernel in plan.kernels for group in kernel.groups]
    reasons = refusals(redirect_shape_reads(model, plan.kernels), fused_of(plan.kernels), folder)
    return without(plan, [(places[number], reason) for number, reason in sorted(reasons.items())])


def fused_of(kernels: Iterable[Planned]) -> list[function_bodies.FusedNode]:
    """A Fused for each place of each kernel."""
    return [fused(kernel.operator, group) for kernel in kernels for group in kernel.groups]


def fused(operator: str, group: Group) -> function_bodies.FusedNode:
    types = tuple(value_type(group.graph[name]) for name in group.outputs)
    return function_bodies.FusedNode(operator, group.positions, group.inputs, group.outputs, types)


def value_type(node: Node) -> function_bodies.ValueType:
    """The type of a value as a model writes it: extents that are neither numbers nor names are left open."""
    named = [str(dim) if str(dim) in dim.names else None for dim in node.shape]
    extents = [name if dim.constant is None else dim.constant for dim, name in zip(node.shape, named, strict=True)]
    return function_bodies.ValueType(node.dtype, tuple(extents))


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
