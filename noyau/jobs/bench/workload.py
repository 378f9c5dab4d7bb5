"""The work of a call: the bytes that move, the flops, and the least time that this machine needs for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from noyau.compiler.partition.traffic import cells, traffic
from noyau.errors import BuildError
from noyau.ir.graph import Contract, Graph, Map, Node, Reduce
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS
from noyau.ir.sizes import Sizes
from noyau.timing.conditions import last_level_bytes
from noyau.timing.rates import copy_rate, floor_s, mistake

_BEYOND = 4  # times the last-level cache: what is no more in it
_PLAIN = 4  # in float32 additions: a division counts as one flop, an exponential does not


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of one call. `exact`: the bytes are known to be those that any implementation moves; else they are of
    whole inputs and outputs. `flops`: additions, multiplications and the like, or None where they are not known."""

    read_bytes: int
    written_bytes: int
    flops: float | None = None
    exact: bool = False

    @property
    def bytes_moved(self) -> int:
        return self.read_bytes + self.written_bytes

    def floor_s(self, threads: int, *, cold: bool = False) -> float | None:
        """The least seconds in which this machine moves the bytes, again and again, or from no cache; None for none."""
        if not self.bytes_moved:
            return None
        times = max(1, math.ceil(_BEYOND * last_level_bytes() / self.bytes_moved)) if cold else 1
        read, write_bytes = times * self.read_bytes, times * self.written_bytes
        copied_s = (read + write_bytes) / copy_rate(read + write_bytes, threads)  # reads alone take no longer
        try:
            return min(floor_s(read, write_bytes, threads), copied_s) / times
        except BuildError:
            return copied_s / times

    def mistake(self, time_s: float, threads: int, again: Callable[[], float] | None = None) -> str:
        """Why a time cannot be, or nothing; `again` is as in `rates.mistake`."""
        with suppress(BuildError):
            if self.bytes_moved:
                return mistake(time_s, self.read_bytes, self.written_bytes, threads, again)
        return ""


def work_of_arrays(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], flops: float | None = None) -> Workload:
    """All inputs read once, what is only repeated counted once, and all outputs written once."""
    own = (math.prod(n for n, stride in zip(a.shape, a.strides, strict=True) if stride) * a.itemsize for a in inputs)
    return Workload(sum(own), sum(each.nbytes for each in outputs), flops)


def work_of_graph(graph: Graph, sizes: Sizes) -> Workload:
    """The bytes that a traced graph must read and write, and its flops where all of them are plain arithmetic."""
    moved = traffic(graph, sizes, repeated=True)
    return Workload(moved.read_bytes, moved.written_bytes, flops_of(graph, sizes), exact=True)


def flops_of(graph: Graph, sizes: Sizes) -> float | None:
    """Additions, multiplications, comparisons...: one each; None where a function is dearer than that, for then how
    many it takes is a matter of how it is computed."""
    known = [flops for node in graph.nodes if (flops := _flops(graph, node, sizes)) is not None]
    return (sum(known) or None) if len(known) == len(graph.nodes) else None


def _flops(graph: Graph, node: Node, sizes: Sizes) -> float | None:
    match node.kind:
        case Map("identity" | "cast"):
            return 0.0
        case Map(function):
            return float(cells(node, sizes)) if OPERATORS[function].flops <= _PLAIN else None
        case Reduce(monoid):
            return float(cells(graph[node.inputs[0]], sizes)) if MONOIDS[monoid].is_arithmetic else None
        case Contract(equation):
            terms = zip(equation.partition("->")[0].split(","), node.inputs, strict=True)
            pairs = (zip(term.strip(), graph[name].shape, strict=False) for term, name in terms)
            extents = {letter: int(dim.evaluate(sizes)) for pair in pairs for letter, dim in pair}
            return 2.0 * math.prod(extents.values())  # of each product the sum, too
        case _:
            return 0.0
