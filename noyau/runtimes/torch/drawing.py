"""Small inputs for the smoke certificates of what runs forward and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from noyau.checking.adversarial import NORMAL, CaseMaker, fits, usual_sizes
from noyau.derivatives.deriving import gradient_name
from noyau.descriptions import Description
from noyau.dispatching.generating import Wanted
from noyau.dispatching.smoke import hint, made_inputs, sizes_at_edges
from noyau.errors import NoyauError
from noyau.ir.evaluation import evaluate
from noyau.ir.graph import Graph

Array = np.ndarray
Draw: TypeAlias = Callable[[], Iterator[Mapping[str, Array]]]  # inputs of a graph, by name
MOST = 6
CELLS = 1 << 12  # of the largest array
NOTHING: Mapping[str, int] = MappingProxyType({})


def draw_op(description: Description, wanted: Wanted, graph: Graph) -> Iterator[Mapping[str, Array]]:
    """Inputs of an op: by its maker where that gives some of these dtypes and ranks, else such as its graph takes."""
    names = [node.output for node in graph.inputs]
    made = (dict(zip(names, arrays, strict=True)) for _, arrays in made_inputs(description, wanted, 0))
    first = next(made, None)
    yield from draw_graph(graph, wanted.integers, wanted.sizes) if first is None else chain([first], made)


def draw_graph(
    graph: Graph, integers: Mapping[str, int], called: Mapping[str, int] = NOTHING
) -> Iterator[Mapping[str, Array]]:
    """Inputs such as a graph takes, of usual sizes, or those that it is `called` with where it holds for no others, and
    at edges; `integers` have their values."""
    maker = CaseMaker(graph, np.random.default_rng(0))
    usual = usual_sizes(graph, hint(graph, called))
    for sizes in [*([usual] if fits(graph, usual) else []), *sizes_at_edges(graph, usual, CELLS)]:
        made = maker.inputs(sizes, NORMAL)
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
