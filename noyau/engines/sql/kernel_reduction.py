"""A reduction that noyau derives, as three graphs that have kernels: of the rows of a chunk, of two states, of a state.
A state is the number of rows, then the parts of the folds; of no rows, the number alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from noyau.compiler.passes.rewrite import with_dims
from noyau.dtypes import DType
from noyau.engines.chunk_kernels import ChunkKernels
from noyau.engines.derived import Derived, state_dtypes
from noyau.engines.reduction import Reduction
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Graph, Input, Iota, Map, Node
from noyau.ir.sizes import bind


class KernelReduction(Reduction):
    """The reduction, for many small groups. UnsupportedError where a place among the rows is part of it."""

    def __init__(self, one: Derived) -> None:
        self.kernels = [ChunkKernels(graph, one.name, one.plan.size) for graph in graphs_of(one)]

    def zero(self) -> Any:
        return (0,)

    def step(self, state: Any, *columns: Any) -> Any:
        rows = len(columns[0])
        return self.merge(state, (rows, *self.kernels[0](columns))) if rows else state

    def merge(self, a: Any, b: Any) -> Any:
        if not a[0] or not b[0]:
            return a if a[0] else b
        return (a[0] + b[0], *self.kernels[1]((*a[1:], *b[1:])))

    def finish(self, state: Any) -> Any:
        results = self.kernels[2]((*state[1:], np.array(state[0])))
        return results[0][()] if len(results) == 1 else tuple(results)


def settled(graph: Graph, others: Mapping[str, Any], sizes: Mapping[str, int]) -> Graph:
    """The graph with arrays for the inputs that have no rows, and with numbers for sizes, those of the arrays too."""
    nodes = [node for node in graph.inputs if node.output in others]
    names = [node.output for node in nodes]
    numbers = {**bind([node.shape for node in nodes], [np.shape(others[name]) for name in names], names), **sizes}

    def change(node: Node) -> Node:
        is_known = node.output in others and isinstance(node.kind, Input)
        kind = Constant(np.asarray(others[node.output], node.dtype.numpy)) if is_known else node.kind
        return with_dims(replace(node, kind=kind), lambda dim: dim.replace(numbers))

    return replace(graph, nodes=tuple(map(change, graph.nodes)), demands=())


def graphs_of(one: Derived) -> tuple[Graph, Graph, Graph]:
    """The graphs. UnsupportedError as above."""
    if one.in_order:
        raise UnsupportedError("it looks for a place among the rows, and those of a table have no order")
    sizes = {name: size for name, size in one.sizes.items() if name != one.plan.size}
    before, after = settled(one.before.graph, one.others, sizes), settled(one.after, one.others, sizes)
    step, merge, parts, merged = GraphBuilder(before.nodes), GraphBuilder(), list[Node](), list[Node]()
    for node, monoid in one.folds:
        place = step.by_name[node.output]
        lifted = zip(monoid.lift(step, place, place), state_dtypes(node, monoid), strict=True)
        parts += [step.cast(part, dtype) for part, dtype in lifted]
    sides = [_inputs(one, before, merge, side) for side in "ab"]
    for (_, monoid), left, right in zip(one.folds, *sides, strict=True):
        merged += monoid.merge(merge, left, right)
    ends = [tuple(node.output for node in nodes) for nodes in (parts, merged)]
    return Graph(tuple(step.nodes), ends[0]), Graph(tuple(merge.nodes), ends[1]), _finish(one, before, after)


def _finish(one: Derived, before: Graph, after: Graph) -> Graph:
    build, folds = GraphBuilder(), {node.output for node, _ in one.folds}
    build.by_name |= {node.output: node for node in after.nodes}  # no fresh value has one of these names
    states, rows = _inputs(one, before, build, "state"), build.add_input("rows", DType.I64, ())
    for (node, monoid), state in zip(one.folds, states, strict=True):
        result = build.cast(monoid.finish(build, state), node.dtype)
        build.add(Node(node.output, Map("identity"), (result.output,), node.dtype, result.shape))
    for node in after.nodes:
        if node.output not in folds:
            build.add(_counted(node, one.plan.size, rows, build))
    return Graph(tuple(build.nodes), after.outputs)


def _counted(node: Node, size: str, rows: Node, build: GraphBuilder) -> Node:
    """A node that may be the number of rows, a multiple of it, or one that is larger or less by a number."""
    if not isinstance(node.kind, Iota) or size not in node.kind.index.names:
        return node
    index = node.kind.index
    start = index.replace({size: 0})
    factor = index.replace({size: 1}) - start
    if node.shape or start.constant is None or factor.constant is None or index != Dim.of(size) * factor + start:
        raise UnsupportedError(f"{node.output} is {index}: a function of SQL counts rows by factors and terms")
    scaled = build.call("multiply", rows, build.constant(factor.constant, DType.I64))
    total = build.call("add", scaled, build.constant(start.constant, DType.I64))
    return Node(node.output, Map("cast"), (total.output,), node.dtype, ())


def _inputs(one: Derived, before: Graph, build: GraphBuilder, label: str) -> list[tuple[Node, ...]]:
    """The parts of a state as inputs, fold by fold."""
    return [
        tuple(
            build.add_input(f"{label}_{node.output}_{part}", dtype, before[node.output].shape)
            for part, dtype in enumerate(state_dtypes(node, monoid))
        )
        for node, monoid in one.folds
    ]
