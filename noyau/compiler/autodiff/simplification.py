"""Simplification of a derived gradient: equal values merged, views composed, unused values dropped."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from noyau.compiler.passes.algebra import everywhere, simplify_algebra
from noyau.compiler.passes.cleanup import compose_views, drop_unused, merge_equal
from noyau.compiler.passes.rewrite import Change, Rebuilder, rebuild, view_of
from noyau.ir.dims import Shape, index_name, indices, product
from noyau.ir.graph import Constant, Graph, Iota, Map, Node, Reduce, View, downstream


def simplify_gradient(graph: Graph, protected: Collection[str] = (), results: Collection[str] = ()) -> Graph:
    """Apply the passes until nothing changes. `protected`: gradients among the inputs; `results`: outputs to derive."""
    # `read_results` runs before unused results are dropped.
    reading = partial(read_results, protected=protected, results=results)
    rounding = partial(drop_rounding, gradients=protected, results=results)
    sharing = partial(share_divisors, protected=protected)
    changes = (reading, drop_unused, compose_views, drop_centred_sums, simplify_algebra, rounding, sharing)
    while True:
        simpler = graph
        for change in (*changes, merge_equal):
            simpler = change(simpler)
        if simpler.nodes == graph.nodes:
            return drop_unused(simpler)
        graph = simpler


def drop_centred_sums(graph: Graph) -> Graph:
    """Take 0 for a sum of x - mean(x) over the axes of the mean: the sum of x times 0, NaN where that is not finite."""

    def change(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
        centred = rebuilder.nodes[node.inputs[0]] if isinstance(node.kind, Reduce) else node
        if not isinstance(node.kind, Reduce) or node.kind.monoid != "sum" or centred.kind != Map("subtract"):
            return (node,)
        ((total, index), (count, _)) = _quotient(rebuilder, centred.inputs[1]) or ((node.output, ()), (node.output, ()))
        axes, shape, mean = node.kind.axes, centred.shape, rebuilder.nodes.get(total, node)
        own = tuple(dim for axis, dim in enumerate(indices(len(shape))) if axis not in axes)
        if (mean.kind, mean.inputs, index) != (node.kind, centred.inputs[:1], own):
            return (node,)
        number, extent = rebuilder.nodes[count].kind, product(shape[axis] for axis in axes)
        is_all = isinstance(number, Iota) and number.index == extent
        if not is_all and not (isinstance(number, Constant) and number.value == extent.constant):
            return (node,)
        zeros = everywhere(rebuilder, 0.0, node)
        return (*zeros, replace(node, kind=Map("multiply"), inputs=(total, zeros[-1].output)))

    return rebuild(graph, change)


def drop_rounding(graph: Graph, gradients: Collection[str], results: Collection[str]) -> Graph:
    """Remove casts of gradients to a half type and back where nothing else reads the value between: the program has no
    such cast, and an evaluation step by step is more exact without it. `results` stay."""
    back = downstream(graph, gradients)
    readers = Counter([name for node in graph.nodes for name in node.inputs] + list(graph.outputs))

    def change(node: Node, rebuilder: Rebuilder) -> Change:
        if node.kind != Map("cast"):
            return (node,)
        inner = rebuilder.nodes[node.inputs[0]]
        alone = inner.output in back and readers[inner.output] == 1 and inner.output not in results
        if inner.kind != Map("cast") or not alone or inner.dtype.compute is inner.dtype:
            return (node,)
        whole = rebuilder.nodes[inner.inputs[0]]
        return whole.output if whole.dtype is node.dtype is inner.dtype.compute else (node,)

    return rebuild(graph, change)


def share_divisors(graph: Graph, protected: Collection[str]) -> Graph:
    """a / s - b / s as (a - b) / s; (a / s) * b as a * y where y = b / s exists: softmax needs only its result."""
    back = downstream(graph, protected)

    def change(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
        if node.output in back and node.kind in (Map("add"), Map("subtract")):
            return _one_quotient(node, rebuilder)
        return _by_quotient(node, rebuilder, back) if node.output in back and node.kind == Map("multiply") else (node,)

    return rebuild(graph, change)


def read_results(graph: Graph, protected: Collection[str], results: Collection[str]) -> Graph:
    """Read a quotient of reductions, such as softmax, from the result that rounds it to a half type, where gradients
    are only multiplied with it: the result exists anyway, and recomputing the quotient would take its argument and all
    reductions. A product is as exact as the rounded value; a difference, such as 1 - y, is not."""
    back = downstream(graph, protected)
    reduced = downstream(graph, {node.output for node in graph.nodes if isinstance(node.kind, Reduce)})
    casts = [node for node in graph.nodes if node.kind == Map("cast") and node.output in results]
    pairs = ((graph[cast.inputs[0]], cast) for cast in casts if cast.dtype.compute is graph[cast.inputs[0]].dtype)
    quotients = ((node, cast) for node, cast in pairs if node.kind == Map("divide"))
    # Quotients of values derived from reductions, each with its cast to a half
    rounded = {node.output: cast for node, cast in quotients if node.inputs[0] in reduced - back}
    for node in graph.nodes:
        if node.output in back and node.kind != Map("multiply"):
            rounded = {name: cast for name, cast in rounded.items() if name not in node.inputs}

    def change(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
        read = [name for name in dict.fromkeys(node.inputs) if name in rounded and node.output in back]
        wide = {name: rebuilder.fresh(node.output) for name in read}
        casts = [replace(node, output=wide[name], kind=Map("cast"), inputs=(rounded[name].output,)) for name in read]
        return (*casts, replace(node, inputs=tuple(wide.get(name, name) for name in node.inputs)))

    return rebuild(graph, change)


def _one_quotient(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
    """A sum of quotients by one value as one quotient."""
    left, right = (_quotient(rebuilder, name) for name in node.inputs)
    if left is None or right is None or left[1] != right[1]:
        return (node,)
    one, other, divisor = (
        replace(node, output=rebuilder.fresh(node.output), kind=View(index), inputs=(name,))
        for name, index in (left[0], right[0], left[1])
    )
    total = replace(node, output=rebuilder.fresh(node.output), inputs=(one.output, other.output))
    return (one, other, divisor, total, replace(node, kind=Map("divide"), inputs=(total.output, divisor.output)))


ViewedValue = tuple[str, Shape]  # a value, and the index at which it is read


def _quotient(rebuilder: Rebuilder, name: str) -> tuple[ViewedValue, ViewedValue] | None:
    """Find dividend and divisor of a value that is a quotient, seen through a view."""
    (source, index), node = view_of(rebuilder.nodes, name), rebuilder.nodes[name]
    quotient = rebuilder.nodes[source]
    if quotient.kind != Map("divide") or not node.dtype.is_float:
        return None
    here = {index_name(axis): dim for axis, dim in enumerate(index)}
    parts = [view_of(rebuilder.nodes, each) for each in quotient.inputs]
    above, below = ((value, tuple(dim.replace(here) for dim in at)) for value, at in parts)
    return above, below


def _by_quotient(node: Node, rebuilder: Rebuilder, back: Collection[str]) -> Iterable[Node]:
    """(a / s) * b as a * (b / s) if b / s exists."""
    for this, other in (node.inputs, node.inputs[::-1]):
        quotient = rebuilder.nodes[this]
        if quotient.kind == Map("divide") and this in back and node.dtype.is_float:
            for earlier in rebuilder.nodes.values() if other not in back else ():
                if earlier.kind == quotient.kind and earlier.inputs == (other, quotient.inputs[1]):
                    return (replace(node, inputs=(quotient.inputs[0], earlier.output)),)
    return (node,)
