"""Hints that fetch the next row, into the second cache, while this one is computed: by a pass that computes more than
it reads, or the last of several that fold, else by the one that writes. docs/notes/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules.primitives import Statements, change_each, is_costly, most_of, stride_of, with_bodies
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, Shape
from noyau.ir.ranges import highest
from noyau.ir.walk import every_statement, loads_of, on_threads, substitute


def replace_names(index: Shape, values: Mapping[str, DimLike]) -> Shape:
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
    _, loops_on_threads, inner = on_threads(body)
    threads = [loop.var for loop in loops_on_threads]
    if not any(isinstance(s, ir.Alloc) for s in inner):  # the states of a fold
        return ()
    fetched = {s.buffer for s in every_statement(inner) if isinstance(s, ir.Prefetch)}
    loops: dict[str, DimLike] = {s.var: 0 for s in every_statement(inner) if isinstance(s, ir.Loop)}
    rows: dict[str, NextRow] = {}
    for load in loads_from(inner, inputs) if threads else ():
        buffer, start = inputs[load.buffer], replace_names(load.index, loops)
        following = replace_names(start, {threads[-1]: Dim.of(threads[-1]) + 1})
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
    fetching, var = list[ir.Statement](), f"{loop.var}p"
    for row in (row for row in rows if row.length == loop.extent):
        line = ir.LINE_BYTES // row.buffer.dtype.bytes
        at = (*row.start[:-1], row.start[-1] + begin + Dim.of(var) * line)  # cells of a row lie side by side
        fetching.append(ir.Loop(var, Dim.of(cells // line), ir.Axis.SERIAL, (ir.Prefetch(row.buffer.name, at),)))
    return tuple(fetching)


UNROLLED = 16  # cells of a strip that gcc 12 unrolls whole; beside a hint it then makes no vectors of them
AT_ONCE = 64  # lines that are fetched one after the other: those of a block of a fold


def insert_prefetches(kernel: ir.Kernel) -> ir.Kernel:
    """In passes that compute more than they read, else in the last of several folds, fetch strips of the next row."""
    inputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.INPUT)}

    def change(body: Statements) -> Statements:
        _, threads, rows = on_threads(body)
        if not (threads and rows):
            return body
        return _with_strips(body, _Next(threads[-1].var, inputs, _last_folds(rows, inputs)), frozenset())

    return with_bodies(kernel, change)


@dataclass(frozen=True, slots=True)
class _Next:
    """Candidates: rows of inputs, one further in the loop `thread`; `folds`: in which, where no pass computes."""

    thread: str
    inputs: Mapping[str, ir.Buffer]
    folds: Mapping[str, str]

    def at(self, loop: ir.Loop, strip: ir.Loop) -> frozenset[str]:
        """The inputs whose next strip is fetched with a strip."""
        if is_costly(strip.body):
            return frozenset(self.inputs)
        return frozenset(name for name, variable in self.folds.items() if variable == loop.var)


def _last_folds(body: Statements, inputs: Mapping[str, ir.Buffer]) -> dict[str, str]:
    """For each input that several folds read and no pass that computes, the variable of the last of them."""
    read, computed = dict[str, list[str]](), set[str]()
    for loop in (s for s in every_statement(body) if isinstance(s, ir.Loop)):
        strip = _strip_of(loop)
        for load in () if strip is None else loads_from(strip.body, inputs):
            if strip is not None and is_costly(strip.body):
                computed.add(load.buffer)
            elif strip is not None and stride_of(load, loop.var) == Dim.of(_lanes(loop, strip)):
                read.setdefault(load.buffer, []).append(loop.var)
    return {name: folds[-1] for name, folds in read.items() if len(set(folds)) > 1 and name not in computed}


def _with_strips(body: Iterable[ir.Statement], ahead: _Next, around: frozenset[str]) -> Statements:
    """`around`: the variables of the loops that the statements stand in."""

    def change(statement: ir.Statement) -> Statements | None:
        match statement:
            case ir.Loop(var=var) if (strip := _strip_of(statement)) is not None:
                return _fetching(statement, strip, tuple(_strips(statement, strip, ahead, around | {var})))
            case ir.Loop(var=var):
                return (replace(statement, body=_with_strips(statement.body, ahead, around | {var})),)
            case _:
                return None

    return change_each(body, change)


def _strip_of(loop: ir.Loop) -> ir.Loop | None:
    """The strip that each round of a loop goes through, if that is all it does."""
    *before, last = loop.body or (None,)
    strip = last if isinstance(last, ir.Loop) and last.axis is ir.Axis.LANES else None
    counted = len(before) <= 1 and all(isinstance(s, ir.Let) for s in before)
    return strip if loop.axis is ir.Axis.SERIAL and counted else None


def _lanes(loop: ir.Loop, strip: ir.Loop) -> int:
    """The cells of a whole strip; 0 where that is not known."""
    lengths = {s.name: most_of(s.value) for s in loop.body if isinstance(s, ir.Let)}
    return lengths.get(str(strip.extent), strip.extent.constant or 0)


def _fetching(loop: ir.Loop, strip: ir.Loop, lines: Sequence[ir.Prefetch]) -> Statements:
    """A loop over strips that fetches lines: with each strip, or those of all strips before the first."""
    if not lines or is_costly(strip.body) or _lanes(loop, strip) > UNROLLED:
        return (replace(loop, body=(*lines, *loop.body)),)
    rounds = highest(loop.extent, {})
    most = None if rounds is None else rounds.constant
    if most is None or most * sum(hint.lines for hint in lines) > AT_ONCE:
        return (loop,)
    name = f"{loop.var}p"
    return (ir.Loop(name, loop.extent, ir.Axis.SERIAL, substitute(lines, {loop.var: Dim.of(name)})), loop)


def _strips(loop: ir.Loop, strip: ir.Loop, ahead: _Next, around: frozenset[str]) -> Iterable[ir.Prefetch]:
    """The lines that a strip of known length reads, of inputs of which each row is another one, in the next row; not
    what loops within the strip read, which are many rows."""
    inputs, thread, cells = set(ahead.at(loop, strip)), ahead.thread, _lanes(loop, strip)
    for load in loads_from(strip.body, ahead.inputs):
        moves = any(thread in dim.names for dim in load.index)
        line = ir.LINE_BYTES // ahead.inputs[load.buffer].dtype.bytes
        start = replace_names(load.index, {strip.var: 0, thread: Dim.of(thread) + 1})
        known = all(name in around for dim in start for name in dim.names if name.startswith("#"))
        beside = stride_of(load, strip.var) == Dim.of(1) and load.buffer in inputs
        if cells and beside and moves and known:
            inputs.remove(load.buffer)
            yield ir.Prefetch(load.buffer, start, -(-cells // line))
