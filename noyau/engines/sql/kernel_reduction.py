"""A derived reduction as three graphs with kernels: step (rows of a chunk), merge (two states) and finish (a state).
A state is the number of rows, then the parts of the folds; the state of no rows is the number alone. If integers are
summed, its last part is a flag for an overflow, since sums of kernels wrap around."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from noyau.compiler.passes.algebra import products_as_sums
from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.rewrite import bind_graph
from noyau.dtypes import DType
from noyau.engines.derived import ChunkKernels, OpReduction, state_dtypes
from noyau.engines.reduction import Reduction, overflow
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Iota, Map, Node, Scatter
from noyau.ir.monoids import Monoid


class KernelReduction(Reduction):
    """A derived reduction for many small groups. UnsupportedError where its result has a position among the rows."""

    def __init__(self, one: OpReduction) -> None:
        self.kernels = [ChunkKernels(graph, one.name, one.plan.size) for graph in graphs_of(one)]
        self.sums = [node.dtype.numpy for node, monoid in one.folds if is_whole_sum(node, monoid)]

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
        *parts, has_wrapped = state[1:] if self.sums else (*state[1:], False)
        if has_wrapped:
            raise overflow(self.kernels[0].name, self.sums[0])
        results = self.kernels[2]((*parts, np.array(state[0])))
        return results[0][()] if len(results) == 1 else tuple(results)


def graphs_of(one: OpReduction) -> tuple[Graph, Graph, Graph]:
    """The graphs of step, merge and finish. UnsupportedError where a result has a position among the rows."""
    if one.in_order:
        raise UnsupportedError("it looks for a place among the rows, and those of a table have no order")
    sizes = {name: size for name, size in one.sizes.items() if name != one.plan.size}
    before, after = bind_graph(one.before.graph, one.others, sizes), bind_graph(one.after, one.others, sizes)
    graphs = _step(one, before), _merge(one, before), _finish(one, before, after)
    return products_as_sums(graphs[0]), graphs[1], products_as_sums(graphs[2])


def _step(one: OpReduction, before: Graph) -> Graph:
    build, parts, flags = GraphBuilder(before.nodes), list[Node](), list[Node]()
    for node, monoid in one.folds:
        place = build.by_name[node.output]
        lifted = zip(monoid.lift(build, place, place), state_dtypes(node, monoid), strict=True)
        parts += [build.cast(part, dtype) for part, dtype in lifted]
        if is_whole_sum(node, monoid):
            flags.append(_strays(build, place, _in_floats(build, place)))
    return drop_unused(_with_flag(build, parts, flags))


def _merge(one: OpReduction, before: Graph) -> Graph:
    build, parts, sides, flags = GraphBuilder(), list[Node](), list[Any](), list[Node]()
    is_checked = any(is_whole_sum(*fold) for fold in one.folds)
    for side in "ab":
        sides.append(_inputs(one, before, build, side))
        flags += [build.add_input(f"{side}_has_wrapped", DType.BOOL, ())] if is_checked else []
    for (node, monoid), left, right in zip(one.folds, *sides, strict=True):
        merged = monoid.merge(build, left, right)
        if is_whole_sum(node, monoid):
            wide = build.call("add", build.cast(left[0], DType.F64), build.cast(right[0], DType.F64))
            flags.append(_strays(build, merged[0], wide))
        parts += merged
    return _with_flag(build, parts, flags)


def _with_flag(build: GraphBuilder, parts: Sequence[Node], flags: Sequence[Node]) -> Graph:
    """The graph of the parts of a state, and of the flag that a sum of integers has wrapped, if there are `flags`."""
    whole = [*parts, reduce(partial(build.call, "logical_or"), flags)] if flags else parts
    return Graph(tuple(build.nodes), tuple(node.output for node in whole))


def is_whole_sum(node: Node, monoid: Monoid) -> bool:
    """Whether a fold sums integers, which may wrap around."""
    return monoid.name == "sum" and not node.dtype.is_float


def _in_floats(build: GraphBuilder, fold: Node) -> Node:
    operands = [build.by_name[name] for name in fold.inputs]
    if isinstance(fold.kind, Scatter):
        base, at, updates = operands
        return build.scatter(fold.kind.index, "sum", [build.cast(base, DType.F64), at, build.cast(updates, DType.F64)])
    return build.emit(fold.kind, [build.cast(each, DType.F64) for each in operands], DType.F64, fold.shape)


def _strays(build: GraphBuilder, total: Node, wide: Node) -> Node:
    """Whether an integer of `total` has wrapped: it differs from `wide`, the sum in floats, far beyond rounding."""
    distance = build.call("abs", build.call("subtract", wide, build.cast(total, DType.F64)))
    limit = build.constant(2.0 ** (8 * total.dtype.bytes - 2), DType.F64)
    return build.reduce("any", build.call("greater", distance, limit), range(len(total.shape)))


def _finish(one: OpReduction, before: Graph, after: Graph) -> Graph:
    build, folds = GraphBuilder(), {node.output for node, _ in one.folds}
    build.by_name |= {node.output: node for node in after.nodes}  # reserve these names
    states, rows = _inputs(one, before, build, "state"), build.add_input("rows", DType.I64, ())
    for (node, monoid), state in zip(one.folds, states, strict=True):
        result = build.cast(monoid.finish(build, state), node.dtype)
        build.add(Node(node.output, Map("identity"), (result.output,), node.dtype, result.shape))
    for node in after.nodes:
        if node.output not in folds:
            build.add(_count_rows(node, one.plan.size, rows, build))
    return Graph(tuple(build.nodes), after.outputs)


def _count_rows(node: Node, size: str, rows: Node, build: GraphBuilder) -> Node:
    """The node, computed from `rows` if it is affine in their number. UnsupportedError for another function of it."""
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


def _inputs(one: OpReduction, before: Graph, build: GraphBuilder, label: str) -> list[tuple[Node, ...]]:
    """The parts of a state as inputs, fold by fold."""
    folds = [(node.output, state_dtypes(node, monoid)) for node, monoid in one.folds]
    return [
        tuple(build.add_input(f"{label}_{name}_{part}", dtype, before[name].shape) for part, dtype in enumerate(dtypes))
        for name, dtypes in folds
    ]
