"""A part of a model as a model of its own: to time it, or to evaluate a node that noyau does not know."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import GraphError
from noyau.frontends.onnx_messages import reads
from noyau.hosts.onnxruntime.function_bodies import ModelValues, ValueType, recompute, used_functions
from noyau.hosts.onnxruntime.write_back import value_info

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

Types = Mapping[str, ValueType]  # by the names of values
_IR_OF_LOOSE_INITIALIZERS, _IR_OF_FUNCTIONS = 4, 8


def extract(
    model: ModelProto, nodes: Sequence[int], inputs: Sequence[str], outputs: Sequence[str], types: Types | None = None
) -> ModelProto:
    """The nodes at some positions as a model with these inputs and outputs.

    It includes the initializers that it reads, unless they are among the inputs, external ones by reference, so that
    such a model must lie in the original's folder; and constants, shape arithmetic and the functions that it calls.
    `types` precede the model's declarations. GraphError where a node reads any other value, or an input has no type.
    """
    values = ModelValues.of(model)
    positions, initializers = _closure(values, model.graph, nodes, inputs)
    names = {name for position in positions for name in values.nodes[position].output}
    if lost := [name for name in outputs if name not in names]:
        raise GraphError(f"the part does not make its output {lost[0]!r}")
    result = type(model)()
    result.producer_name = "noyau"
    result.opset_import.extend(model.opset_import)
    result.functions.extend(used_functions([values.nodes[position] for position in positions], model))
    result.ir_version = max(model.ir_version, _IR_OF_FUNCTIONS if result.functions else _IR_OF_LOOSE_INITIALIZERS)
    result.graph.name = "part"
    result.graph.node.extend(values.nodes[position] for position in sorted(positions))
    result.graph.initializer.extend(each for each in model.graph.initializer if each.name in initializers)
    sparse = [each for each in model.graph.sparse_initializer if each.values.name in initializers]
    result.graph.sparse_initializer.extend(sparse)
    _write_ends(result.graph, model.graph, inputs, outputs, types or {})
    names -= {*inputs, *outputs}
    result.graph.value_info.extend(each for each in model.graph.value_info if each.name in names)
    return result


def _closure(
    values: ModelValues, graph: GraphProto, nodes: Sequence[int], inputs: Sequence[str]
) -> tuple[set[int], set[str]]:
    """All node positions and the initializers that the part needs."""
    stored = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    positions, initializers = set(nodes), set[str]()
    names = set(inputs).union(*(values.nodes[position].output for position in nodes))
    for name in sorted(_reads_of(values, nodes) - names):
        origin = None if name in stored else recompute(name, values, names | stored, math.inf)
        if name in stored:
            initializers.add(name)
        elif origin is not None:
            positions |= origin[0]
            initializers |= (_reads_of(values, origin[0]) & stored) - set(inputs)
        else:
            raise GraphError(f"the part reads {name!r}, which is not among its inputs")
    return positions, initializers


def _reads_of(values: ModelValues, positions: Iterable[int]) -> set[str]:
    return set[str]().union(*(reads(values.nodes[position]) for position in positions))


def _write_ends(
    graph: GraphProto, original: GraphProto, inputs: Sequence[str], outputs: Sequence[str], types: Types
) -> None:
    """Write the inputs and outputs with their types; onnxruntime infers the type of an output that has none."""
    from onnx import helper

    fields = {value.name: value for value in (*original.value_info, *original.output, *original.input)}
    stored = {tensor.name: tensor for tensor in original.initializer}
    types = {name: kind for name, kind in types.items() if kind.dtype is not DType.OTHER}
    for name in inputs:
        if name in types:
            graph.input.append(value_info(original, name, types[name]))
        elif name in fields and fields[name].HasField("type"):
            graph.input.append(fields[name])
        elif name in stored:
            tensor = stored[name]
            graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
        else:
            raise GraphError(f"the type of the input {name!r} is not known; give it in `types`")
    for name in outputs:
        if name in types:
            graph.output.append(value_info(original, name, types[name]))
        elif name in fields:
            graph.output.append(fields[name])
        else:
            graph.output.add(name=name)


def types_of(arrays: Mapping[str, np.ndarray]) -> dict[str, ValueType]:
    """The types of some arrays, with open extents; arrays of dtypes that noyau lacks are left out."""
    return {name: ValueType(dtype, (None,) * a.ndim) for name, a in arrays.items() if (dtype := from_numpy(a.dtype))}


def part_for(model: ModelProto, wanted: Iterable[str], entries: Types | None = None) -> ModelProto:
    """The nodes that compute some values as a model, with these outputs and the inputs and `entries` that they need."""
    graph, entries = model.graph, entries or {}
    makers = {name: at for at, node in enumerate(graph.node) for name in node.output if name and name not in entries}
    names = [name for name in dict.fromkeys(wanted) if name in makers]
    needed, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += reads(graph.node[makers[name]]) if name in makers else ()
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value.name for value in graph.input if value.name in needed - stored]
    inputs += [name for name in entries if name in needed]
    return extract(model, sorted({makers[name] for name in needed & makers.keys()}), inputs, names, entries)


def lost_values(
    model: ModelProto, without: Collection[int], absent: Iterable[str], entries: Collection[str] = ()
) -> set[str]:
    """The `absent` values, and those that need one of them or a node at a position in `without`; none of `entries`."""
    lost = set(absent)
    for position, node in enumerate(model.graph.node):
        if position in without or not lost.isdisjoint(reads(node)):
            lost.update(name for name in node.output if name and name not in entries)
    return lost
