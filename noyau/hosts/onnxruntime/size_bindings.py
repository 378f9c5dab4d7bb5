"""Sizes that a model is timed at: those that are asked for, else each open size small, usual and large in turn."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
USUAL = 128  # what a size is where nobody says
SMALLEST, MANY, LARGE = 1, 128, 1024
MOST_OPEN, MOST_ASKED = 6, 16
_MOST_MOVES = 64


def sizes_for(imported: ImportedModel, dims: Mapping[str, int]) -> dict[str, int]:
    """A number for each size that the inputs of a model have."""
    lead, shapes = leading(imported), _shapes(imported)
    sizes = {name: 1 if name in lead else USUAL for shape in shapes for dim in shape for name in dim.names}
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


def fit_sizes(sizes: Mapping[str, int], imported: ImportedModel, fixed: Collection[str] = ()) -> dict[str, int]:
    """The sizes, of which those that are not fixed are moved until no view of the model reads beyond what it views and
    extents that must be equal are, as far as that can be."""
    result = dict(sizes)
    bounds = [bound for bound in _bounds(imported) if bound[0].names | bound[1].names <= sizes.keys()]
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


def bindings(imported: ImportedModel, dims: Dims) -> list[dict[str, int]]:
    """Numbers for the sizes of a model, by the names that its graph has; all else is done with the first of them.

    Where sizes are asked for, each of those with each; a size that is not asked for has its usual number. Where none
    is: the usual ones, then all at 1, then each at 1024 while the others are 1, but for the leading one of an input,
    which is 128 where there are others; a lone one at 128 as well; at most 6. Sizes move where they would not fit
    together. InputError for a size that the model does not have, or for more than 16 bindings."""
    combinations = [dict(zip(dims, values, strict=True)) for values in itertools.product(*map(_numbers, dims.values()))]
    if not combinations:
        raise InputError("a size is asked for, and no number of it: give one or more")
    if (count := len(combinations)) > MOST_ASKED:
        raise InputError(f"{count} bindings of sizes are asked for, and {MOST_ASKED} are the most: give fewer")
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
