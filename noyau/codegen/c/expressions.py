"""Expressions of the loop IR as C text, and two neighbouring cells of bfloat16 as one word, in loops that
`schedules.cpu.packed_pairs` has made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from noyau.codegen import statements
from noyau.codegen.c.tables import INTEGER_FUNCTIONS, PREFIX, TYPES, const_text, narrow
from noyau.codegen.identifiers import Scopes
from noyau.codegen.statements import is_variable
from noyau.codegen.tables import closed, opened
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, Shape, never_negative
from noyau.ir.loops import Alloc, Axis, Buffer, Expr, InWholeLines, Kernel, Load, Loop, Store
from noyau.ir.ranges import at_least_one, lowest
from noyau.ir.walk import every_expression


class CExpressions(statements.Expressions):
    """The expressions of one kernel in C."""

    language = "c"
    prefix, integer_functions = PREFIX, INTEGER_FUNCTIONS

    def __init__(self, kernel: Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.absurd = False  # whether sizes may be so large that arithmetic on them overflows
        self.pairs = Open()

    def const(self, value: float | int | bool, dtype: DType) -> str:
        return const_text(value, dtype)

    def cell(self, name: str, index: Shape) -> str:
        memory = self.memory[name]
        if isinstance(memory, Buffer) and memory.strides is not None:
            index = (sum((at * stride for at, stride in zip(index, memory.strides, strict=True)), Dim.of(0)),)
        if len(index) != 1:
            raise UnsupportedError(f"c has no {len(index)} indices of {name}: flatten comes before it prints")
        if is_variable(memory):
            return self.names.value(name)
        return f"{self.names.value(name)}[{self.dim(index[0])}]"

    def load(self, load: Load) -> str:
        if self.pairs.words and (half := self.half(load)) is not None:
            return half
        return super().load(load)

    def in_whole_lines(self, tile: InWholeLines) -> str:
        whole = [] if tile.length.constant is not None else [f"{self.dim(tile.length)} == {tile.cells}"]
        begins = [f"noyau_begins_line(&{self.cell(name, index)})" for name, index in tile.places]
        return " && ".join([*whole, *begins])

    def half(self, load: Load) -> str | None:
        """A cell of a pair that was loaded as a word."""
        place = (load.buffer, load.index)
        for at, name in ((place, "noyau_bf16_low_to_f32"), (before(place), "noyau_bf16_high_to_f32")):
            if at in self.pairs.words:
                self.functions.add(name)
                return f"{name}({self.pairs.words[at]})"
        return None

    def chosen(self, condition: str, value: str, other: str) -> str:
        return f"({condition} ? {value} : {other})"

    def own(self, function: str, operands: tuple[Expr, ...]) -> str | None:
        if function != "is_inf":
            return None
        text = self.expr(operands[0])
        return f"(({text} == INFINITY) | ({text} == -INFINITY))"

    def narrow(self, text: str, dtype: DType) -> str:
        return narrow(text, dtype)

    def converted(self, operand: Expr, dtype: DType) -> str:
        text = self.expr(operand)
        return f"({text} != 0)" if dtype is DType.BOOL else f"(({TYPES[dtype]}){text})"

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """C divides towards zero, Dims downwards: one stands for the other only where nothing can be negative. A size
        that divides may be 0 where nothing makes sure that its loop runs."""
        if op.kind == "max":
            return self.integer_call("maximum", DType.I64, opened(left), opened(right))
        if op.kind == "min":
            return self.integer_call("minimum", DType.I64, opened(left), opened(right))
        if self.is_natural(op.left) and self.is_positive(op.right):
            return f"({closed(left)} {'/' if op.kind == 'floordiv' else '%'} {closed(right)})"
        function = "floor_divide" if op.kind == "floordiv" else "floor_mod"
        return self.integer_call(function, DType.I64, opened(left), opened(right))

    def is_positive(self, dim: Dim) -> bool:
        match dim.terms:
            case (((DimOp(kind="max") as op,), 1),):
                return self.is_positive(op.left) or self.is_positive(op.right)
            case _:
                return (dim.constant or 0) > 0 if self.absurd else self.is_natural(dim - 1)

    def is_natural(self, dim: Dim) -> bool:
        """Whether it is surely >= 0 here, where every open loop runs."""
        match dim.terms:
            case (((DimOp(kind="max") as op,), -1),):
                return self.is_natural(-op.left) and self.is_natural(-op.right)
            case _:
                pass
        if any(self.is_rest(dim, name, extent) for name, extent in self.extents.items()):
            return True
        low = lowest(dim, self.required | self.extents)
        running = frozenset[str]().union(*(at_least_one(extent) for extent in self.extents.values()))
        return low is not None and never_negative(low, running)

    def is_rest(self, dim: Dim, name: str, extent: Dim) -> bool:
        """Whether it is what is left of a length when a loop has come to its tile `name`."""
        step = -dict(dim.terms).get((name,), 0)
        length = dim + Dim.of(name) * step
        return step > 0 and name not in length.names and extent == (length + (step - 1)) // step


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
    return Pairs(*(tuple(p for p in places if _begins(p, places, loop.var, memory)) for places in (loads, stores)))


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


def open_pairs(loop: Loop, said: CExpressions) -> Iterator[str]:
    """The words of neighbours that a loop reads in pairs; what it stores in pairs is noted."""
    pairs = pairs_of(loop, said.memory)
    said.pairs = Open(stored=frozenset(pairs.stored))
    said.preludes |= {"pairs"} if pairs else set()
    for name, index in pairs.loaded:
        word = said.names.bind(f"pair {len(said.pairs.words)}", f"{name}_pair")
        said.pairs.words[name, index] = word
        yield f"    const uint32_t {word} = noyau_pair(&{said.cell(name, index)});"


def in_pair(store: Store, said: CExpressions) -> str | None:
    """The Store of one of two neighbours: the first one waits for the second; None for any other Store."""
    place, pairs = (store.buffers[0], store.index), said.pairs
    if not pairs.stored:
        return None
    if place in pairs.stored:
        even = said.names.bind(f"even {len(pairs.halves)}", f"{place[0]}_even")
        pairs.halves[place] = even
        return f"const float {even} = {said.top(store.values[0])};"
    first = before(place)
    if first not in pairs.halves:
        return None
    said.functions.add("noyau_f32_to_bf16_pair")
    both = f"noyau_f32_to_bf16_pair({pairs.halves[first]}, {said.top(store.values[0])})"
    return f"noyau_store_pair(&{said.cell(*first)}, {both});"
