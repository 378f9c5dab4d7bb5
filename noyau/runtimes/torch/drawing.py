"""Small inputs for the smoke certificates of what runs forward and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from noyau.checking.adversarial import NORMAL, CaseMaker, fits, shrunk, usual_sizes
from noyau.derivatives.deriving import gradient_name
from noyau.descriptions import Description
from noyau.dispatching.generating import Wanted
from noyau.errors import NoyauError
from noyau.ir.evaluation import evaluate
from noyau.ir.graph import Graph
from noyau.signatures.binding import bind
from noyau.signatures.making import in_dtypes, made_by

Array = np.ndarray
Draw: TypeAlias = Callable[[], Iterator[Mapping[str, Array]]]  # inputs of a graph, by name
MOST = 6
CELLS = 1 << 12  # of the largest array
EDGES = (33, 1, 16, 5)  # of all sizes


def draw_op(description: Description, wanted: Wanted, graph: Graph) -> Iterator[Mapping[str, Array]]:
    """Inputs of an op: by its maker where that gives some of these dtypes and ranks, else such as its graph takes."""
    made = _made(description, wanted, graph)
    first = next(made, None)
    yield from draw_graph(graph, wanted.integers) if first is None else chain([first], made)


def _made(description: Description, wanted: Wanted, graph: Graph) -> Iterator[Mapping[str, Array]]:
    signature = description.signature
    if description.inputs is None or signature is None:
        return
    known = {**description.sizes, **wanted.integers}
    for number in range(MOST):
        rng = np.random.default_rng([0, number])
        given = made_by(description.inputs, rng, {}, description.reference.parameters, description.name)
        given = in_dtypes(given, signature, wanted.instance.dtypes)
        bound = bind(signature, given, known, f"inputs= of {description.name}")
        if bound.instance == wanted.instance:
            yield dict(zip((node.output for node in graph.inputs), bound.arrays, strict=True))


def draw_graph(graph: Graph, integers: Mapping[str, int]) -> Iterator[Mapping[str, Array]]:
    """Inputs such as a graph takes, of usual sizes and at edges; `integers` have their values."""
    maker = CaseMaker(graph, np.random.default_rng(0))
    usual = usual_sizes(graph, {})
    last = next(iter(list(usual)[-1:]), None)
    edges = [shrunk(graph, dict.fromkeys(usual, edge), CELLS, last) for edge in EDGES]
    for sizes in [usual, *edges]:
        made = maker.inputs(sizes, NORMAL) if fits(graph, sizes) else None
        if made is not None:
            numbers = {name: np.array(value, made[name].dtype) for name, value in integers.items() if name in made}
            yield {**made, **numbers}


def draw_back(forward: Graph, outputs: tuple[str, ...], draw: Draw) -> Iterator[Mapping[str, Array]]:
    """Inputs for a backward graph: those of the forward one, what that gives, and any gradients of its outputs."""
    rng = np.random.default_rng(1)
    for inputs in islice(draw(), MOST):
        with np.errstate(all="ignore"):
            try:
                values = {**inputs, **evaluate(forward, inputs)}
            except NoyauError:
                continue
        floats = [name for name in outputs if forward[name].dtype.is_float]
        grads = {gradient_name(n): rng.standard_normal(values[n].shape).astype(values[n].dtype) for n in floats}
        yield {**values, **grads}
