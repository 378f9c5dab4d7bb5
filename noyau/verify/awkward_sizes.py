"""Awkward sizes that are valid for a graph: 0, 1, primes, block sizes and their neighbours."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Iota, Node, Scatter, Select, View
from noyau.ir.sizes import Demand, Sizes, extents_at, plan

CELLS = 1 << 16  # of the largest value of a case, if the fixed sizes permit
BLOCKS = (17, 63, 129, 33, 15, 65, 16, 31, 127)
LONG = {129: (-1, 4099), 65: (0, 1021)}  # by block size: the position and extent of one long size in the next case
PRIMES = (5, 3, 7, 2)
OTHERS, TRIES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 33, 64, 130, 260), 200  # random sizes for more demands


def usual_sizes(graph: Graph, hint: Sizes) -> dict[str, int]:
    """The hinted sizes, or small primes, shrunk so that every pattern is cheap; or the first valid random ones."""
    names = [binding.size for binding in plan([node.shape for node in graph.inputs])]
    usual = {name: hint.get(name, PRIMES[at % len(PRIMES)]) for at, name in enumerate(names)}
    small = shrunk(graph, usual, CELLS // 4)
    rng = np.random.default_rng(0)
    others = (dict(zip(names, map(int, rng.choice(OTHERS, len(names))), strict=True)) for _ in range(TRIES))
    return next((sizes for sizes in fitting(graph, chain([small, usual], others))), small)


def fitting(graph: Graph, every: Iterable[Sizes]) -> Iterator[dict[str, int]]:
    """Yield the assignments that are valid for the graph; repair invalid ones, and yield each valid repair once."""
    yielded: list[dict[str, int]] = []
    for sizes in every:
        sizes_met = dict(sizes)
        if not fits(graph, sizes):
            sizes_met = _meet_demands(graph, sizes)
            if sizes_met in yielded or not fits(graph, sizes_met):
                continue
            yielded.append(sizes_met)
        yield sizes_met


def _meet_demands(graph: Graph, sizes: Sizes) -> dict[str, int]:
    """The sizes with one changed for each violated demand, so that its two sides are equal; the first size by which no
    value becomes large, else that of fewest cells."""
    sizes_met = dict(sizes)
    for demand in graph.demands:
        names = sorted((demand.left.names | demand.right.names) & sizes_met.keys())
        if not demand.holds(sizes_met):
            repairs = ((name, _where_equal(demand, sizes_met, name)) for name in names)
            met = [{**sizes_met, name: number} for name, number in repairs if number]
            fewest = min(met, key=lambda each: cells(graph, each), default=sizes_met)
            sizes_met = next((each for each in met if cells(graph, each) <= CELLS), fewest)
    return sizes_met


def _where_equal(demand: Demand, sizes: Sizes, name: str) -> int:
    """The size >= 1 at which the two sides of a demand, as affine functions of that size, are equal; 0 if none."""
    try:
        one, two = ((demand.left - demand.right).evaluate({**sizes, name: number}) for number in (1, 2))
    except ZeroDivisionError:
        return 0
    step = two - one
    return max(0, int(1 - one // step)) if step and one % step == 0 else 0


def awkward_sizes(graph: Graph, usual: Sizes) -> Iterator[Sizes]:
    """Each size at 0 and at 1, all at 1, each in turn at a block size among other block sizes, and a few long ones."""
    names = list(usual)
    few = {name: PRIMES[at % len(PRIMES)] for at, name in enumerate(names)}
    yield from ({**few, name: extent} for name in names[:3] for extent in (0, 1))
    if len(names) > 1:
        yield dict.fromkeys(names, 1)
    for at, extent in enumerate(BLOCKS if names else ()):
        main = names[-1 - at % len(names)]
        others = {name: BLOCKS[(at + 4 * k) % len(BLOCKS)] for k, name in enumerate(names)}
        yield shrunk(graph, {**others, main: extent}, CELLS, main)
        if extent in LONG:
            place, length = LONG[extent]
            yield shrunk(graph, {**few, names[place]: length}, CELLS, names[place])


def shrunk(graph: Graph, sizes: Sizes, limit: int, fixed: str | None = None) -> dict[str, int]:
    """The sizes with the largest halved until no value of the graph exceeds `limit` cells; `fixed` is halved last."""
    smaller = dict(sizes)
    while cells(graph, smaller) > limit:
        large = [name for name in smaller if smaller[name] > 1]
        if not large:
            break
        largest = max(large, key=lambda name: (name != fixed, smaller[name]))
        smaller[largest] = (smaller[largest] + 1) // 2
    return smaller


def cells(graph: Graph, sizes: Sizes) -> int:
    """The number of cells of the largest value, byproducts included; 0 where an extent divides by 0."""
    try:
        return max((math.prod(extents_at(sizes, shape)) for shape in graph.shapes), default=0)
    except ZeroDivisionError:
        return 0


def fits(graph: Graph, sizes: Sizes) -> bool:
    """Whether the graph is valid at these sizes: demands hold, no extent is negative, and no view leaves its bounds."""
    try:
        holds = all(demand.holds(sizes) for demand in graph.demands)
        return holds and all(_fits(graph, node, sizes) for node in graph.nodes)
    except ZeroDivisionError:
        return False


def _fits(graph: Graph, node: Node, sizes: Sizes) -> bool:
    shape = extents_at(sizes, node.shape)
    if min(shape, default=0) < 0:
        return False
    match node.kind:
        case View(index) | Gather(index) | Scatter(index, _):
            # The indices of a Scatter run over its updates.
            run = extents_at(sizes, graph[node.inputs[2]].shape) if isinstance(node.kind, Scatter) else shape
            bounded = zip(index, extents_at(sizes, graph[node.inputs[0]].shape), strict=True)
            return all(_inside(entry, extent, run, sizes) for entry, extent in bounded if isinstance(entry, Dim))
        case Select(axis, starts):
            ends = [*(int(start.evaluate(sizes)) for start in starts), shape[axis]]
            return ends[0] == 0 and ends == sorted(ends)
        case Iota(index):
            index.evaluate({**sizes, **{f"#{axis}": 0 for axis in range(len(shape))}})  # it may divide by a size
            return True
        case _:
            return True


def _inside(index: Dim, extent: int, shape: Sequence[int], sizes: Sizes) -> bool:
    """Whether an index map stays within [0, extent) for all indices of a shape."""
    if not math.prod(shape):
        return True
    grids = dict(zip((f"#{axis}" for axis in range(len(shape))), np.ogrid[tuple(map(slice, shape))], strict=True))
    values = np.asarray(index.evaluate({**sizes, **grids}))
    return bool(values.min() >= 0 and values.max() < extent)
