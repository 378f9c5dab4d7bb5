"""Sizes that a model is timed at: those that are asked for, else each open size small, usual and large in turn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from noyau.compiler.lowering.loop_cuts import guards
from noyau.errors import InputError
from noyau.ir.dims import Dim, Shape
from noyau.text import printable

if TYPE_CHECKING:
    from noyau.frontends.onnx import ImportedModel

Bound = tuple[Dim, Dim]  # the first is at most the second
Sizes = Mapping[str, int]
Dims = Mapping[str, int | Sequence[int]]
Images = tuple[frozenset[str], frozenset[str]]  # sizes of batches and of edges
USUAL = 128  # what a size is where nobody says
SMALLEST, MANY, LARGE = 1, 128, 1024
IMAGES = 4, 16  # of which a batch has more than one
SMALLEST_EDGE, LARGE_EDGE = 32, 256  # of images: nets halve them five times over
MOST_INPUT_BYTES = 1 << 24  # of all inputs together, where nobody asks for sizes
MOST_OPEN, MOST_ASKED = 6, 16
_MOST_MOVES = 64


def sizes_for(imported: ImportedModel, dims: Mapping[str, int]) -> dict[str, int]:
    """A number for each size that the inputs of a model have; smaller than usual where nobody asks and inputs are
    large."""
    lead, shapes = leading(imported), _shapes(imported)
    sizes = {name: 1 if name in lead else USUAL for shape in shapes for dim in shape for name in dim.names}
    for (name, value), size in zip(dims.items(), graph_names(imported, dims), strict=True):
        if size not in sizes:
            known = ", ".join(sorted(map(printable, model_names(imported, sizes)))) or "none"
            raise InputError(f"the model has no size {printable(name)}; its sizes are: {known}")
        if value < 0:
            raise InputError(f"the size {printable(name)} cannot be {value}: sizes are 0 or more")
        sizes[size] = value
    return sizes if dims else _bounded(sizes, shapes)


def graph_names(imported: ImportedModel, names: Iterable[str]) -> list[str]:
    """Sizes by the names that the graph has for what the model calls so."""
    by_original = {original: name for name, original in imported.sizes.items()}
    return [by_original.get(name, name) for name in names]


def fit_sizes(sizes: Mapping[str, int], imported: ImportedModel, fixed: Collection[str] = ()) -> dict[str, int]:
    """The sizes, of which those that are not fixed are moved until no view of the model reads beyond what it views and
    extents that must be equal are, as far as that can be."""
    result, bounds = dict(sizes), _bounds_of(sizes, imported)
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


def fits(sizes: Sizes, imported: ImportedModel) -> bool:
    """Whether all holds that `fit_sizes` moves sizes for."""
    return all(_excess(bound, sizes) <= 0 for bound in _bounds_of(sizes, imported))


def _bounds_of(sizes: Sizes, imported: ImportedModel) -> list[Bound]:
    return [bound for bound in _bounds(imported) if bound[0].names | bound[1].names <= sizes.keys()]


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


def bindings(imported: ImportedModel, dims: Dims) -> list[dict[str, int]]:
    """Numbers for the sizes of a model, by the names that its graph has; all else is done with the first of them.

    Where sizes are asked for, each of those with each; a size that is not asked for has its usual number. Where none
    is: the usual ones, then those that `vary` gives, halved while the inputs would be larger than 16 MiB; at most 6.
    Sizes move where they would not fit together. InputError for a size that the model does not have, or for more than
    16 bindings."""
    combinations = [dict(zip(dims, values, strict=True)) for values in itertools.product(*map(_numbers, dims.values()))]
    if not combinations:
        raise InputError("a size is asked for, and no number of it: give one or more")
    if (count := len(combinations)) > MOST_ASKED:
        raise InputError(f"{count} bindings of sizes are asked for, and {MOST_ASKED} are the most: give fewer")
    fixed = graph_names(imported, dims)
    results = [fit_sizes(sizes_for(imported, one), imported, fixed) for one in combinations]
    if not dims:
        others = (_bounded(sizes, _shapes(imported)) for sizes in vary(results[0], leading(imported), images(imported)))
        results += [fit_sizes(sizes, imported) for sizes in others]
    distinct = [sizes for place, sizes in enumerate(results) if sizes not in results[:place]]
    return distinct[: MOST_ASKED if dims else MOST_OPEN]


def first_of(dims: Dims) -> dict[str, int]:
    """The first number that is asked for of each size."""
    return {name: next(iter(_numbers(value)), 0) for name, value in dims.items()}


def vary(
    usual: Sizes, lead: Collection[str], pictures: Images = (frozenset(), frozenset())
) -> Iterator[dict[str, int]]:
    """All sizes at 1, then each at 1024 in turn while the others are 1; the leading ones last, at 128 where there are
    others; a lone size at 128 too. Batches of images are 4 and 16, and their edges go together: 32 and 256."""
    batches, edges = pictures
    small = {name: SMALLEST_EDGE if name in edges else SMALLEST for name in usual}
    yield small
    if edges:
        yield {**small, **dict.fromkeys(edges, LARGE_EDGE)}
    for name in sorted((name for name in usual if name not in edges), key=lambda name: name in lead):
        numbers = (MANY, LARGE) if len(usual) == 1 else (MANY,) if name in lead else (LARGE,)
        for number in IMAGES if name in batches else numbers:
            yield {**small, name: number}


def _bounded(sizes: dict[str, int], shapes: Sequence[Shape]) -> dict[str, int]:
    """The sizes, the largest halved until arrays of these shapes, of four bytes a cell, are small enough."""
    sizes = dict(sizes)
    while max(sizes.values(), default=1) > 1 and 4 * sum(map(partial(_cells, sizes), shapes)) > MOST_INPUT_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        sizes[largest] //= 2
    return sizes


def _cells(sizes: Sizes, shape: Shape) -> int:
    try:
        return math.prod(int(dim.evaluate(sizes)) for dim in shape)
    except ZeroDivisionError:
        return 0


def images(imported: ImportedModel) -> Images:
    """The leading sizes of inputs of four axes or more, and the others of those that have several open axes behind it;
    no size that an input of fewer axes has too, which is one of sequences or of their caches."""
    shapes = _shapes(imported)
    flat = {name for shape in shapes if len(shape) < 4 for dim in shape for name in dim.names}
    thick = [[dim.names for dim in shape] for shape in shapes if len(shape) >= 4]
    batches = {name for first, *_ in thick for name in first}
    behind = [[name for names in rest for name in names if name not in batches] for _, *rest in thick]
    return frozenset(batches - flat), frozenset(name for names in behind if len(names) > 1 for name in names) - flat


def leading(imported: ImportedModel) -> set[str]:
    """The sizes that an input of two axes or more begins with: how many of something there are."""
    return {name for shape in _shapes(imported) if len(shape) > 1 for name in shape[0].names}


def _shapes(imported: ImportedModel) -> list[Shape]:
    """The shapes of what a model is called with."""
    return [node.shape for node in imported.graph.inputs if node.output not in imported.initializers]


def model_names(imported: ImportedModel, sizes: Sizes) -> dict[str, int]:
    """The sizes by the model's own names."""
    return {imported.sizes.get(name, name): size for name, size in sizes.items()}


def spell(sizes: Sizes) -> str:
    """`batch=1, sequence=128`."""
    return ", ".join(f"{printable(name)}={size}" for name, size in sizes.items())


def _numbers(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)
