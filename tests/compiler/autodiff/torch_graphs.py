"""Graphs evaluated by torch in float64: autograd says what their gradients are, without noyau's derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from noyau.dtypes import DType
from noyau.ir.graph import Constant, Gather, Graph, Input, Kind, Map, Node, Reduce, Scan, Select, View
from noyau.ir.graph_interpreter import Evaluator, evaluate
from noyau.ir.operators import Fact, has
from tests.compiler.autodiff.test_gradient_builder_functions_torch import CALLED
from tests.compiler.autodiff.test_reductions_torch import REDUCED, RUNNING

Tensor = torch.Tensor
Arrays = Mapping[str, np.ndarray]
FIRST = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf, "logsumexp": -np.inf}


def widened(graph: Graph) -> Graph:
    """The graph with every float a float64, constants too: a rounded 2 / sqrt(pi) is another derivative."""
    nodes = [replace(node, dtype=DType.F64) if node.dtype.is_float else node for node in graph.nodes]
    return replace(graph, nodes=tuple(replace(node, kind=kind_of(node)) for node in nodes))


def kind_of(node: Node) -> Kind:
    match node.kind:
        case Constant(value) if node.dtype.is_float:
            return Constant(value.astype(np.float64))
        case _:
            return node.kind


def gradients(graph: Graph, inputs: Arrays, above: Arrays, wanted: Sequence[str], sizes: Mapping[str, int]) -> Arrays:
    """The gradient of each wanted input by torch.autograd; `above`: the gradients of the outputs."""
    whole = replace(graph, outputs=tuple(node.output for node in graph.nodes))
    known = evaluate(whole, inputs, wide=True, sizes=sizes)
    leaves = {name: torch.tensor(known[name], requires_grad=True) for name in wanted}
    values: dict[str, Tensor] = dict(leaves)
    for node in graph.nodes:
        if node.output not in leaves:
            found = value(node, [values[name] for name in node.inputs], known, Evaluator(True, sizes))
            values[node.output] = torch.as_tensor(np.array(known[node.output])) if found is None else found
    total = sum((values[name] * torch.as_tensor(each)).sum() for name, each in above.items())
    if not isinstance(total, Tensor) or not total.requires_grad:
        return {name: np.zeros(leaf.shape) for name, leaf in leaves.items()}
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {name: each.numpy() for name, each in zip(leaves, found, strict=True)}


def value(node: Node, operands: list[Tensor], known: Arrays, evaluator: Evaluator) -> Tensor | None:
    """A value by torch, or None where nothing flows through it."""
    if not node.dtype.is_float or isinstance(node.kind, Input):
        return None
    match node.kind:
        case Map("cast"):
            return operands[0] if operands[0].is_floating_point() else None
        case Map(function) if not has(function, Fact.STEPS):
            return (CALLED.get(function) or getattr(torch, function))(*operands)
        case Reduce(monoid, axes):
            kept = [axis for axis in range(operands[0].dim()) if axis not in axes]
            rows = operands[0].permute(*kept, *axes).flatten(len(kept))
            found = REDUCED.get(monoid.removesuffix("_apart"))
            return found(rows) if found and rows.numel() else None
        case Scan():
            return running(node.kind, operands[0])
        case View() | Gather() | Select():
            return moved(node, operands, known, evaluator)
        case _:
            return None


def running(kind: Scan, operand: Tensor) -> Tensor:
    rows = operand.movedim(kind.axis, -1)
    rows = rows.flip(-1) if kind.reverse else rows
    made = RUNNING[kind.monoid](rows) if rows.numel() else rows
    if kind.exclusive and rows.shape[-1]:
        made = torch.cat([torch.full_like(made[..., :1], FIRST[kind.monoid]), made[..., :-1]], -1)
    return (made.flip(-1) if kind.reverse else made).movedim(-1, kind.axis)


def moved(node: Node, operands: list[Tensor], known: Arrays, evaluator: Evaluator) -> Tensor:
    """Cells of the operands, found by where their numbers go."""
    read = operands if isinstance(node.kind, Select) else operands[:1]
    starts = np.cumsum([0, *(each.numel() for each in read)])
    numbers = [np.arange(at, at + x.numel()).reshape(x.shape) for at, x in zip(starts, read, strict=False)]
    others = [known[name] for name in node.inputs[len(read) :]]
    at = torch.as_tensor(np.array(evaluator.value(node, [*numbers, *others], {})))
    return torch.cat([each.reshape(-1) for each in read])[at.reshape(-1)].reshape(at.shape)
