"""Walks over an ONNX model's messages: subgraphs, values that a node reads, all tensors. They do not import onnx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto, TensorProto

CORE_DOMAINS = ("", "ai.onnx")


def core(domain: str) -> str:
    """The canonical name of a domain: ONNX's own operators have two names for theirs."""
    return "" if domain in CORE_DOMAINS else domain


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among the attributes of a node: the branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """All nodes, each before the nodes of its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from every_node(graph.node)


def captures(node: NodeProto) -> list[str]:
    """The outer values that the subgraphs of a node use, in order."""
    names: dict[str, None] = {}
    for graph in subgraphs(node):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        own |= {tensor.values.name for tensor in graph.sparse_initializer}
        for inner in graph.node:
            names |= dict.fromkeys(name for name in (*inner.input, *captures(inner)) if name and name not in own)
            own.update(inner.output)
        names |= dict.fromkeys(value.name for value in graph.output if value.name and value.name not in own)
    return list(names)


def reads(node: NodeProto) -> set[str]:
    """The values that a node reads, including those that its subgraphs capture."""
    return {*filter(None, node.input), *captures(node)}


def tensors_of(graph: GraphProto | FunctionProto) -> Iterator[TensorProto]:
    """Every tensor of a graph or a function, including those of its subgraphs."""
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    yield from getattr(graph, "initializer", ())  # a function has no initializers
    for attribute in attributes:
        yield from (attribute.t, *attribute.tensors)
    for sparse in (
        *getattr(graph, "sparse_initializer", ()),
        *(each for at in attributes for each in (at.sparse_tensor, *at.sparse_tensors)),
    ):
        yield from (sparse.values, sparse.indices)
    for inner in (inner for node in graph.node for inner in subgraphs(node)):
        yield from tensors_of(inner)
