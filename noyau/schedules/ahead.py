"""The next row of a thread, fetched while this one is written.

A kernel that passes over a row several times waits for memory in the first pass, and leaves memory idle in the others:
no processor sees from a pass over what is in its cache what will be read after it. The next row goes to the second
cache: in the first one there is no room for two of them (layer norm of rows of 16 KiB took three times as long there).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from noyau.ir.dims import Dim, DimLike, Shape
from noyau.ir.loops import Alloc, Axis, Buffer, Call, If, Kernel, Load, Loop, Prefetch, Role, Statement
from noyau.ir.operators import OPERATORS
from noyau.ir.walk import every_expression, every_statement
from noyau.schedules.steps import Statements, loads_of, stride_of, with_bodies

LINE_BYTES = 64
DEAR = 8  # flops of a function of which a core does not do as many as memory brings cells


def fetch_ahead(kernel: Kernel) -> Kernel:
    """In passes that compute more than they read, strip by strip, the same strip of the next row is fetched."""
    inputs = {buffer.name: buffer for buffer in kernel.of(Role.INPUT)}

    def change(body: Statements) -> Statements:
        threads, rows = threads_of(body)
        return _with_strips(body, threads[-1], frozenset(), inputs) if threads and rows else body

    return with_bodies(kernel, change)


def threads_of(body: Statements) -> tuple[list[str], Statements]:
    """The variables of the loops on threads from the outside in, and what stands in the innermost of them."""
    found: list[str] = []
    while body and isinstance(last := body[-1], Loop) and last.axis is Axis.THREADS:
        found.append(last.var)
        body = last.body
    return found, body


def computes(body: Statements) -> bool:
    """Whether statements have a function that takes longer than a cell takes to memory."""
    calls = [expr for expr in every_expression(body) if isinstance(expr, Call)]
    return any(OPERATORS[call.function].flops >= DEAR for call in calls)


def _with_strips(
    body: Iterable[Statement], thread: str, around: frozenset[str], inputs: Mapping[str, Buffer]
) -> Statements:
    """`around`: the variables of the loops that the statements stand in."""
    made: list[Statement] = []
    for statement in body:
        match statement:
            case Loop(body=(Loop() as strip,)) if _is_serial_in_strips(statement, strip) and computes(strip.body):
                lines = _strips(strip, thread, around | {statement.var}, inputs)
                made.append(replace(statement, body=(*lines, strip)))
            case Loop(var=var):
                made.append(replace(statement, body=_with_strips(statement.body, thread, around | {var}, inputs)))
            case If():
                made.append(replace(statement, body=_with_strips(statement.body, thread, around, inputs)))
            case _:
                made.append(statement)
    return tuple(made)


def _is_serial_in_strips(loop: Loop, strip: Loop) -> bool:
    return loop.axis is Axis.SERIAL and strip.axis is Axis.LANES


def _strips(strip: Loop, thread: str, around: frozenset[str], inputs: Mapping[str, Buffer]) -> Iterable[Statement]:
    """The lines that a strip of known length reads, of inputs of which each row is another one, in the next row; not
    what loops within the strip read, which are many rows."""
    cells, seen = strip.extent.constant, set[str]()
    for load in _loads(strip.body, inputs):
        moves, line = any(thread in dim.names for dim in load.index), LINE_BYTES // load.dtype.bytes
        start = replaced(load.index, {strip.var: 0, thread: Dim.of(thread) + 1})
        known = all(name in around for dim in start for name in dim.names if name.startswith("#"))
        if cells and stride_of(load, strip.var) == Dim.of(1) and moves and known and load.buffer not in seen:
            seen.add(load.buffer)
            yield from (Prefetch(load.buffer, further(start, at)) for at in range(0, cells, line))


def replaced(index: Shape, values: Mapping[str, DimLike]) -> Shape:
    return tuple(dim.replace(values) for dim in index)


def further(index: Shape, cells: DimLike) -> Shape:
    """The index of the cell that lies so many cells further in memory, in a row whose cells lie side by side."""
    return (*index[:-1], index[-1] + cells)


@dataclass(frozen=True, slots=True)
class Row:
    """Where the next row of an input begins, and how long it is, in cells."""

    buffer: Buffer
    start: Shape
    length: Dim


def next_rows(body: Statements, inputs: Mapping[str, Buffer]) -> tuple[Row, ...]:
    """The rows that the next round of the innermost loop on threads reads, of inputs whose rows follow one another.
    None where a row is passed over but once: what it reads next is what follows, which processors see (fetched by
    hints as well, rotary took 1.2 times as long)."""
    threads, inner = threads_of(body)
    if not any(isinstance(s, Alloc) for s in inner):  # the states of a fold
        return ()
    fetched = {s.buffer for s in every_statement(inner) if isinstance(s, Prefetch)}
    loops: dict[str, DimLike] = {s.var: 0 for s in every_statement(inner) if isinstance(s, Loop)}
    found: dict[str, Row] = {}
    for load in _loads(inner, inputs) if threads else ():
        buffer, start = inputs[load.buffer], replaced(load.index, loops)
        following = replaced(start, {threads[-1]: Dim.of(threads[-1]) + 1})
        first = load.buffer not in found or _terms(following) < _terms(found[load.buffer].start)
        names = frozenset[str]().union(*(dim.names for dim in start))
        known = all(name in threads for name in names if name.startswith("#"))
        if first and known and threads[-1] in names and load.buffer not in fetched:
            length = following[-1] - start[-1] if buffer.strides is None else buffer.shape[-1]
            found[load.buffer] = Row(buffer, following, length)
    return tuple(found.values())


def _terms(index: Shape) -> int:
    return sum(len(dim.terms) for dim in index)


def _loads(body: Statements, inputs: Mapping[str, Buffer]) -> Iterable[Load]:
    """The loads from inputs whose rows lie in lines of memory."""
    return (load for load in loads_of(body) if load.buffer in inputs and inputs[load.buffer].layout != "strided")


def fetch(rows: Iterable[Row], loop: Loop, begin: Dim, cells: int) -> tuple[Statement, ...]:
    """`cells` cells of the next rows, from `begin` on, line by line; of those rows that are as long as `loop` runs."""
    made: list[Statement] = []
    for row in rows:
        if row.length == loop.extent:
            line, var = LINE_BYTES // row.buffer.dtype.bytes, f"{loop.var}p"
            at = further(row.start, begin + Dim.of(var) * line)
            made.append(Loop(var, Dim.of(cells // line), Axis.SERIAL, (Prefetch(row.buffer.name, at),)))
    return tuple(made)
