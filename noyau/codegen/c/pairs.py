"""Pairs of neighbouring cells of bfloat16, one word each in loops that `schedules.cpu.packed_pairs` has made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape
from noyau.ir.loops import Alloc, Axis, Buffer, Load, Loop, Store
from noyau.ir.walk import every_expression

Place = tuple[str, Shape]


@dataclass(slots=True)
class Open:
    """The pairs of the loop that is being printed: the words that were loaded, and the cells whose neighbours come."""

    words: dict[Place, str] = field(default_factory=dict)
    halves: dict[Place, str] = field(default_factory=dict)
    stored: frozenset[Place] = frozenset()


def pairs_of(loop: Loop, memory: Mapping[str, Buffer | Alloc]) -> tuple[list[Place], list[Place]]:
    """The pairs of a loop in lanes over pairs, each by the place of its first cell: those that are loaded, and those
    that are stored."""
    if loop.axis is not Axis.LANES:
        return [], []
    loads = dict.fromkeys((e.buffer, e.index) for e in every_expression(loop.body) if isinstance(e, Load))
    stores = dict.fromkeys((s.buffers[0], s.index) for s in loop.body if isinstance(s, Store) and _is_float(s))
    loaded, stored = ([p for p in places if _begins(p, places, loop.var, memory)] for places in (loads, stores))
    return loaded, stored


def _begins(place: Place, places: Mapping[Place, None], variable: str, memory: Mapping[str, Buffer | Alloc]) -> bool:
    """Whether a cell is the first one of a pair, of which both are there."""
    name, index = place
    step = index[-1].replace({variable: Dim.of(variable) + 1}) - index[-1]
    is_bf16 = name in memory and memory[name].dtype is DType.BF16 and len(index) == 1
    return is_bf16 and step == Dim.of(2) and after(place) in places and before(place) not in places


def after(place: Place) -> Place:
    return place[0], (*place[1][:-1], place[1][-1] + 1)


def before(place: Place) -> Place:
    return place[0], (*place[1][:-1], place[1][-1] - 1)


def _is_float(store: Store) -> bool:
    return store.merge is None and [value.dtype for value in store.values] == [DType.F32]
