"""Loops in lanes, once they are scheduled: cut where a condition changes, in pairs of narrow cells, in lines of memory.

A cell that is read only where a condition holds is a load with a mask, and what is chosen from is computed for all
cells. Up to the place where the condition changes, and from there on, each cell does the same, without any condition.
(Rotary of 32 heads of 1024 x 128 cells took 1.75 times as long.) Where it is certain that such a place is within the
loop, lowering has cut it; here it may be before the first cell, or behind the last one, as the half of a row of unknown
length may be in each of its tiles.

A vector of floats has room for half as many cells as one of bfloat16, so a compiler spreads and packs cells, which
takes longer than what is computed of them. Two neighbours are one word of 32 bits, of which each half is a float but
for a shift or a mask. So loops whose cells all are of bfloat16 do an even and an odd one in each round.

Tiles that are written around the caches go a few lines at a time: where one begins with a line, its cells need not go
through memory of the thread, for the compiler keeps so many in registers. Tiles beside which something is fetched stay
whole: there memory is read and written in turns, in long runs (rmsnorm took 1.14 times as long).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from noyau.compiler.schedules.primitives import (
    Statements,
    change_each,
    drop_unused,
    either,
    minimum,
    stride_of,
    with_bodies,
)
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, maximum
from noyau.ir.substitution import rewrite, substitute
from noyau.ir.walk import every_expression, every_statement, loads_of

# Cells of a loop of known length that is worth it: rows of 16 and 32 cells take up to 1.9 and 1.3 times as long in two
# loops, those of 64 cells 0.8 (where one branch is an exponential) to 1.07 times, those of 256 cells 0.65 to 0.92.
LONG = 64
ONE = Dim.of(1)
Change = tuple[Dim, bool]  # from which round of a loop on a condition is another one, and what it is before


def cut_at_bounds(kernel: ir.Kernel) -> ir.Kernel:
    """Each loop in lanes whose cells do one of two things by their place, as two loops."""
    return with_bodies(kernel, lambda body: change_each(body, _cut))


def _cut(loop: ir.Statement) -> Statements | None:
    """The rounds of a loop before the one place where conditions change, and those from there on; the loop where there
    is none, or more than one."""
    if not isinstance(loop, ir.Loop) or loop.axis is not ir.Axis.LANES:
        return None
    changes = {change[0] for expr in every_expression(loop.body) if (change := _change(expr, loop.var))}
    own = {s.name for s in loop.body if isinstance(s, ir.Let)}
    if len(changes) != 1 or not _is_worth(loop) or any(point.names & own for point in changes):
        return (loop,)
    (point,) = changes
    until = Dim.of(f"{loop.var}_until")
    behind = substitute(_decided(loop, before=False), {loop.var: until + Dim.of(loop.var)})
    return (
        ir.Let(str(until), ir.Index(minimum(maximum(point, 0), loop.extent))),
        replace(loop, extent=until, body=_decided(loop, before=True)),
        replace(loop, extent=loop.extent - until, body=behind),
    )


def _is_worth(loop: ir.Loop) -> bool:
    """Whether a loop may be long, and does nothing but to compute values of cells and to store them."""
    straight = all(isinstance(s, ir.Let) or (isinstance(s, ir.Store) and not s.merge) for s in loop.body)
    return straight and (loop.extent.constant or LONG) >= LONG


def _change(expr: ir.Expr, variable: str) -> Change | None:
    """The round in which a comparison of places changes, if it does once as a variable grows by one a round."""
    match expr:
        case ir.Call("less", (ir.Index(left), ir.Index(right))):
            below = left - right
        case ir.Call("less_equal", (ir.Index(left), ir.Index(right))):
            below = left - right - 1
        case ir.Call("greater", (ir.Index(left), ir.Index(right))):
            below = right - left
        case ir.Call("greater_equal", (ir.Index(left), ir.Index(right))):
            below = right - left - 1
        case _:
            return None
    at_first, step = below.replace({variable: 0}), below.replace({variable: Dim.of(variable) + 1}) - below
    if step == ONE:
        return -at_first, True
    return (at_first + 1, False) if step == -ONE else None


def _decided(loop: ir.Loop, *, before: bool) -> Statements:
    """The body of a loop where the conditions are what they are before they change, or from there on."""
    constants: dict[str, ir.Const] = {}

    def simpler(expr: ir.Expr) -> ir.Expr:
        if (change := _change(expr, loop.var)) is not None:
            return ir.Const(change[1] == before, DType.BOOL)
        return _simpler(constants.get(expr.name, expr) if isinstance(expr, ir.Var) else expr)

    body: list[ir.Statement] = []
    for statement in loop.body:
        body += rewrite((statement,), simpler)
        if isinstance(let := body[-1], ir.Let) and isinstance(let.value, ir.Const) and let.value.dtype is DType.BOOL:
            constants[let.name] = let.value
    return drop_unused(tuple(body))


def _simpler(expr: ir.Expr) -> ir.Expr:
    """An expression of which conditions are known."""
    match expr:
        case ir.Call("logical_not", (ir.Const(value),)):
            return ir.Const(not value, DType.BOOL)
        case ir.Call("logical_and", (ir.Const(value) as one, other) | (other, ir.Const(value) as one)):
            return other if value else one
        case ir.Call("logical_or", (ir.Const(value) as one, other) | (other, ir.Const(value) as one)):
            return one if value else other
        case ir.Call("where", (ir.Const(value), one, other)):
            return one if value else other
        case ir.Load(where=ir.Const(True)):
            return replace(expr, where=None, other=None)
        case ir.Load(where=ir.Const(False), other=ir.Const(value)):
            return ir.Const(value, expr.dtype)
        case _:
            return expr


PAIRED = 16  # cells of a loop of known length that is worth it


def in_pairs(kernel: ir.Kernel) -> ir.Kernel:
    """The loops in lanes over neighbouring cells of bfloat16, which load and store nothing else that differs from cell
    to cell, two cells a round."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}

    def in_body(body: Statements) -> Statements:
        memory = buffers | {s.name: s.dtype for s in every_statement(body) if isinstance(s, ir.Alloc)}

        def change(loop: ir.Statement) -> Statements | None:
            return _paired(loop) if isinstance(loop, ir.Loop) and _is_of_halves(loop, memory) else None

        return change_each(body, change)

    return with_bodies(kernel, in_body)


def _is_of_halves(loop: ir.Loop, memory: Mapping[str, DType]) -> bool:
    """Whether a loop goes from cell to cell of bfloat16 alone, and nothing it does may be left out."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    plain = all([value.dtype for value in s.values] == [DType.F32] and s.merge is None for s in stores)
    straight = plain and all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
    if loop.axis is not ir.Axis.LANES or not straight or (loop.extent.constant or PAIRED) < PAIRED:
        return False
    accesses: list[ir.Load | ir.Store] = [*loads_of(loop.body), *stores]
    moving = [each for each in accesses if any(loop.var in dim.names for dim in each.index)]
    stored = any(isinstance(each, ir.Store) for each in moving)
    return stored and all(_is_half(each, loop.var, memory) for each in moving)


def _is_half(access: ir.Load | ir.Store, variable: str, memory: Mapping[str, DType]) -> bool:
    name = access.buffer if isinstance(access, ir.Load) else access.buffers[0]
    masked = isinstance(access, ir.Load) and access.where is not None
    return memory.get(name) is DType.BF16 and stride_of(access, variable) == Dim.of(1) and not masked


def _paired(loop: ir.Loop) -> Statements:
    """The loop over pairs, and one over the last cell where their number is odd."""
    half, first = f"{loop.var}h", Dim.of(f"{loop.var}h") * 2
    even = substitute(loop.body, {loop.var: first})
    odd = _renamed(substitute(loop.body, {loop.var: first + 1}))
    pairs = ir.Loop(half, loop.extent // 2, ir.Axis.LANES, (*even, *odd))
    if loop.extent % 2 == Dim.of(0):
        return (pairs,)
    last = substitute(loop.body, {loop.var: loop.extent // 2 * 2 + Dim.of(loop.var)})
    return pairs, replace(loop, extent=loop.extent % 2, body=last)


def _renamed(body: Statements) -> Statements:
    """The statements with names of their own for their Lets."""
    names = {s.name: f"{s.name}.odd" for s in body if isinstance(s, ir.Let)}

    def read(expr: ir.Expr) -> ir.Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, ir.Var) else expr

    return tuple(replace(s, name=names[s.name]) if isinstance(s, ir.Let) else s for s in rewrite(body, read))


LINED = 32  # at a time: of 16 gcc 12 unrolls the loop whole, and vectorises no more what then chooses between values
WORD_BYTES = 4  # or more: narrower cells are computed in pairs, or packed


@dataclass(frozen=True, slots=True)
class StagedTile:
    """A tile of values in memory of the thread, and its copies to outputs, around the caches."""

    memory: tuple[ir.Alloc, ...]
    tile: ir.Loop
    copies: tuple[ir.StreamStore, ...]

    @property
    def statements(self) -> Statements:
        return (*self.memory, self.tile, *self.copies)

    @property
    def cells(self) -> int:
        """The cells of a whole tile."""
        return self.memory[0].shape[0].constant or 0

    def is_divisible(self) -> bool:
        """Whether whole tiles can be cut, and each cell is computed by itself."""
        cells = all(isinstance(s, ir.Let | ir.Store) for s in self.tile.body)
        alike = {alloc.shape for alloc in self.memory}
        words = all(alloc.dtype.bytes >= WORD_BYTES for alloc in self.memory)
        long = self.cells > LINED and self.cells % LINED == 0 and self.tile.extent.constant in (None, self.cells)
        whole = all(copy.extent == self.tile.extent and copy.start == Dim.of(0) for copy in self.copies)
        own = [alloc.name for alloc in self.memory] == [copy.memory for copy in self.copies]
        return cells and words and long and len(alike) == 1 and whole and own


def in_lines(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with tiles of words that go around the caches written a few lines at a time, where they begin with
    one."""
    return with_bodies(kernel, _lined)


def _lined(body: Iterable[ir.Statement]) -> Statements:
    result: list[ir.Statement] = []
    rest = tuple(body)
    while rest:
        if (tile := staged_tile(rest)) is not None:
            result += _whole_or_not(tile)
            rest = rest[len(tile.statements) :]
            continue
        statement, *_ = rest
        inner = replace(statement, body=_lined(statement.body)) if isinstance(statement, ir.Loop | ir.If) else statement
        result.append(inner)
        rest = rest[1:]
    return tuple(result)


def staged_tile(statements: Sequence[ir.Statement]) -> StagedTile | None:
    """The tile that statements begin with, if it can go so."""
    memory = tuple(s for s in takewhile(lambda s: isinstance(s, ir.Alloc), statements) if isinstance(s, ir.Alloc))
    after = statements[len(memory) : 2 * len(memory) + 1]
    copies = tuple(s for s in after[1:] if isinstance(s, ir.StreamStore))
    if not memory or len(copies) < len(memory) or memory[0].space is not ir.Space.REGISTER:
        return None
    tile = after[0]
    if not isinstance(tile, ir.Loop) or tile.axis is not ir.Axis.LANES:
        return None
    staged = StagedTile(memory, tile, copies)
    return staged if staged.is_divisible() else None


def _whole_or_not(staged: StagedTile) -> Statements:
    """The tile in lines where it is whole and begins with a line wherever it is written; else as it is."""
    places = tuple((copy.buffer, copy.index) for copy in staged.copies)
    whole = ir.InWholeLines(staged.tile.extent, staged.cells, places)
    return either(whole, (_lines(staged),), staged.statements)


def _lines(staged: StagedTile) -> ir.Loop:
    """A whole tile as a loop over a few lines at a time."""
    count, tile = Dim.of(LINED), staged.tile
    at = f"{tile.var}l"
    start = Dim.of(at) * count
    memory = tuple(replace(alloc, name=_lines_of(alloc.name), shape=(count,)) for alloc in staged.memory)
    body: list[ir.Statement] = []
    for statement in substitute(tile.body, {tile.var: start + Dim.of(tile.var)}):
        if isinstance(statement, ir.Store):
            names = tuple(map(_lines_of, statement.buffers))
            statement = replace(statement, buffers=names, index=(Dim.of(tile.var),))
        body.append(statement)
    copies: list[ir.Statement] = []
    for copy in staged.copies:
        *outer, last = copy.index
        place = (*outer, last + start)
        copies.append(replace(copy, index=place, memory=_lines_of(copy.memory), extent=count, lines=True))
    inner: Statements = (*memory, replace(tile, extent=count, body=tuple(body)), *copies)
    return ir.Loop(at, Dim.of(staged.cells // LINED), ir.Axis.SERIAL, inner)


def _lines_of(name: str) -> str:
    """The name of a few lines of an array of a tile."""
    return f"{name}.lines"
