"""Small inputs for the smoke certificates of what runs forward and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from noyau.checking.adversarial import NORMAL, CaseMaker, fits, usual_sizes
from noyau.derivatives.deriving import gradient_name
from noyau.descriptions import Description
from noyau.dispatching.generating import Wanted
from noyau.dispatching.smoke import hint, made_at, made_inputs, sizes_at_edges
from noyau.errors import NoyauError
from noyau.ir.evaluation import evaluate
from noyau.ir.graph import Graph

Array = np.ndarray
Sizes = Mapping[str, int]
Drawn = Iterator[Mapping[str, Array]]  # inputs of a graph, by name
Draw: TypeAlias = Callable[[Sequence[Sizes]], Drawn]  # of usual sizes, or of each of those that are asked for
MOST = 6
CELLS = 1 << 12  # of the largest array
NOTHING: Sizes = MappingProxyType({})


def draw_op(description: Description, wanted: Wanted, graph: Graph, asked: Sequence[Sizes] = ()) -> Drawn:
    """Inputs of an op: by its maker where that gives some of these dtypes and ranks, else such as its graph takes."""
    usual = made_inputs(description, wanted, 0)
    first = next(usual, None)
    if first is None:
        yield from draw_graph(graph, wanted.integers, wanted.sizes, asked)
        return
    found = (made_at(description, wanted, graph, sizes) for sizes in asked)
    for _, arrays in chain.from_iterable(found) if asked else chain([first], usual):
        yield dict(zip((node.output for node in graph.inputs), arrays, strict=True))


def draw_graph(graph: Graph, integers: Sizes, called: Sizes = NOTHING, asked: Sequence[Sizes] = ()) -> Drawn:
    """Inputs such as a graph takes, of usual sizes, or those that it is `called` with where it holds for no others, and
    at edges; or of each of those that are `asked` for, as far as it has such. `integers` have their values."""
    maker = CaseMaker(graph, np.random.default_rng(0))
    usual = usual_sizes(graph, hint(graph, called))
    whole = [usual | {name: size for name, size in sizes.items() if name in usual} for sizes in asked] or [usual]
    edges = [] if asked else sizes_at_edges(graph, usual, CELLS)
    for sizes in [*(each for each in whole if fits(graph, each)), *edges]:
        made = maker.inputs(sizes, NORMAL)
        if made is not None:
            numbers = {name: np.array(value, made[name].dtype) for name, value in integers.items() if name in made}
            yield {**made, **numbers}


def draw_back(forward: Graph, outputs: tuple[str, ...], draw: Draw, asked: Sequence[Sizes] = ()) -> Drawn:
    """Inputs for a backward graph: those of the forward one, what that gives, and any gradients of its outputs."""
    rng = np.random.default_rng(1)
    for inputs in islice(draw(asked), len(asked) or MOST):
        with np.errstate(all="ignore"):
            try:
                values = {**inputs, **evaluate(forward, inputs)}
            except NoyauError:
                continue
        floats = [name for name in outputs if forward[name].dtype.is_float]
        grads = {gradient_name(n): rng.standard_normal(values[n].shape).astype(values[n].dtype) for n in floats}
        yield {**values, **grads}
