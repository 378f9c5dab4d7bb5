"""Walks over the messages of an ONNX model: the graphs in a node, what it reads, every tensor. They need no onnx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto, TensorProto

CORE_DOMAINS = ("", "ai.onnx")


def core(domain: str) -> str:
    """A domain by its one name: that of ONNX's own operators has two."""
    return "" if domain in CORE_DOMAINS else domain


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among the attributes of a node: the branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, each before those of its subgraphs."""
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
    """The values that a node reads, those that its subgraphs take from outside included."""
    return {*filter(None, node.input), *captures(node)}


def tensors_of(graph: GraphProto | FunctionProto) -> Iterator[TensorProto]:
    """Every tensor that a graph or a function holds, those of its subgraphs too."""
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    yield from getattr(graph, "initializer", ())  # which a function has not
    for attribute in attributes:
        yield from (attribute.t, *attribute.tensors)
    for sparse in (
        *getattr(graph, "sparse_initializer", ()),
        *(each for at in attributes for each in (at.sparse_tensor, *at.sparse_tensors)),
    ):
        yield from (sparse.values, sparse.indices)
    for inner in (inner for node in graph.node for inner in subgraphs(node)):
        yield from tensors_of(inner)
