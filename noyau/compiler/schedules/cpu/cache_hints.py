"""Hints for the caches: the next row fetched while this one is computed, and large outputs written around them.

A kernel that passes over a row several times waits for memory in the first pass, and leaves memory idle in the others:
no processor sees from a pass over what is in its cache what will be read after it. So a later pass fetches the next
row: one that computes more than it reads, or the last of several that fold; only where there is neither the one that
writes, for reads and writes in turns are slower than one after the other (layer norm of 2048 x 4096 cells took 0.87 of
the time, root mean squares, whose only fold is the one that waits, 1.35). The row goes to the second cache: in the
first one there is no room for two of them (layer norm of rows of 16 KiB took three times as long there).

Large outputs written around the caches: what is stored is not read before it, and pushes nothing else out.

A store to memory that is not in a cache first reads its line, which the kernel then overwrites. Stores that go around
the caches do not, which saves a third of the traffic of a map; but what comes next has to read them from far away. So
they pay where an output is larger than what the caches would keep, and are decided as the kernel runs. (What glibc's
memcpy does for large copies.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.schedules.primitives import (
    Statements,
    change_each,
    either,
    is_costly,
    most_of,
    stride_of,
    tiled,
    with_bodies,
)
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, Shape, product
from noyau.ir.ranges import highest
from noyau.ir.substitution import substitute
from noyau.ir.walk import every_statement, loads_of

UNROLLED = 16  # cells of a strip that gcc 12 unrolls whole; beside a hint it then makes no vectors of them
AT_ONCE = 64  # lines that are fetched one after the other: those of a block of a fold


def insert_prefetches(kernel: ir.Kernel) -> ir.Kernel:
    """In passes that compute more than they read, else in the last of several that fold a row, strip by strip, the same
    strip of the next row is fetched."""
    inputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.INPUT)}

    def change(body: Statements) -> Statements:
        threads, rows = threads_of(body)
        if not (threads and rows):
            return body
        return _with_strips(body, _Next(threads[-1], inputs, _last_folds(rows, inputs)), frozenset())

    return with_bodies(kernel, change)


@dataclass(frozen=True, slots=True)
class _Next:
    """Candidates of prefetches: rows of inputs, one further in the loop `thread`; `folds`: in which fold, where no
    pass over an input computes."""

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
    read: dict[str, list[str]] = {}
    computed: set[str] = set()
    for loop in (s for s in every_statement(body) if isinstance(s, ir.Loop)):
        strip = _strip_of(loop)
        for load in () if strip is None else _loads(strip.body, inputs):
            if strip is not None and is_costly(strip.body):
                computed.add(load.buffer)
            elif strip is not None and stride_of(load, loop.var) == Dim.of(_lanes(loop, strip)):
                read.setdefault(load.buffer, []).append(loop.var)
    return {name: folds[-1] for name, folds in read.items() if len(set(folds)) > 1 and name not in computed}


def threads_of(body: Statements) -> tuple[list[str], Statements]:
    """The variables of the loops on threads from the outside in, and what stands in the innermost of them."""
    variables: list[str] = []
    while body and isinstance(last := body[-1], ir.Loop) and last.axis is ir.Axis.THREADS:
        variables.append(last.var)
        body = last.body
    return variables, body


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
    for load in _loads(strip.body, ahead.inputs):
        moves = any(thread in dim.names for dim in load.index)
        line = ir.LINE_BYTES // ahead.inputs[load.buffer].dtype.bytes
        start = replaced(load.index, {strip.var: 0, thread: Dim.of(thread) + 1})
        known = all(name in around for dim in start for name in dim.names if name.startswith("#"))
        beside = stride_of(load, strip.var) == Dim.of(1) and load.buffer in inputs
        if cells and beside and moves and known:
            inputs.remove(load.buffer)
            yield ir.Prefetch(load.buffer, start, -(-cells // line))


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
    for load in _loads(inner, inputs) if threads else ():
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


def _loads(body: Statements, inputs: Mapping[str, ir.Buffer]) -> Iterable[ir.Load]:
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


TILE = 256  # cells: few, so that memory takes them while the next ones are computed; enough for whole lines among them
LEAST_BYTES = 64  # of a run of cells that is worth it: a line of a cache
LEAST_CELLS = 64  # of a run whose length varies


def write_nontemporal(kernel: ir.Kernel, least_bytes: int) -> ir.Kernel:
    """Innermost loops that store runs of neighbouring cells of outputs, each output of `least_bytes` or more: tiles of
    cells, then their stores around the caches."""
    outputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.OUTPUT)}
    inputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.INPUT)}
    launches = []
    for launch in kernel.launches:
        own = {s.name: s.dtype for s in every_statement(launch.body) if isinstance(s, ir.Alloc)}
        change = _Around(outputs, least_bytes, next_rows(launch.body, inputs), _lengths(launch.body), own)
        launches.append(replace(launch, body=change_each(launch.body, partial(_around, change=change))))
    return replace(kernel, launches=tuple(launches))


def in_whole_tiles(kernel: ir.Kernel) -> ir.Kernel:
    """Launches whose items would be single cells, in tiles of cells: a compiler rounds otherwise in the rest of a loop
    than in its vectors, so a cell must be in the same place of its loop however the work is cut."""
    return with_bodies(kernel, _in_tiles)


def _in_tiles(body: Statements) -> Statements:
    *before, last = body
    if (
        isinstance(last, ir.Loop)
        and last.axis is ir.Axis.THREADS
        and all(isinstance(s, ir.Let | ir.Store) for s in last.body)
    ):
        tiles, length, tile = _tiled(last)
        return (*before, replace(tiles, body=(*length, tile)))
    return body


@dataclass(frozen=True, slots=True)
class _Around:
    """The outputs that are written around the caches, the rows that are read next, the most that a length with a name
    is, and the dtypes of memory of the thread."""

    outputs: Mapping[str, ir.Buffer]
    least_bytes: int
    rows: tuple[NextRow, ...]
    lengths: Mapping[str, int]
    own: Mapping[str, DType]


def _lengths(body: Statements) -> dict[str, int]:
    """The lengths of tiles, min(a number, what is left), by name: that number. A name that stands twice, in scopes of
    their own, is left out where the numbers differ."""
    numbers: dict[str, set[int]] = {}
    for let in every_statement(body):
        if isinstance(let, ir.Let):
            numbers.setdefault(let.name, set()).add(most_of(let.value))
    return {name: max(most) for name, most in numbers.items() if len(most) == 1 and LEAST_CELLS <= max(most) <= TILE}


def _around(statement: ir.Statement, change: _Around) -> Statements | None:
    """A loop in tiles that go around the caches, where it stores large runs of cells; None of what does not."""
    size = _bytes(statement, change) if isinstance(statement, ir.Loop) else None
    if size is None or not isinstance(statement, ir.Loop):
        return None
    known = size.constant
    return (statement,) if known is not None and known < change.least_bytes else _loop(statement, size, change)


def _bytes(loop: ir.Loop, change: _Around) -> Dim | None:
    """The size of the first output that a loop stores, if it stores runs of neighbouring cells of outputs and does
    nothing else."""
    if (
        loop.axis is ir.Axis.SERIAL
        or not all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
        or is_costly(loop.body)
    ):
        return None
    stores, known = _stores(loop), _most(loop, change)
    read = {load.buffer for load in loads_of(loop.body)}
    if known is None and any(name.startswith("#") for name in loop.extent.names):  # a tile already
        return None
    for store in stores:
        buffer = change.outputs.get(store.buffers[0])
        if buffer is None or len(store.buffers) > 1 or store.merge or stride_of(store, loop.var) != Dim.of(1):
            return None
        if known is not None and known * buffer.dtype.bytes < LEAST_BYTES:
            return None
        if buffer.name in read or any(name.startswith("#at") for dim in store.index for name in dim.names):
            return None  # what is merged into, and what may be written again
    if not stores or len({store.buffers for store in stores}) < len(stores):
        return None
    first = change.outputs[stores[0].buffers[0]]
    return product(first.shape) * first.dtype.bytes


def _most(loop: ir.Loop, change: _Around) -> int | None:
    """The most rounds of a loop, where that is known."""
    return change.lengths.get(str(loop.extent), loop.extent.constant)


def _stores(loop: ir.Loop) -> list[ir.Store]:
    return [s for s in loop.body if isinstance(s, ir.Store)]


def _loop(loop: ir.Loop, size: Dim, change: _Around) -> Statements:
    """The loop, and the same in tiles that go around the caches, of which the kernel takes one by the size."""
    if loop.axis is ir.Axis.LANES and (_most(loop, change) or TILE + 1) <= TILE:
        return _by_size(size, change.least_bytes, (loop,), _staged(loop, change))
    tiles, length, tile = _tiled(loop)
    staged = _staged(tile, change)
    if loop.axis is ir.Axis.THREADS:
        return (replace(tiles, body=(*length, *_by_size(size, change.least_bytes, (tile,), staged))),)
    ahead = fetch(change.rows, loop, Dim.of(tiles.var) * TILE, TILE)
    memory = tuple(s for s in staged if isinstance(s, ir.Alloc))
    large = replace(tiles, body=(*length, *memory, *ahead, *staged[len(memory) :]))
    return _by_size(size, change.least_bytes, (loop,), (large,))


def _tiled(loop: ir.Loop) -> tuple[ir.Loop, Statements, ir.Loop]:
    """The loop over tiles of TILE cells, the Let of their length, and the loop over one, in lanes."""
    tiles, length, tile = tiled(loop, TILE, f"{loop.var}w", loop.var, f"{loop.var}_count")
    axis = ir.Axis.THREADS if loop.axis is ir.Axis.THREADS else ir.Axis.SERIAL
    return replace(tiles, axis=axis), length, replace(tile, axis=ir.Axis.LANES)


def _by_size(size: Dim, least_bytes: int, small: Statements, large: Statements) -> Statements:
    if size.constant is not None:
        return large
    return either(ir.Call("less_equal", (ir.Const(least_bytes, DType.I64), ir.Index(size)), DType.BOOL), large, small)


def _staged(tile: ir.Loop, change: _Around) -> Statements:
    """A tile whose stores go to memory of the thread first, and from there to the outputs, around the caches; what lies
    in such memory goes from there."""
    if as_they_are := _copies(tile, change):
        return as_they_are
    outputs = change.outputs
    own = {name: f"{name}.tile" for store in _stores(tile) for name in store.buffers}
    cells, cell = Dim.of(min(tile.extent.constant or TILE, TILE)), (Dim.of(tile.var),)
    memory = tuple(ir.Alloc(own[name], outputs[name].dtype, (cells,), ir.Space.REGISTER) for name in own)
    body = tuple(
        replace(s, buffers=(own[s.buffers[0]],), index=cell) if isinstance(s, ir.Store) else s for s in tile.body
    )
    loads = (ir.Load(own[s.buffers[0]], cell, outputs[s.buffers[0]].dtype.compute) for s in _stores(tile))
    copies = (_streamed(tile, store, load) for store, load in zip(_stores(tile), loads, strict=True))
    return (*memory, replace(tile, body=body), *copies)


def _streamed(tile: ir.Loop, store: ir.Store, load: ir.Load) -> ir.StreamStore:
    """The cells of a tile, from memory of the thread."""
    to, (start,) = (replaced(index, {tile.var: 0}) for index in (store.index, load.index))
    return ir.StreamStore(store.buffers[0], to, load.buffer, start, tile.extent, load.dtype)


def _copies(tile: ir.Loop, change: _Around) -> tuple[ir.StreamStore, ...]:
    """The copies of a tile, if all it does is to copy cells that lie side by side in memory of the thread."""
    lets = {let.name: let.value for let in tile.body if isinstance(let, ir.Let)}
    copies: list[ir.StreamStore] = []
    for store in _stores(tile):
        (value,) = store.values
        load = lets.get(value.name) if isinstance(value, ir.Var) else value
        if not isinstance(load, ir.Load) or load.where or stride_of(load, tile.var) != Dim.of(1):
            return ()
        if change.own.get(load.buffer) is not change.outputs[store.buffers[0]].dtype:
            return ()
        copies.append(_streamed(tile, store, load))
    return tuple(copies)
