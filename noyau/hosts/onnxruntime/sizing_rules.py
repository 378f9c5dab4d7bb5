"""Sizes that fit together: a mask as long as past and present, no more positions than a table has rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from noyau.compiler.lowering.size_guards import guards
from noyau.ir.dims import Dim

if TYPE_CHECKING:
    from noyau.frontends.onnx import Imported

Bound = tuple[Dim, Dim]  # the first is at most the second
_MOST_MOVES = 64


def fit_sizes(sizes: Mapping[str, int], imported: Imported, fixed: Collection[str] = ()) -> dict[str, int]:
    """The sizes, of which those that are not fixed are moved until no view of the model reads beyond what it views and
    extents that must be equal are, as far as that can be."""
    found, bounds = (
        dict(sizes),
        [bound for bound in _bounds(imported) if bound[0].names | bound[1].names <= sizes.keys()],
    )
    for _ in range(_MOST_MOVES):
        broken = next((bound for bound in bounds if _excess(bound, found) > 0), None)
        if broken is None:
            return found
        move = next(_moves(broken, found, fixed), None)
        if move is None:
            bounds.remove(broken)
        else:
            found.update([move])
    return found


def _bounds(imported: Imported) -> Iterator[Bound]:
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
    """Candidates for one size so that a bound holds, or nearly: a larger one before a smaller one, those that are large
    first."""
    excess, names = _excess(bound, sizes), (bound[0] - bound[1]).names - set(fixed)
    for step in (1, -1):
        for name in sorted(names, key=lambda name: (-sizes[name], name)):
            gain = excess - _excess(bound, {**sizes, name: sizes[name] + step})
            moved = max(sizes[name] + step * -(-excess // max(gain, 1)), 1)
            if gain > 0 and moved != sizes[name]:
                yield name, moved
