"""The verifier of ONNX models: names, order, cycles, extents."""

import os
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from noyau.errors import ModelError
from noyau.frontends.onnx.function_bodies import inlined_sizes
from noyau.frontends.onnx.tensors import check_dims
from noyau.frontends.onnx.upgrade import OLDEST_OPSET, opset_of
from noyau.frontends.onnx_messages import captures, every_node, subgraphs
from noyau.text import printable

_MOST_INLINED = 1 << 16  # onnxruntime opens 2^15 nested ones in a minute: calls may double at each level


def verify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model; ModelError, in one line, where it is not well formed."""
    opset = opset_of(model)
    if opset < OLDEST_OPSET:
        remedy = f"export it again, or convert it: onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        raise ModelError(f"the model has opset {opset}; the oldest that noyau reads is {OLDEST_OPSET}: {remedy}")
    if (largest := max(each.version for each in model.opset_import)) >= 1 << 31:
        raise ModelError(f"the model imports version {largest} of a set of operators, which there is not")
    sizes = inlined_sizes(model.functions)
    if sum(sizes.get((node.domain, node.op_type), 1) for node in every_node(model.graph.node)) > _MOST_INLINED:
        raise ModelError(f"the functions of the model, inlined, have more than {_MOST_INLINED} nodes")
    for value in model.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.HasField("dim_value")]
        check_dims(f"the input {value.name!r}", dims)
    for tensor in model.graph.initializer:
        check_dims(f"the initializer {tensor.name!r}", list(tensor.dims))
    for sparse in model.graph.sparse_initializer:
        check_dims(f"the initializer {sparse.values.name!r}", list(sparse.dims))
    _check_text(model.graph)
    _check_names(model.graph)
    _check_order(model.graph)
    return model


def checker_fault(path: Path) -> str:
    """The fault that ONNX's own checker finds in a file, in one line, or nothing."""
    try:
        onnx.checker.check_model(os.fspath(path))
    except (onnx.checker.ValidationError, DecodeError, RuntimeError, ValueError, OSError) as error:
        return printable(" ".join(str(error).split())[:300])
    return ""


def _graph_inputs(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of the values that no node makes; initializers may be listed as inputs too."""
    sparse = (tensor.values for tensor in graph.sparse_initializer)
    yield from dict.fromkeys(value.name for value in (*graph.input, *graph.initializer, *sparse))


def _check_text(graph: onnx.GraphProto) -> None:
    """Raise ModelError for a name that is no UTF-8, which protobuf returns as bytes."""
    ends = (value.name for values in (graph.input, graph.output, graph.initializer) for value in values)
    inner = (name for node in graph.node for name in (node.op_type, node.domain, *node.input, *node.output))
    if (name := next((name for name in chain(ends, inner) if isinstance(name, bytes)), None)) is not None:
        raise ModelError(f"the name {name[:100]!r} is not UTF-8")
    for each in chain.from_iterable(map(subgraphs, graph.node)):
        _check_text(each)


def _check_names(graph: onnx.GraphProto) -> None:
    for what, values in (("input", graph.input), ("initializer", graph.initializer), ("output", graph.output)):
        name, count = max(Counter(value.name for value in values).items(), key=lambda item: item[1], default=("", 0))
        if count > 1:
            raise ModelError(f"{count} {what}s are called {name!r}")
    names = set(_graph_inputs(graph))
    if "" in names:
        raise ModelError("an input or an initializer has no name")
    for place, node in enumerate(graph.node):
        for name in node.output:
            if name in names:
                raise ModelError(f"{name!r} is made twice; the second time by {_spell(place, node)}")
            if name:
                names.add(name)


def _check_order(graph: onnx.GraphProto) -> None:
    ready = set(_graph_inputs(graph))
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    for place, node in enumerate(graph.node):
        for name in [*node.input, *captures(node)]:
            if not name or name in ready:
                continue
            uses = f"{_spell(place, node)} uses {name!r}, which"
            if name not in makers:
                raise ModelError(f"{uses} nothing makes")
            if cycle := _cycle(graph, makers):
                raise ModelError(f"the graph has a cycle through {' -> '.join(cycle)}")
            maker = _spell(makers[name], graph.node[makers[name]])
            raise ModelError(f"the nodes are not in order: {uses} {maker} makes later; sort them topologically")
        ready.update(node.output)
    absent = next((value.name for value in graph.output if value.name not in ready), None)
    if absent is not None:
        raise ModelError(f"the output {absent!r} is never made")


def _cycle(graph: onnx.GraphProto, makers: dict[str, int]) -> list[str]:
    """The nodes of one cycle as text, each before a node that it needs; empty without a cycle."""
    reads = ([*node.input, *captures(node)] for node in graph.node)
    needs = {place: {makers[name] for name in names if name in makers} for place, names in enumerate(reads)}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return [_spell(place, graph.node[place]) for place in reversed(error.args[1])]
    return []


def _spell(place: int, node: onnx.NodeProto) -> str:
    return f"{node.op_type}#{place}"
