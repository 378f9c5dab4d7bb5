"""Two neighbouring cells of bfloat16 as one word: what C text says of loops that `schedules.pairs` has made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape
from noyau.ir.loops import Alloc, Axis, Buffer, Load, Loop, Store
from noyau.ir.walk import every_expression

if TYPE_CHECKING:
    from noyau.codegen.c.expressions import CExpressions

Place = tuple[str, Shape]
PAIRS = """/* Two neighbours of 16 bits as one word, the first one in its lower half. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "pairs of cells are read as words of a little-endian machine"
#endif
#include <string.h>
static inline uint32_t noyau_pair(const uint16_t *cells)
{
    uint32_t pair;
    memcpy(&pair, cells, sizeof pair);
    return pair;
}

static inline void noyau_store_pair(uint16_t *cells, uint32_t pair)
{
    memcpy(cells, &pair, sizeof pair);
}"""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of a loop, each by the place of its first cell: those that are loaded, and those that are stored."""

    loaded: tuple[Place, ...] = ()
    stored: tuple[Place, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.loaded or self.stored)


@dataclass(slots=True)
class Open:
    """The pairs of the loop that is being printed: the words that were loaded, and the cells whose neighbours come."""

    words: dict[Place, str] = field(default_factory=dict)
    halves: dict[Place, str] = field(default_factory=dict)
    stored: frozenset[Place] = frozenset()


def pairs_of(loop: Loop, memory: Mapping[str, Buffer | Alloc]) -> Pairs:
    """The pairs of a loop in lanes over pairs."""
    if loop.axis is not Axis.LANES:
        return Pairs()
    loads = dict.fromkeys((e.buffer, e.index) for e in every_expression(loop.body) if isinstance(e, Load))
    stores = dict.fromkeys((s.buffers[0], s.index) for s in loop.body if isinstance(s, Store) and _is_float(s))
    return Pairs(*(tuple(p for p in found if _begins(p, found, loop.var, memory)) for found in (loads, stores)))


def _begins(place: Place, found: Mapping[Place, None], variable: str, memory: Mapping[str, Buffer | Alloc]) -> bool:
    """Whether a cell is the first one of a pair, of which both are there."""
    name, index = place
    step = index[-1].replace({variable: Dim.of(variable) + 1}) - index[-1]
    known = name in memory and memory[name].dtype is DType.BF16 and len(index) == 1
    return known and step == Dim.of(2) and after(place) in found and before(place) not in found


def after(place: Place) -> Place:
    return place[0], (*place[1][:-1], place[1][-1] + 1)


def before(place: Place) -> Place:
    return place[0], (*place[1][:-1], place[1][-1] - 1)


def _is_float(store: Store) -> bool:
    return store.merge is None and [value.dtype for value in store.values] == [DType.F32]


def open_pairs(loop: Loop, said: CExpressions) -> Iterator[str]:
    """The words of neighbours that a loop reads in pairs; what it stores in pairs is noted."""
    found = pairs_of(loop, said.memory)
    said.pairs = Open(stored=frozenset(found.stored))
    said.preludes |= {"pairs"} if found else set()
    for name, index in found.loaded:
        word = said.names.bind(f"pair {len(said.pairs.words)}", f"{name}_pair")
        said.pairs.words[name, index] = word
        yield f"    const uint32_t {word} = noyau_pair(&{said.cell(name, index)});"


def in_pair(store: Store, said: CExpressions) -> str | None:
    """The Store of one of two neighbours: the first one waits for the second; None for any other Store."""
    place, pairs = (store.buffers[0], store.index), said.pairs
    if not pairs.stored:
        return None
    if place in pairs.stored:
        held = said.names.bind(f"even {len(pairs.halves)}", f"{place[0]}_even")
        pairs.halves[place] = held
        return f"const float {held} = {said.top(store.values[0])};"
    first = before(place)
    if first not in pairs.halves:
        return None
    said.functions.add("noyau_f32_to_bf16_pair")
    both = f"noyau_f32_to_bf16_pair({pairs.halves[first]}, {said.top(store.values[0])})"
    return f"noyau_store_pair(&{said.cell(*first)}, {both});"
