"""Inputs for a model, and its sizes: inputs are loaded, or made up so that they obey its graph.

The sizes at which a model is timed are those that are asked for, else each open size small, usual and large in turn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.compiler.lowering.nest import guards
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Graph
from noyau.text import printable
from noyau.verify.inputs import Inputs, load_inputs, make_inputs

if TYPE_CHECKING:
    from noyau.frontends.onnx import ImportedModel


USUAL = 128  # what a size is where nobody says
SMALL = 64  # the most that a size is where kernels are checked on made-up inputs
CELLS = 1 << 20  # of the largest value of a kernel that is checked on them, where the fixed sizes leave room for that


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Inputs of a model: `small` to check its kernels, `full` to time them. A user's arrays are both.

    `missing`: inputs of types that cannot be made up."""

    small: Inputs
    full: Inputs
    made_up: bool
    missing: tuple[str, ...] = ()


def model_inputs(
    imported: ImportedModel, graphs: Sequence[Graph], dims: Mapping[str, int], file: str | Path | None, seed: int
) -> ModelInputs:
    """Arrays for the inputs of a model, from an .npz file or made up for the sizes `dims`, by the model's own names.

    A size that is not given is 1 where it is the leading one of an input, else 128, or what fits the others; the small
    inputs have sizes of at most 64, less where a value of one of `graphs`, those of the kernels, would be large.
    Initializers keep their values; without kernels nothing is needed. InputError for a size that the model does not
    have, for arrays that do not fit, or where both sizes and arrays are given."""
    names = frozenset(imported.initializers)
    if file is not None and dims:
        raise InputError(f"{file} gives every size: leave out --dim {printable(min(dims))}=N, or the arrays")
    if file is not None:
        loaded = load_inputs(Path(file), imported.graph, without=names)
        return ModelInputs(loaded, loaded, made_up=False)
    full = fit_sizes(sizes_for(imported, dims), imported, graph_names(imported, dims))
    inputs = [node for node in imported.graph.inputs if node.output not in names]
    missing = tuple(node.output for node in inputs if node.dtype is DType.OTHER) if graphs else ()
    left_out = {*names, *missing} if graphs else {node.output for node in imported.graph.inputs}
    small, large = (
        make_inputs(imported.graph, sizes, np.random.default_rng(seed), without=left_out)
        for sizes in (fit_sizes(small_sizes(full, graphs), imported), full)
    )
    return ModelInputs(small, large, True, missing)


def sizes_for(imported: ImportedModel, dims: Mapping[str, int]) -> dict[str, int]:
    """A number for each size that the inputs of a model have."""
    sizes: dict[str, int] = {}
    for node in imported.graph.inputs:
        if node.output not in imported.initializers:
            for axis, dim in enumerate(node.shape):
                for name in dim.names:
                    sizes[name] = min(sizes.get(name, USUAL), 1 if axis == 0 and len(node.shape) > 1 else USUAL)
    for (name, value), size in zip(dims.items(), graph_names(imported, dims), strict=True):
        if size not in sizes:
            known = ", ".join(sorted(map(printable, model_names(imported, sizes)))) or "none"
            raise InputError(f"the model has no size {printable(name)}; its sizes are: {known}")
        if value < 0:
            raise InputError(f"the size {printable(name)} cannot be {value}: sizes are 0 or more")
        sizes[size] = value
    return sizes


def graph_names(imported: ImportedModel, names: Iterable[str]) -> list[str]:
    """Sizes by the names that the graph has for what the model calls so."""
    by_original = {original: name for name, original in imported.sizes.items()}
    return [by_original.get(name, name) for name in names]


def small_sizes(sizes: Mapping[str, int], graphs: Iterable[Graph]) -> dict[str, int]:
    """The sizes, none above 64; all halved until no value of a graph has more than 2^20 cells, where that is known. A
    value of which the shape is fixed does not count: a table of weights is as large with small sizes."""
    known = [graph for graph in graphs if all(dim.names <= sizes.keys() for node in graph.nodes for dim in node.shape)]
    shapes = {node.shape for graph in known for node in graph.nodes if any(dim.names for dim in node.shape)}
    most = SMALL
    while most > 1 and any(_extent(shape, _capped(sizes, most)) > CELLS for shape in shapes):
        most //= 2
    return _capped(sizes, most)


def _extent(shape: Shape, sizes: Mapping[str, int]) -> int:
    """Number of cells of a shape; 0 where an extent would be divided by 0."""
    try:
        return math.prod(int(dim.evaluate(sizes)) for dim in shape)
    except ZeroDivisionError:
        return 0


def _capped(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    return {name: min(size, most) for name, size in sizes.items()}


Bound = tuple[Dim, Dim]  # the first is at most the second
_MOST_MOVES = 64


def fit_sizes(sizes: Mapping[str, int], imported: ImportedModel, fixed: Collection[str] = ()) -> dict[str, int]:
    """The sizes, of which those that are not fixed are moved until no view of the model reads beyond what it views and
    extents that must be equal are, as far as that can be."""
    result, bounds = (
        dict(sizes),
        [bound for bound in _bounds(imported) if bound[0].names | bound[1].names <= sizes.keys()],
    )
    for _ in range(_MOST_MOVES):
        broken = next((bound for bound in bounds if _excess(bound, result) > 0), None)
        if broken is None:
            return result
        move = next(_moves(broken, result, fixed), None)
        if move is None:
            bounds.remove(broken)
        else:
            result.update([move])
    return result


def _bounds(imported: ImportedModel) -> Iterator[Bound]:
    for demand in chain.from_iterable(imported.demands.values()):
        yield demand.left, demand.right
        if demand.relation != "at most":
            yield demand.right, demand.left
    for guard in guards(replace(imported.graph, demands=())):
        yield guard.left, guard.right


def _excess(bound: Bound, sizes: Mapping[str, int]) -> int:
    """By how much a bound does not hold; one that divides by zero says nothing."""
    try:
        return int(bound[0].evaluate(sizes) - bound[1].evaluate(sizes))
    except ZeroDivisionError:
        return 0


def _moves(bound: Bound, sizes: Mapping[str, int], fixed: Collection[str]) -> Iterator[tuple[str, int]]:
    """Candidates for one size so that a bound holds, or nearly: larger ones first, and those of large sizes first."""
    excess, names = _excess(bound, sizes), (bound[0] - bound[1]).names - set(fixed)
    for step in (1, -1):
        for name in sorted(names, key=lambda name: (-sizes[name], name)):
            gain = excess - _excess(bound, {**sizes, name: sizes[name] + step})
            moved = max(sizes[name] + step * -(-excess // max(gain, 1)), 1)
            if gain > 0 and moved != sizes[name]:
                yield name, moved


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
    combinations = [dict(zip(dims, values, strict=True)) for values in itertools.product(*map(_numbers, dims.values()))]
    if not combinations:
        raise InputError("a size is asked for, and no number of it: give one or more")
    if len(combinations) > MOST_ASKED:
        raise InputError(
            f"{len(combinations)} bindings of sizes are asked for, and {MOST_ASKED} are the most: give fewer"
        )
    fixed = graph_names(imported, dims)
    results = [fit_sizes(sizes_for(imported, one), imported, fixed) for one in combinations]
    if not dims:
        results += [fit_sizes(sizes, imported) for sizes in vary(results[0], leading(imported))]
    distinct = [sizes for place, sizes in enumerate(results) if sizes not in results[:place]]
    return distinct[: MOST_ASKED if dims else MOST_OPEN]


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
    inputs = (node for node in imported.graph.inputs if node.output not in imported.initializers)
    return {name for node in inputs if len(node.shape) > 1 for name in node.shape[0].names}


def inputs_at(imported: ImportedModel, sizes: Sizes, missing: Iterable[str], seed: int) -> Inputs:
    """Inputs that are made up for these sizes; `missing` are those that cannot be. InputError as `make_inputs`."""
    names = {*imported.initializers, *missing}
    return make_inputs(imported.graph, sizes, np.random.default_rng(seed), without=names)


def largest_bytes(graph: Graph, sizes: Sizes) -> int:
    """Bytes of the largest value of a graph, of those whose shapes the sizes tell."""
    sizes_bytes = (
        math.prod(max(int(dim.evaluate(sizes)), 0) for dim in node.shape) * node.dtype.bytes
        for node in graph.nodes
        if all(dim.names <= sizes.keys() for dim in node.shape)
    )
    return max(sizes_bytes, default=0)


def model_names(imported: ImportedModel, sizes: Sizes) -> dict[str, int]:
    """The sizes by the model's own names."""
    return {imported.sizes.get(name, name): size for name, size in sizes.items()}


def spell(sizes: Sizes) -> str:
    """`batch=1, sequence=128`."""
    return ", ".join(f"{printable(name)}={size}" for name, size in sizes.items())


def _numbers(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)
