"""Outputs that are but reshapes of each other: the same memory would be written twice."""

from __future__ import annotations

from itertools import combinations

from noyau.errors import UnsupportedError
from noyau.ir.dims import Shape, flat_index, index_name, indices, product
from noyau.ir.graph import Graph, View
from noyau.ir.ranges import simplify


def judge_copies(graph: Graph) -> None:
    """UnsupportedError where an output has the cells of another in the same order: a reshape of it, which costs a
    runtime nothing."""
    for one, other in combinations(graph.outputs, 2):
        if graph[one].shape != graph[other].shape and _is_reshape(graph, one, other):
            raise UnsupportedError(f"{other} would be written twice: it has the cells of {one}, in the same order")


def _is_reshape(graph: Graph, one: str, other: str) -> bool:
    (base, index), (other_base, other_index) = (_looked_at(graph, name) for name in (one, other))
    shape, target = graph[one].shape, graph[other].shape
    if base != other_base or product(shape) != product(target):
        return False
    at = {index_name(axis): dim for axis, dim in enumerate(flat_index(shape, target))}
    extents = graph[other].extents
    return all(
        simplify(dim.replace(at), extents) == simplify(wanted, extents)
        for dim, wanted in zip(index, other_index, strict=True)
    )


def _looked_at(graph: Graph, name: str) -> tuple[str, Shape]:
    """What a value is a view of, itself where it is none, and its index there."""
    node = graph[name]
    match node.kind:
        case View(index):
            return node.inputs[0], index
        case _:
            return name, indices(len(node.shape))
