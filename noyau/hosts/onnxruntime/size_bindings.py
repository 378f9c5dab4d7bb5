"""At which sizes a model is timed: those that are asked for, else each open size small, usual and large in turn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from noyau.errors import InputError
from noyau.hosts.onnxruntime.inputs import fit_sizes, sizes_for
from noyau.ir.graph import Graph
from noyau.text import printable
from noyau.verify.inputs import Inputs, make_inputs

if TYPE_CHECKING:
    from noyau.frontends.onnx import ImportedModel

Sizes = Mapping[str, int]
Dims = Mapping[str, int | Sequence[int]]

SMALLEST, MANY, LARGE = 1, 128, 1024
MOST_OPEN, MOST_ASKED = 6, 16
MOST_BYTES = 1 << 30  # of the largest value: a model is not timed beyond it where nobody asked for that


def bindings(imported: ImportedModel, dims: Dims) -> list[dict[str, int]]:
    """Numbers for the sizes of a model, by the names that its graph has; all else is done with the first of them.

    Where sizes are asked for, each of those with each; a size that is not asked for has its usual number. Where none
    is: the usual ones, then all at 1, then each at 1024 while the others are 1, but for the leading one of an input,
    which is 128 where there are others; a lone one at 128 as well; at most 6. Sizes move where they would not fit
    together. InputError for a size that the model does not have, or for more than 16 bindings."""
    asked = [dict(zip(dims, values, strict=True)) for values in itertools.product(*map(_numbers, dims.values()))]
    if not asked:
        raise InputError("a size is asked for, and no number of it: give one or more")
    if len(asked) > MOST_ASKED:
        raise InputError(f"{len(asked)} bindings of sizes are asked for, and {MOST_ASKED} are the most: give fewer")
    fixed = {name for name, original in _originals(imported) if original in dims}
    results = [fit_sizes(sizes_for(imported, one), imported, fixed) for one in asked]
    if not dims:
        results += [fit_sizes(sizes, imported) for sizes in vary(results[0], leading(imported))]
    return _distinct(results)[: MOST_ASKED if dims else MOST_OPEN]


def first_of(dims: Dims) -> dict[str, int]:
    """The first number that is asked for of each size."""
    return {name: next(iter(_numbers(value)), 0) for name, value in dims.items()}


def vary(usual: Sizes, lead: Collection[str]) -> Iterator[dict[str, int]]:
    """All sizes at 1, then each large in turn, the leading ones last; a lone size at 128 too."""
    small = dict.fromkeys(usual, SMALLEST)
    yield small
    for name in sorted(usual, key=lambda name: name in lead):
        if len(usual) == 1:
            yield {name: MANY}
        yield {**small, name: MANY if name in lead and len(usual) > 1 else LARGE}


def leading(imported: ImportedModel) -> set[str]:
    """The sizes that an input of two axes or more begins with: how many of something there are."""
    given = (node for node in imported.graph.inputs if node.output not in imported.initializers)
    return {name for node in given if len(node.shape) > 1 for name in node.shape[0].names}


def inputs_at(imported: ImportedModel, sizes: Sizes, missing: Iterable[str], seed: int) -> Inputs:
    """Inputs that are made up for these sizes; `missing` are those that cannot be. InputError as `make_inputs`."""
    names = {*imported.initializers, *missing}
    return make_inputs(imported.graph, sizes, np.random.default_rng(seed), without=names)


def largest_bytes(graph: Graph, sizes: Sizes) -> int:
    """Bytes of the largest value of a graph, of those whose shapes the sizes tell."""
    found = (
        math.prod(max(int(dim.evaluate(sizes)), 0) for dim in node.shape) * node.dtype.bytes
        for node in graph.nodes
        if all(dim.names <= sizes.keys() for dim in node.shape)
    )
    return max(found, default=0)


def model_names(imported: ImportedModel, sizes: Sizes) -> dict[str, int]:
    """The sizes by the model's own names."""
    return {imported.sizes.get(name, name): size for name, size in sizes.items()}


def spell(sizes: Sizes) -> str:
    """`batch=1, sequence=128`."""
    return ", ".join(f"{printable(name)}={size}" for name, size in sizes.items())


def _numbers(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _originals(imported: ImportedModel) -> Iterator[tuple[str, str]]:
    """Each size of the graph, and what the model calls it."""
    for node in imported.graph.inputs:
        for dim in node.shape:
            for name in dim.names:
                yield name, imported.sizes.get(name, name)


def _distinct(found: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    return [sizes for place, sizes in enumerate(found) if sizes not in found[:place]]
