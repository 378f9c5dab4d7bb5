"""Neighbouring cells shared by the threads of a block, which move 16 bytes at once where alignment permits.

If all arrays that a loop walks along become aligned after the same number of cells, the cells between are vectors, with
a few left at both ends; else all are left, and thread k takes every so many-th from k on. Only a run knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from noyau.compiler.schedules.primitives import Statements, compare
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, Shape

BYTES = 16  # the bytes that a thread moves at once
NARROWEST = 2  # bytes of a cell: narrower cells have vectors of as many cells
ZERO, ONE = Dim.of(0), Dim.of(1)

Place = tuple[str, Shape]  # a buffer, and an index into it
Memory = Mapping[str, ir.Buffer | ir.Alloc]


@dataclass(frozen=True, slots=True)
class Piece:
    """Cells of an axis that the threads of a block share: `length` of them from `begin` on."""

    begin: Dim
    length: Dim
    threads: int
    cells: int  # of a vector


@dataclass(frozen=True, slots=True)
class Steps:
    """Statements for each cell; and, if vectors differ, for a vector: before its cells, for each, after them."""

    of_cell: Statements
    of_vector: tuple[Statements, Statements, Statements] | None = None


def width_of(buffers: Sequence[ir.Buffer]) -> int:
    """The cells of a vector of several buffers: as many as fill 16 bytes of the narrowest buffer."""
    return BYTES // max(NARROWEST, min((buffer.dtype.bytes for buffer in buffers), default=BYTES))


def is_straight(body: Statements) -> bool:
    """Whether statements only compute, look up and store."""
    return all(isinstance(s, ir.Let | ir.Require | ir.Store) and not walk.folds_in((s,)) for s in body)


def is_along(memory: ir.Buffer | ir.Alloc, index: Shape, variable: str) -> bool:
    """Whether neighbouring rounds of a loop access neighbouring cells."""
    there = {variable: Dim.of(variable) + 1}
    *outer, last = (dim.replace(there) - dim for dim in index)
    lies = not isinstance(memory, ir.Buffer) or memory.layout != "strided"
    return lies and last == ONE and all(step == ZERO for step in outer)


def places_along(memory: Memory, body: Statements, variable: str) -> list[Place]:
    """Find the arrays that a loop walks along, each place once, at its first round; none if a round has loops."""
    if not is_straight(body):
        return []
    loads = [(load.buffer, load.index) for load in walk.loads_of(body) if load.where is None]
    whole = (s for s in body if isinstance(s, ir.Store) and (s.is_atomic or not s.merge))
    stores = [(name, s.index) for s in whole for name in s.buffers]
    named = {s.name for s in body if isinstance(s, ir.Let)}
    plain = [(name, index) for name, index in (*loads, *stores) if not any(dim.names & named for dim in index)]
    firsts = (
        (name, tuple(dim.replace({variable: ZERO}) for dim in index))
        for name, index in plain
        if isinstance(memory.get(name), ir.Buffer) and is_along(memory[name], index, variable)
    )
    return list(dict.fromkeys(firsts))


def spread(
    piece: Piece, variable: str, steps: Steps, tag: str, lane: Dim, places: Sequence[Place]
) -> tuple[Statements, Statements]:
    """Statements of all threads before, and those of the thread `lane`: `steps` over its cells of a piece, which
    `variable` walks along. `places` are to be aligned, with the variable at 0; without any, each cell is accessed
    alone."""
    rest = f"{variable}_rest"
    if not places:
        own = walk.substitute(steps.of_cell, {variable: piece.begin + Dim.of(variable)})
        return (), (_each(variable, piece.length, piece, lane, own),)
    before = _split_cells(piece, tag, places)
    until, vectors = Dim.of(f"#until_{tag}"), Dim.of(f"#vectors_{tag}")
    first, each, last = steps.of_vector or ((), steps.of_cell, ())
    cell, over = f"{variable}_cell", f"{variable}_at"
    at = piece.begin + until + Dim.of(variable) * piece.cells + Dim.of(cell)
    cells = ir.Loop(cell, Dim.of(piece.cells), ir.Axis.VECTOR, walk.substitute(each, {variable: at}))
    wide = _each(variable, vectors, piece, lane, (*first, cells, *last))
    at_begin, behind = ir.Index(Dim.of(rest)), ir.Index(Dim.of(rest) + vectors * piece.cells)
    place = ir.Call("where", (compare("less", Dim.of(rest), until), at_begin, behind), DType.I64)
    left = (ir.Let(over, place), *walk.substitute(steps.of_cell, {variable: piece.begin + Dim.of(over)}))
    return before, (wide, _each(rest, piece.length - vectors * piece.cells, piece, lane, left))


def _each(variable: str, count: Dim, piece: Piece, lane: Dim, body: Statements) -> ir.Loop:
    """The rounds of a thread: every `threads`-th of `count`."""
    return ir.Loop(variable, count, ir.Axis.SERIAL, body, start=lane, step=piece.threads)


def _split_cells(piece: Piece, tag: str, places: Sequence[Place]) -> Statements:
    """The cells before the first vector, and the number of vectors: 0 if the places are aligned at different cells."""
    begins = [(name, (*outer, last + piece.begin)) for name, (*outer, last) in places]
    aligned = [ir.CellsToAlignment(piece.cells, *begin, piece.length) for begin in begins]
    untils = [ir.Let(f"#until{at or ''}_{tag}", each) for at, each in enumerate(aligned)]
    first, *others = (Dim.of(each.name) for each in untils)
    agree = ir.all_of(compare("equal", first, other) for other in others)
    count: ir.Expr = ir.Index((piece.length - first) // piece.cells)
    if not isinstance(agree, bool):
        count = ir.Call("where", (agree, count, ir.Index(ZERO)), DType.I64)
    return (*untils, ir.Let(f"#vectors_{tag}", count))
