"""Passes that tidy: equal values merged, constants folded, views composed, unused values dropped; and a check for
outputs that are reshapes of each other: the same memory would be written twice."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np

from noyau.compiler.passes.rewrite import Change, Rebuilder, rebuild, view_of
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Shape, flat_index, index_name, product
from noyau.ir.graph import Constant, Graph, Input, Iota, Map, Node, Select, View
from noyau.ir.graph import constant as constant_node
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.ranges import lowest, simplify, within


def fold_constants(graph: Graph) -> Graph:
    """Fold each Map of one-element constants, and each one-element view of one, to a constant with a name of its own:
    under the old name it would pass for a value that exists before the kernel runs."""
    return rebuild(graph, _fold)


def _fold(node: Node, rebuilder: Rebuilder) -> Change:
    operands = [value for name in node.inputs if (value := _scalar(rebuilder, name)) is not None]
    is_number = isinstance(node.kind, Iota) and node.kind.index.constant is not None
    is_known = isinstance(node.kind, Map | View) and 0 < len(operands) == len(node.inputs)
    if not (is_number or is_known) or any(dim.constant != 1 for dim in node.shape):
        return (node,)
    value = Evaluator(False, {}).value(node, operands, {}).reshape([1] * len(node.shape))
    return rebuilder.add(constant_node(rebuilder.fresh(node.output), value, node.sources))


def _scalar(rebuilder: Rebuilder, name: str) -> np.ndarray | None:
    kind = rebuilder.nodes[name].kind
    return kind.value if isinstance(kind, Constant) and kind.value.size == 1 else None


def judge_copies(graph: Graph) -> None:
    """UnsupportedError where an output has another's cells in the same order: a reshape, which is free in a runtime."""
    for one, other in combinations(graph.outputs, 2):
        if graph[one].shape != graph[other].shape and _is_reshape(graph, one, other):
            raise UnsupportedError(f"{other} would be written twice: it has the cells of {one}, in the same order")


def _is_reshape(graph: Graph, one: str, other: str) -> bool:
    (base, index), (other_base, other_index) = (view_of(graph.by_name, name) for name in (one, other))
    shape, target = graph[one].shape, graph[other].shape
    if base != other_base or product(shape) != product(target):
        return False
    at = {index_name(axis): dim for axis, dim in enumerate(flat_index(shape, target))}
    extents = graph[other].extents
    pairs = zip(index, other_index, strict=True)
    return all(simplify(dim.replace(at), extents) == simplify(expected, extents) for dim, expected in pairs)


def merge_equal(graph: Graph) -> Graph:
    """Replace each value that has the same operation and operands as an earlier one by that one."""
    earlier_by_key: dict[object, str] = {}

    def change(node: Node, rebuilder: Rebuilder) -> Change:
        if isinstance(node.kind, Input):
            return (node,)
        earlier = earlier_by_key.setdefault((node.kind, node.inputs, node.dtype, node.shape), node.output)
        return (node,) if earlier == node.output else earlier

    return rebuild(graph, change)


def drop_unused(graph: Graph, *, inputs_too: bool = False) -> Graph:
    """Remove each value that no output needs; inputs stay, unless `inputs_too`: unused ones bind no kernel's sizes."""
    needed, nodes = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if node.output in needed or (isinstance(node.kind, Input) and not inputs_too):
            needed.update(node.inputs)
            nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes)))


def compose_views(graph: Graph) -> Graph:
    """Let each view of a view, or of one piece of a Select, read the source of that, at the composed index."""
    return rebuild(graph, _compose)


def _compose(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
    while isinstance(node.kind, View):  # no recursion: a loop that appends leaves a chain of thousands
        source, index = rebuilder.nodes[node.inputs[0]], node.kind.index
        if isinstance(source.kind, View):
            here = {index_name(axis): dim for axis, dim in enumerate(index)}
            index = tuple(simplify(dim.replace(here), node.extents) for dim in source.kind.index)
            node = replace(node, kind=View(index), inputs=source.inputs)
        elif isinstance(kind := source.kind, Select) and (
            place := piece_at(index[kind.axis], kind.starts, source.shape[kind.axis], node.extents)
        ):
            kind_of_piece = View((*index[: kind.axis], place[1], *index[kind.axis + 1 :]))
            node = replace(node, kind=kind_of_piece, inputs=(source.inputs[place[0]],))
        else:
            break
    return (node,)


def piece_at(index: Dim, starts: Shape, end: Dim, extents: Mapping[str, Dim]) -> tuple[int, Dim] | None:
    """The one piece between `starts` and `end` that surely contains an index, and the place in it; None if unsure."""
    low, ends = lowest(simplify(index, extents), extents), (*starts[1:], end)
    known = [start.constant for start in starts if start.constant is not None]
    places: Iterable[int] = range(len(starts))
    if low is not None and low.constant is not None and 0 < len(known) == len(starts):
        places = (bisect_right(known, low.constant) - 1,)  # no other piece has the lowest index
    for place in places:
        at = simplify(index - starts[place], extents)
        if within(at, ends[place] - starts[place], extents):
            return place, at
    return None
