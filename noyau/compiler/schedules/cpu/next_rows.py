"""The rows that the next round of a loop on threads reads, and the hints that fetch them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from noyau.compiler.schedules.primitives import Statements
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, Shape
from noyau.ir.walk import every_statement, loads_of


def threads_of(body: Statements) -> tuple[list[str], Statements]:
    """The variables of the loops on threads from the outside in, and what stands in the innermost of them."""
    variables: list[str] = []
    while body and isinstance(last := body[-1], ir.Loop) and last.axis is ir.Axis.THREADS:
        variables.append(last.var)
        body = last.body
    return variables, body


def replaced(index: Shape, values: Mapping[str, DimLike]) -> Shape:
    return tuple(dim.replace(values) for dim in index)


@dataclass(frozen=True, slots=True)
class NextRow:
    """The begin of the next row of an input, and its length in cells."""

    buffer: ir.Buffer
    start: Shape
    length: Dim


def next_rows(body: Statements, inputs: Mapping[str, ir.Buffer]) -> tuple[NextRow, ...]:
    """The rows that the next round of the innermost loop on threads reads, of inputs whose rows follow one another.
    None where a row is passed over but once: what it reads next is what follows, which processors see (fetched by
    hints as well, rotary took 1.2 times as long)."""
    threads, inner = threads_of(body)
    if not any(isinstance(s, ir.Alloc) for s in inner):  # the states of a fold
        return ()
    fetched = {s.buffer for s in every_statement(inner) if isinstance(s, ir.Prefetch)}
    loops: dict[str, DimLike] = {s.var: 0 for s in every_statement(inner) if isinstance(s, ir.Loop)}
    rows: dict[str, NextRow] = {}
    for load in loads_from(inner, inputs) if threads else ():
        buffer, start = inputs[load.buffer], replaced(load.index, loops)
        following = replaced(start, {threads[-1]: Dim.of(threads[-1]) + 1})
        first = load.buffer not in rows or _terms(following) < _terms(rows[load.buffer].start)
        names = frozenset[str]().union(*(dim.names for dim in start))
        known = all(name in threads for name in names if name.startswith("#"))
        if first and known and threads[-1] in names and load.buffer not in fetched:
            length = following[-1] - start[-1] if buffer.strides is None else buffer.shape[-1]
            rows[load.buffer] = NextRow(buffer, following, length)
    return tuple(rows.values())


def _terms(index: Shape) -> int:
    return sum(len(dim.terms) for dim in index)


def loads_from(body: Statements, inputs: Mapping[str, ir.Buffer]) -> Iterable[ir.Load]:
    """The loads from inputs whose rows lie in lines of memory."""
    return (load for load in loads_of(body) if load.buffer in inputs and inputs[load.buffer].layout != "strided")


def fetch(rows: Iterable[NextRow], loop: ir.Loop, begin: Dim, cells: int) -> tuple[ir.Statement, ...]:
    """`cells` cells of the next rows, from `begin` on, line by line; of those rows that are as long as `loop` runs."""
    fetching: list[ir.Statement] = []
    for row in rows:
        if row.length == loop.extent:
            line, var = ir.LINE_BYTES // row.buffer.dtype.bytes, f"{loop.var}p"
            at = (*row.start[:-1], row.start[-1] + begin + Dim.of(var) * line)  # cells of a row lie side by side
            fetching.append(ir.Loop(var, Dim.of(cells // line), ir.Axis.SERIAL, (ir.Prefetch(row.buffer.name, at),)))
    return tuple(fetching)
