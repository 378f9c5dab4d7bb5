"""Random graphs over the whole IR that lowering supports, with inputs: what the tests of fusion feed on.

`generate(seed)` for long runs, `graphs()` for hypothesis, where a failure is to be made small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import numpy as np
from hypothesis import strategies as st

from noyau.ir.dims import Shape, same_shape
from noyau.ir.graph import Graph, Input, Map, Reduce, Scan, names_of
from noyau.ir.graph_verifier import check
from noyau.ir.sizes import plan
from tests.random_steps import STEPS
from tests.sketching import Chooser, Sketch, Unfit, begin


class Seeded:
    """Choices that a seed makes."""

    def __init__(self, seed: int) -> None:
        self.integer = Random(seed).randint


class Drawn:
    """Choices that hypothesis makes, and makes smaller."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


@dataclass(frozen=True)
class Case:
    """A graph, an array for each input, and what sort of view, select or gather made each value."""

    graph: Graph
    inputs: dict[str, np.ndarray]
    tags: dict[str, str]
    sizes: dict[str, int]


def generate(seed: int) -> Case:
    """The graph of a seed; the same at each call."""
    return build(Seeded(seed))


@st.composite
def graphs(draw: Callable[[st.SearchStrategy[int]], int]) -> Case:
    """Graphs whose every decision hypothesis makes."""
    return build(Drawn(draw))


def build(chooser: Chooser) -> Case:
    """A graph of up to 18 steps, each taken as often as its weight says."""
    s = started(chooser)
    weighted = [step for weight, step in STEPS for _ in range(weight)]
    for _ in range(chooser.integer(2, 18)):
        try:
            s.one_of(weighted)(s)
        except Unfit:
            continue
    graph = check(finish(s))
    inputs = {node.output: s.inputs[node.output] for node in graph.inputs}
    return Case(graph, inputs, {name: s.tags[name] for name in graph.by_name if name in s.tags}, s.sizes)


def started(chooser: Chooser) -> Sketch:
    for _ in range(50):
        s = Sketch(chooser)
        try:
            begin(s)
        except Unfit:
            continue
        return s
    raise Unfit


def finish(s: Sketch) -> Graph:
    """The graph of one to four of the values, without what they do not need."""
    made = [node for node in s.nodes.values() if not isinstance(node.kind, Input)] or list(s.nodes.values())
    last = made[-1]
    outputs = [last.output]
    for _ in range(s.one_of((0, 0, 0, 1, 1, 2, 3))):
        others = [
            node
            for node in made
            if node.output not in outputs
            and (s.chance(5) or prefix(node.shape, last.shape) or prefix(last.shape, node.shape))
        ]
        if others:
            outputs.append(s.one_of(others[-4:]).output)
    needed = set(outputs)
    for node in reversed(s.nodes.values()):
        needed |= set(node.inputs) if node.output in needed else set()
    kept = tuple(node for node in s.nodes.values() if node.output in needed)
    bound = {binding.size for binding in plan([node.shape for node in kept if isinstance(node.kind, Input)])}
    if not names_of(Graph(kept, ())) <= bound:
        kept = tuple(node for node in s.nodes.values() if node.output in needed or isinstance(node.kind, Input))
    return Graph(kept, tuple(outputs))


def prefix(shape: Shape, of: Shape) -> bool:
    return len(shape) <= len(of) and same_shape(shape, of[: len(shape)])


@dataclass
class Coverage:
    """What the graphs held, counted: how many have at least one of each."""

    counts: Counter[str] = field(default_factory=Counter)

    def take(self, case: Case) -> None:
        self.counts.update(set(_features(case)))

    def __str__(self) -> str:
        return ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items()))


def _features(case: Case) -> Iterable[str]:
    graph = case.graph
    yield "graphs"
    yield f"outputs {len(graph.outputs)}"
    yield from (f"tag {tag}" for tag in case.tags.values())
    consumers = Counter(name for node in graph.nodes for name in set(node.inputs))
    yield f"consumers {min(max(consumers.values(), default=0), 4)}"
    if names_of(graph):
        yield "symbolic"
    for node in graph.nodes:
        yield f"kind {type(node.kind).__name__}"
        yield f"dtype {node.dtype.value}"
        yield f"rank {len(node.shape)}"
        yield from (f"extent {dim.evaluate(case.sizes)}" for dim in node.shape if dim.evaluate(case.sizes) < 2)
        match node.kind:
            case Map(function):
                yield f"function {function}"
            case Reduce(monoid, axes):
                yield f"monoid {monoid}"
                yield f"axes {len(axes)}"
            case Scan(monoid):
                yield f"scan {monoid}"
            case _:
                pass
