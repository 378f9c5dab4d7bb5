"""Reverse mode: the gradient of a graph as a graph, cut into what runs forward, what is saved, and what runs back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from noyau.compiler.autodiff.adjoints import Adjoints, gradient_name
from noyau.compiler.autodiff.saved_values import split
from noyau.compiler.autodiff.simplification import simplify_gradient
from noyau.errors import UnsupportedError
from noyau.ir.graph import Graph, Input, Map
from noyau.ir.graph_verifier import check


@dataclass(frozen=True, slots=True)
class Derived:
    """Gradient of a graph by some of its inputs.

    `forward`: the graph, whose outputs are followed by those of the values `saved` that are no inputs or outputs of it.
    `backward`: from what it reads of inputs, outputs and saved values, under their names, and `grad_<output>` for each
    float output, to the gradients of `wanted`, in order, of their dtypes and shapes. `saved`: what it reads besides the
    gradients. `gradient`: the same gradients from the inputs and `grad_<output>` alone: this is what is derived again.
    """

    forward: Graph
    saved: tuple[str, ...]
    backward: Graph
    gradient: Graph
    wanted: tuple[str, ...]


def derive(graph: Graph, inputs: Sequence[str]) -> Derived:
    """Derive a graph's float outputs by some inputs in reverse mode.

    A gradient that nothing reaches is 0. UnsupportedError names a value on the way that has no derivative, or an input
    that is no float."""
    graph = without_copies(graph)
    gradient = gradient_of(graph, inputs)
    forward, saved, backward = split(graph, gradient)
    return Derived(forward, saved, backward, gradient, tuple(inputs))


def gradient_of(graph: Graph, inputs: Sequence[str]) -> Graph:
    """Give the gradients of inputs as a function of all inputs and of `grad_<output>` for each float output."""
    for name in inputs:
        node = graph.by_name.get(name)
        if node is None or not isinstance(node.kind, Input):
            raise UnsupportedError(f"{name} is no input of the graph, so that it has no gradient")
        if not node.dtype.is_float:
            raise UnsupportedError(f"{name} is {node.dtype.value}: only floats have gradients")
    gradients = [gradient_name(name) for name in graph.outputs]
    return check(simplify_gradient(Adjoints(graph, inputs).run(), gradients, graph.outputs))


def without_copies(graph: Graph) -> Graph:
    """The graph in which an output that is but a copy of another value takes that one's place: it need not be saved."""
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        source = graph[node.inputs[0]] if node.kind == Map("identity") and node.output in graph.outputs else None
        if source and not isinstance(source.kind, Input) and source.output not in {*renamed, *graph.outputs}:
            renamed[source.output] = node.output
    copies = set(renamed.values())

    def now(name: str) -> str:
        return renamed.get(name, name)

    nodes = tuple(
        replace(node, output=now(node.output), inputs=tuple(map(now, node.inputs)))
        for node in graph.nodes
        if node.output not in copies
    )
    return replace(graph, nodes=nodes)
