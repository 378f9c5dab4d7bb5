"""Values that jump, as a rounding, a comparison or a cast to integers does, and runs on either side of each jump."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError
from noyau.ir import graph as nodes
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.verify.floats import FORMATS, shift_ulps

Arrays = Mapping[str, np.ndarray]
SHIFTS = (0, -1, 1, -2, 2)  # ulp


def step_values(graph: nodes.Graph) -> frozenset[str]:
    """The values that depend on float inputs only through steps: roundings, comparisons, casts to integers.

    Between two jumps such a value does not depend on them at all."""
    depends = nodes.downstream(graph, [node.output for node in graph.inputs if node.dtype.is_float])
    return frozenset(depends - _smooth(graph))


def jumping(graph: nodes.Graph) -> frozenset[str]:
    """The values that jump where an operand moves with float inputs: roundings, comparisons, casts to integers."""
    smooth = _smooth(graph)
    maps = (node for node in graph.nodes if isinstance(node.kind, nodes.Map))
    jumps = (node for node in maps if (set(node.inputs) - set(_continuous(node))) & smooth)
    return frozenset(node.output for node in jumps)


def _smooth(graph: nodes.Graph) -> set[str]:
    """The values that move with float inputs, also between jumps."""
    names = {node.output for node in graph.inputs if node.dtype.is_float}
    for node in graph.nodes:
        if names.intersection(_continuous(node)):
            names.add(node.output)
    return names


def _continuous(node: nodes.Node) -> tuple[str, ...]:
    """The operands that a value follows without jumps, or between its jumps."""
    match node.kind:
        case nodes.Map("cast"):
            return node.inputs if node.dtype.is_float else ()  # to a float8 it jumps
        case nodes.Map("where"):
            return node.inputs[1:]
        case nodes.Map(function):
            return () if has(function, Fact.STEPS) or OPERATORS[function].result == "bool" else node.inputs
        case nodes.Reduce(monoid, _) | nodes.Scan(monoid, _):
            return () if MONOIDS[monoid].result(DType.F32) is DType.I64 else node.inputs
        case nodes.Gather():
            return node.inputs[:1]
        case nodes.Scatter():
            return (node.inputs[0], node.inputs[2])
        case nodes.Opaque() | nodes.Part() | nodes.Contract() | nodes.View() | nodes.Select():
            return node.inputs
        case nodes.Input() | nodes.Constant() | nodes.Iota():
            return ()
        case _:
            assert_never(node.kind)


def runs_at_jumps(graph: nodes.Graph, inputs: Arrays) -> Iterator[Arrays]:
    """The outputs of unfused runs in which what jumps, as a rounding, a comparison or a cast to integers does, is given
    a number that is up to 2 ulp away from its own on either side, as every number may be; so a cell whose argument lies
    by a jump may be on either side of it. Where there are shorter floats, also of runs that compute in float32 until
    the end, as a kernel does. None of those in which an index leaves its table."""
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    jumps = jumping(graph)
    is_short = any(node.dtype.is_float and node.dtype.compute is not node.dtype for node in graph.nodes)
    for in_storage in (True, False) if is_short else (True,):
        for steps in SHIFTS if jumps else ():
            with suppress(InputError):
                values = ShiftedEvaluator(sizes, jumps, steps, in_storage).run(graph, inputs)
                yield {name: value.astype(graph[name].dtype.numpy, copy=False) for name, value in values.items()}


class ShiftedEvaluator(Evaluator):
    """An evaluation that gives what jumps another number, so many ulp further from 0. Where not `in_storage`, floats
    shorter than float32 are rounded as inputs alone."""

    def __init__(self, sizes: Mapping[str, int], jumps: Collection[str], steps: int, in_storage: bool) -> None:
        super().__init__(False, sizes)
        self.jumps, self.steps, self.in_storage = jumps, np.int8(steps), in_storage

    def dtype(self, dtype: DType) -> np.dtype:
        return (dtype if self.in_storage else dtype.compute).numpy

    def value(self, node: nodes.Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        if node.output in self.jumps and from_numpy(operands[0].dtype) in FORMATS:
            operands = [shift_ulps(operands[0], self.steps), *operands[1:]]
        return super().value(node, operands, inputs)
