"""Fold scalar functions of known single values."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from noyau.ir.evaluation import Evaluator
from noyau.ir.graph import Constant, Graph, Iota, Map, Node, View
from noyau.ir.graph import constant as constant_node
from noyau.passes.rewriting import Rebuilder, rebuilt


def fold_constants(graph: Graph) -> Graph:
    """Each Map of one-element constants, and each view of one into one element, as a constant with a name of its own:
    under the old one it would seem to be a value that is there before the kernel runs."""
    return rebuilt(graph, _folded)


def _folded(node: Node, made: Rebuilder) -> Iterable[Node] | str:
    known = [_scalar(made, name) for name in node.inputs]
    fixed = all(dim.constant == 1 for dim in node.shape)
    match node.kind:
        case Map() | View() if known and fixed and all(value is not None for value in known):
            value = Evaluator(False, {}).value(node, [value for value in known if value is not None], {})
            return made.add(constant_node(made.fresh(node.output), value.reshape([1] * len(node.shape)), node.sources))
        case Iota(index) if fixed and index.constant is not None:
            value = Evaluator(False, {}).value(node, [], {})
            return made.add(constant_node(made.fresh(node.output), value, node.sources))
        case _:
            return (node,)


def _scalar(made: Rebuilder, name: str) -> np.ndarray | None:
    kind = made.nodes[name].kind
    return kind.value if isinstance(kind, Constant) and kind.value.size == 1 else None
