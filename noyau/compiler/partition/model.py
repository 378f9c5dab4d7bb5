"""A model as the subject of a partition: its graph, its operators, and what they demand of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from noyau.compiler.passes.sizes import bound_sizes
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Graph, Node
from noyau.ir.sizes import Demand

Positions = frozenset[int]


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """An operator of the user's model: its position, and the values that it reads (also in its subgraphs) and makes."""

    position: int
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """Subject of a partition: the graph of a whole model, and its operators."""

    graph: Graph
    places: Sequence[ModelOperator]
    made_at: Mapping[str, int]  # value of the graph -> position of the operator that makes it
    arithmetic: frozenset[int]
    opaque: Mapping[int, str]
    demands: Mapping[int, Sequence[Demand]] = field(default_factory=dict)  # of sizes, by the operators that have them


def is_scalar(node: Node) -> bool:
    return isinstance(node.kind, Constant) and node.kind.value.size == 1


def require_bound_sizes(graph: Graph) -> Graph:
    """The graph itself; UnsupportedError where one of its operators demands something of a size that no input tells:
    the operator would look, and the kernel could not."""
    bound = bound_sizes(graph.inputs)
    for demand in graph.demands:
        if not demand.left.names | demand.right.names <= bound:
            raise UnsupportedError(f"whether {demand} does not follow from the shapes of the inputs")
    return graph
