"""Choice of the values that the forward graph saves for the backward one: fewest bytes, little recomputation.

Inputs and outputs are there anyway, so that they are nearly free. Maps, views and lookups are computed again from what
is saved, but for chains of maps of more than 100 flops a cell; reductions, running results, merges, matrix products
and what noyau does not look into are not. Between these it is a minimum cut, weighed in bytes: of what the backward
graph reads, the cheapest values that all of it can be computed from. Of cuts that weigh the same it is the last, from
which least is computed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace
from math import inf
from typing import assert_never

from noyau.compiler.partition.costs import cells
from noyau.compiler.passes.normal_form import bound_sizes
from noyau.ir import graph as dag
from noyau.ir.operators import OPERATORS

SOURCE, SINK = "<source", "<sink"  # no value's names: those of vertices end in < or >


class Network:
    """Vertices and how much may flow between them: Edmonds and Karp, 1972."""

    def __init__(self) -> None:
        self.room: dict[str, dict[str, float]] = {}

    def join(self, start: str, end: str, room: float) -> None:
        self.room.setdefault(start, {}).setdefault(end, 0.0)
        self.room.setdefault(end, {}).setdefault(start, 0.0)
        self.room[start][end] += room

    def before_the_last_cut(self) -> set[str]:
        """The vertices on the source's side of the cheapest cut, of several the one that is nearest to the sink."""
        while (path := self.path()) is not None:
            flow = min(self.room[a][b] for a, b in path)
            for a, b in path:
                self.room[a][b] -= flow
                self.room[b][a] += flow
        behind, waiting = {SINK}, [SINK]
        while waiting:
            end = waiting.pop()
            for start in self.room.get(end, {}):
                if start not in behind and self.room[start][end] > 0:
                    behind.add(start)
                    waiting.append(start)
        return self.room.keys() - behind

    def path(self) -> list[tuple[str, str]] | None:
        """A shortest way on which something may flow."""
        parents: dict[str, str] = {SOURCE: SOURCE}
        waiting = deque([SOURCE])
        while waiting:
            start = waiting.popleft()
            for end, room in self.room.get(start, {}).items():
                if room > 0 and end not in parents:
                    parents[end] = start
                    waiting.append(end)
        if SINK not in parents:
            return None
        way, end = list[tuple[str, str]](), SINK
        while end != SOURCE:
            way.append((parents[end], end))
            end = parents[end]
        return way


READ = 1 / 16  # what reading an input or an output costs, beside writing, holding and reading another value
EXPENSIVE = 100  # flops a cell, about what a core does while it writes and reads a float32


def split(graph: dag.Graph, gradient: dag.Graph) -> tuple[dag.Graph, tuple[str, ...], dag.Graph]:
    """The graph that saves, the values that are read again, and the graph from these to the gradients.

    `gradient` computes gradients from the inputs of `graph`, and values in it that bear names of `graph` are those."""
    gradients = {node.output for node in gradient.inputs} - {node.output for node in graph.inputs}
    back = dag.downstream(gradient, gradients)
    read = [name for node in gradient.nodes if node.output in back for name in node.inputs if name not in back]
    read += [name for name in gradient.outputs if name not in back]
    saved_names = _cut(graph, gradient, read)
    backward = _from(graph, gradient, saved_names, gradients)
    saved = tuple(node.output for node in backward.inputs if node.output not in gradients)
    ends = {*graph.outputs, *(node.output for node in graph.inputs)}
    extra = tuple(name for name in saved if name not in ends)
    return replace(graph, outputs=(*graph.outputs, *extra)), saved, backward


def _cut(graph: dag.Graph, gradient: dag.Graph, read: Iterable[str]) -> set[str]:
    """The values to save, or to read again."""
    network, expensive = Network(), _expensive(graph, gradient)
    needed, visited = list(dict.fromkeys(read)), set[str]()
    for name in needed:
        network.join(f"{name}>", SINK, inf)
    while needed:
        name = needed.pop()
        if name in visited:
            continue
        visited.add(name)
        node = gradient[name]
        network.join(f"{name}<", f"{name}>", _price(graph, node))
        if name in expensive:
            network.join(SOURCE, f"{name}<", inf)
        for operand in node.inputs:
            network.join(f"{operand}>", f"{name}<", inf)
            needed.append(operand)
    before = network.before_the_last_cut()
    return {name for name in visited if f"{name}<" in before and f"{name}>" not in before}


def _price(graph: dag.Graph, node: dag.Node) -> float:
    """Give the bytes that saving a value takes; only a value of the graph can be saved."""
    size = max(cells(node), 1.0) * node.dtype.bytes
    if isinstance(node.kind, dag.Input) or node.output in graph.outputs:
        return size * READ
    can_be = node.output in graph.by_name and not isinstance(node.kind, dag.Constant | dag.Iota | dag.View)
    return size if can_be else inf


def is_expensive(node: dag.Node) -> bool:
    """Whether a value is not computed again, for its kind."""
    match node.kind:
        case dag.Input() | dag.Reduce() | dag.Scan() | dag.Scatter() | dag.Contract() | dag.Opaque() | dag.Part():
            return True
        case dag.Map() | dag.View() | dag.Select() | dag.Gather() | dag.Constant() | dag.Iota():
            return False
        case _:
            assert_never(node.kind)


def _expensive(graph: dag.Graph, gradient: dag.Graph) -> set[str]:
    """The values of a graph that are not computed again for its gradient."""
    expensive_values, flops = set[str](), dict[str, float]()
    for node in gradient.nodes:
        own = OPERATORS[node.kind.function].flops if isinstance(node.kind, dag.Map) else 0
        flops[node.output] = own + max((flops[name] for name in node.inputs), default=0.0)
        if node.output in graph.by_name and (is_expensive(node) or flops[node.output] > EXPENSIVE):
            expensive_values.add(node.output)
            flops[node.output] = 0.0
    return expensive_values


def _from(graph: dag.Graph, gradient: dag.Graph, saved: Collection[str], gradients: Collection[str]) -> dag.Graph:
    """The graph from the values that are kept, in the order in which `graph` makes them, and from those given."""
    needed, nodes = set(gradient.outputs), list[dag.Node]()
    for node in reversed(gradient.nodes):
        if node.output in needed and node.output not in saved and node.output not in gradients:
            needed.update(node.inputs)
            nodes.append(node)
    read = [node for node in gradient.nodes if node.output in saved and node.output in needed]
    inputs = [node for node in read if isinstance(node.kind, dag.Input)]
    inputs += [replace(node, kind=dag.Input(), inputs=()) for node in read if node not in inputs]
    inputs += [node for node in gradient.inputs if node.output in gradients]
    return with_sizes(dag.Graph((*inputs, *reversed(nodes)), gradient.outputs, gradient.demands), graph)


def with_sizes(backward: dag.Graph, graph: dag.Graph) -> dag.Graph:
    """The graph with those inputs of `graph`, small ones first, whose shapes tell sizes that no other one does."""
    names = {name for node in backward.nodes for dim in dag.dims_of(node) for name in dim.names if name[:1] != "#"}
    for node in sorted(graph.inputs, key=cells):
        bound = bound_sizes(backward.inputs)
        if (
            names - bound
            and node.output not in backward.by_name
            and (bound_sizes((*backward.inputs, node)) - bound) & names
        ):
            backward = replace(backward, nodes=(node, *backward.nodes))
    return backward
