"""Hints about memory: large outputs are stored past the caches, and the next row is prefetched during a computation.

A store to memory that is not in a cache first reads its line, which the kernel then overwrites. Stores past the caches
(non-temporal ones) do not, which saves a third of the traffic of a map; but the next reader has to fetch them from
memory. So they pay for outputs larger than what the caches would keep; the kernel decides at run time, as memcpy does.

Where a tile starts at a line, its cells need no memory of the thread, for the compiler keeps so many in registers.
Tiles beside prefetches stay whole: memory is read and written in turns there, in long runs (rmsnorm took 1.14 times as
long).

A kernel with several passes over a row waits for memory in the first pass, and leaves memory idle in the others: no
processor predicts the next row from a pass over cached data. So a later pass prefetches the next row: one that
computes more than it reads, or the last of several that fold; only where there is neither the one that writes, for
alternate reads and writes are slower than one after the other (layer norm of 2048 x 4096 cells took 0.87 of the time,
root mean squares, whose only fold is the one that waits, 1.35). The row goes to the second-level cache: the first level
has no room for two of them (layer norm of rows of 16 KiB took three times as long there)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.primitives import Statements, change_each, either, is_costly, most_of, stride_of
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, Shape, product
from noyau.ir.ranges import highest
from noyau.ir.walk import every_statement, loads_of, on_threads, substitute


def replace_names(index: Shape, values: Mapping[str, DimLike]) -> Shape:
    return tuple(dim.replace(values) for dim in index)


@dataclass(frozen=True, slots=True)
class NextRow:
    """The start of the next row of an input, and its length in cells."""

    buffer: ir.Buffer
    start: Shape
    length: Dim


def next_rows(body: Statements, inputs: Mapping[str, ir.Buffer]) -> tuple[NextRow, ...]:
    """The rows that the next round of the innermost loop on threads reads, of inputs whose rows follow one another.
    Empty where a row is passed over only once: its next row is contiguous, which processors predict (with hints too,
    rotary took 1.2 times as long)."""
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
    """The loads from inputs whose rows are contiguous."""
    return (load for load in loads_of(body) if load.buffer in inputs and inputs[load.buffer].layout != "strided")


def fetch(rows: Iterable[NextRow], loop: ir.Loop, begin: Dim, cells: int) -> tuple[ir.Statement, ...]:
    """Prefetch `cells` cells of the next rows, from `begin` on, line by line, for rows that are as long as `loop`."""
    fetching, var = list[ir.Statement](), f"{loop.var}p"
    for row in (row for row in rows if row.length == loop.extent):
        line = ir.LINE_BYTES // row.buffer.dtype.bytes
        at = (*row.start[:-1], row.start[-1] + begin + Dim.of(var) * line)  # cells of a row lie side by side
        fetching.append(ir.Loop(var, Dim.of(cells // line), ir.Axis.SERIAL, (ir.Prefetch(row.buffer.name, at),)))
    return tuple(fetching)


UNROLLED = 16  # cells of a strip that gcc 12 fully unrolls; beside a hint it then does not vectorise them
AT_ONCE = 64  # lines that are prefetched in a row: those of a block of a fold


def insert_prefetches(kernel: ir.Kernel) -> ir.Kernel:
    """Prefetch strips of the next row in passes that compute more than they read, else in the last of several folds."""
    inputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.INPUT)}

    def change(body: Statements) -> Statements:
        _, threads, rows = on_threads(body)
        if not (threads and rows):
            return body
        return _with_strips(body, _Next(threads[-1].var, inputs, _last_folds(rows, inputs)), frozenset())

    return primitives.with_bodies(kernel, change)


@dataclass(frozen=True, slots=True)
class _Next:
    """Candidates: the next rows of inputs along the loop `thread`; `folds`: where to prefetch if no pass computes."""

    thread: str
    inputs: Mapping[str, ir.Buffer]
    folds: Mapping[str, str]

    def at(self, loop: ir.Loop, strip: ir.Loop) -> frozenset[str]:
        """The inputs whose next strip is prefetched beside a strip."""
        if is_costly(strip.body):
            return frozenset(self.inputs)
        return frozenset(name for name, variable in self.folds.items() if variable == loop.var)


def _last_folds(body: Statements, inputs: Mapping[str, ir.Buffer]) -> dict[str, str]:
    """For each input that several folds and no computing pass read, the variable of the last of these folds."""
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
    """`around`: the variables of the loops around the statements."""

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
    """The strip in lanes that is all that each round of a loop runs, or None."""
    *before, last = loop.body or (None,)
    strip = last if isinstance(last, ir.Loop) and last.axis is ir.Axis.LANES else None
    counted = len(before) <= 1 and all(isinstance(s, ir.Let) for s in before)
    return strip if loop.axis is ir.Axis.SERIAL and counted else None


def _lanes(loop: ir.Loop, strip: ir.Loop) -> int:
    """The cells of a whole strip; 0 if not known."""
    lengths = {s.name: most_of(s.value) for s in loop.body if isinstance(s, ir.Let)}
    return lengths.get(str(strip.extent), strip.extent.constant or 0)


def _fetching(loop: ir.Loop, strip: ir.Loop, lines: Sequence[ir.Prefetch]) -> Statements:
    """A loop over strips with prefetches: of a strip in each round, or of all strips before the first."""
    if not lines or is_costly(strip.body) or _lanes(loop, strip) > UNROLLED:
        return (replace(loop, body=(*lines, *loop.body)),)
    rounds = highest(loop.extent, {})
    most = None if rounds is None else rounds.constant
    if most is None or most * sum(hint.lines for hint in lines) > AT_ONCE:
        return (loop,)
    name = f"{loop.var}p"
    return (ir.Loop(name, loop.extent, ir.Axis.SERIAL, substitute(lines, {loop.var: Dim.of(name)})), loop)


def _strips(loop: ir.Loop, strip: ir.Loop, ahead: _Next, around: frozenset[str]) -> Iterable[ir.Prefetch]:
    """The lines that a strip of known length reads in the next row, of inputs with a row of their own for each round;
    not the lines of loops within the strip, which are in many rows."""
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


TILE = 256  # cells: few, so that memory takes them while the next ones are computed; enough to contain whole lines
LEAST_BYTES = 64  # of a run of cells that pays: a cache line
LEAST_CELLS = 64  # of a run whose length varies


@dataclass(frozen=True, slots=True)
class LargeOutputs:
    """The outputs that are stored past the caches, the rows that are read next, the upper bounds of named lengths, and
    the dtypes of memory of the thread."""

    outputs: Mapping[str, ir.Buffer]
    least_bytes: int
    rows: tuple[NextRow, ...]
    lengths: Mapping[str, int]
    own: Mapping[str, DType]


def lengths_of(body: Statements) -> dict[str, int]:
    """The bound in each length of tiles, min(bound, what is left), by its name, unless the name has two bounds."""
    numbers: dict[str, set[int]] = {}
    for let in every_statement(body):
        if isinstance(let, ir.Let):
            numbers.setdefault(let.name, set()).add(primitives.most_of(let.value))
    return {name: max(most) for name, most in numbers.items() if len(most) == 1 and LEAST_CELLS <= max(most) <= TILE}


def bytes_of(loop: ir.Loop, change: LargeOutputs) -> Dim | None:
    """The size of the first output that a loop stores, if the loop only stores runs of neighbouring cells; or None."""
    straight = all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
    if loop.axis is ir.Axis.SERIAL or not straight or primitives.is_costly(loop.body):
        return None
    stores, known = stores_of(loop), most_rounds(loop, change)
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
            return None  # merged into, or maybe written again
    if not stores or len({store.buffers for store in stores}) < len(stores):
        return None
    first = change.outputs[stores[0].buffers[0]]
    return product(first.shape) * first.dtype.bytes


def most_rounds(loop: ir.Loop, change: LargeOutputs) -> int | None:
    """The upper bound of a loop's rounds, or None."""
    return change.lengths.get(str(loop.extent), loop.extent.constant)


def stores_of(loop: ir.Loop) -> list[ir.Store]:
    return [s for s in loop.body if isinstance(s, ir.Store)]


def write_nontemporal(kernel: ir.Kernel, least_bytes: int) -> ir.Kernel:
    """Let innermost loops that store runs of cells of outputs of `least_bytes` or more store tiles past the caches."""
    outputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.OUTPUT)}
    inputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.INPUT)}
    launches = []
    for launch in kernel.launches:
        own = {s.name: s.dtype for s in every_statement(launch.body) if isinstance(s, ir.Alloc)}
        change = LargeOutputs(outputs, least_bytes, next_rows(launch.body, inputs), lengths_of(launch.body), own)
        launches.append(replace(launch, body=primitives.change_each(launch.body, partial(_around, change=change))))
    return replace(kernel, launches=tuple(launches))


def in_whole_tiles(kernel: ir.Kernel) -> ir.Kernel:
    """Launches whose items would be single cells, in tiles of cells: a compiler rounds differently in the remainder of
    a loop than in its vectors, so a cell must have the same place in its loop however the work is divided."""
    return primitives.with_bodies(kernel, _in_tiles)


def _in_tiles(body: Statements) -> Statements:
    *before, last = body or (None,)
    if not isinstance(last, ir.Loop) or last.axis is not ir.Axis.THREADS:
        return body
    if not all(isinstance(s, ir.Let | ir.Store) for s in last.body):
        return body
    tiles, length, tile = _tile(last)
    return (*before, replace(tiles, body=(*length, tile)))


def _around(statement: ir.Statement, change: LargeOutputs) -> Statements | None:
    """A loop in tiles that are stored past the caches, if it stores large runs of cells; None for other statements."""
    if not isinstance(statement, ir.Loop) or (size := bytes_of(statement, change)) is None:
        return None
    known = size.constant
    return (statement,) if known is not None and known < change.least_bytes else _loop(statement, size, change)


def _loop(loop: ir.Loop, size: Dim, change: LargeOutputs) -> Statements:
    """The loop, and its version in tiles that are stored past the caches; the kernel chooses one by the size."""
    if loop.axis is ir.Axis.LANES and (most_rounds(loop, change) or TILE + 1) <= TILE:
        return _by_size(size, change.least_bytes, (loop,), _stage(loop, change))
    tiles, length, tile = _tile(loop)
    staged = _stage(tile, change)
    if loop.axis is ir.Axis.THREADS:
        return (replace(tiles, body=(*length, *_by_size(size, change.least_bytes, (tile,), staged))),)
    ahead = fetch(change.rows, loop, Dim.of(tiles.var) * TILE, TILE)
    memory = tuple(s for s in staged if isinstance(s, ir.Alloc))
    large = replace(tiles, body=(*length, *memory, *ahead, *staged[len(memory) :]))
    return _by_size(size, change.least_bytes, (loop,), (large,))


def _tile(loop: ir.Loop) -> tuple[ir.Loop, Statements, ir.Loop]:
    """The loop over tiles of TILE cells, the Let of their length, and the loop over the cells of one, in lanes."""
    tiles, length, tile = primitives.tile_loop(loop, TILE, f"{loop.var}w", loop.var, f"{loop.var}_count")
    axis = ir.Axis.THREADS if loop.axis is ir.Axis.THREADS else ir.Axis.SERIAL
    return replace(tiles, axis=axis), length, replace(tile, axis=ir.Axis.LANES)


def _by_size(size: Dim, least_bytes: int, small: Statements, large: Statements) -> Statements:
    if size.constant is not None:
        return large
    is_large = ir.Call("less_equal", (ir.Const(least_bytes, DType.I64), ir.Index(size)), DType.BOOL)
    return primitives.either(is_large, large, small)


def _stage(tile: ir.Loop, change: LargeOutputs) -> Statements:
    """A tile whose cells go to memory of the thread, unless they are there, and then past the caches to outputs."""
    if as_they_are := _copies(tile, change):
        return as_they_are
    outputs = change.outputs
    own = {name: f"{name}.tile" for store in stores_of(tile) for name in store.buffers}
    cells, cell = Dim.of(min(tile.extent.constant or TILE, TILE)), (Dim.of(tile.var),)
    memory = tuple(ir.Alloc(own[name], outputs[name].dtype, (cells,), ir.Space.REGISTER) for name in own)
    body = tuple(
        replace(s, buffers=(own[s.buffers[0]],), index=cell) if isinstance(s, ir.Store) else s for s in tile.body
    )
    loads = (ir.Load(own[s.buffers[0]], cell, outputs[s.buffers[0]].dtype.compute) for s in stores_of(tile))
    copies = (_stream(tile, store, load) for store, load in zip(stores_of(tile), loads, strict=True))
    return (*memory, replace(tile, body=body), *copies)


def _stream(tile: ir.Loop, store: ir.Store, load: ir.Load) -> ir.StreamStore:
    """Stream the cells of a tile from memory of the thread."""
    to, (start,) = (replace_names(index, {tile.var: 0}) for index in (store.index, load.index))
    return ir.StreamStore(store.buffers[0], to, load.buffer, start, tile.extent, load.dtype)


def _copies(tile: ir.Loop, change: LargeOutputs) -> tuple[ir.StreamStore, ...]:
    """The copies of a tile, if it only copies contiguous cells from memory of the thread."""
    lets = {let.name: let.value for let in tile.body if isinstance(let, ir.Let)}
    copies: list[ir.StreamStore] = []
    for store in stores_of(tile):
        (value,) = store.values
        load = lets.get(value.name) if isinstance(value, ir.Var) else value
        if not isinstance(load, ir.Load) or load.where or primitives.stride_of(load, tile.var) != Dim.of(1):
            return ()
        if change.own.get(load.buffer) is not change.outputs[store.buffers[0]].dtype:
            return ()
        copies.append(_stream(tile, store, load))
    return tuple(copies)


LINED = 32  # at a time: a loop over 16 gcc 12 unrolls fully, and then does not vectorise selects between values
WORD_BYTES = 4  # at least: narrower cells are computed in pairs, or packed


@dataclass(frozen=True, slots=True)
class StagedTile:
    """A tile of values in memory of the thread, and its copies to outputs, past the caches."""

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
        """Whether whole tiles can be divided, and each cell is computed by itself."""
        cells = all(isinstance(s, ir.Let | ir.Store) for s in self.tile.body)
        alike = {alloc.shape for alloc in self.memory}
        words = all(alloc.dtype.bytes >= WORD_BYTES for alloc in self.memory)
        long = self.cells > LINED and self.cells % LINED == 0 and self.tile.extent.constant in (None, self.cells)
        whole = all(copy.extent == self.tile.extent and copy.start == Dim.of(0) for copy in self.copies)
        own = [alloc.name for alloc in self.memory] == [copy.memory for copy in self.copies]
        return cells and words and long and len(alike) == 1 and whole and own


def in_lines(kernel: ir.Kernel) -> ir.Kernel:
    """Let tiles of words that start at a line go past the caches a few lines at a time."""
    return primitives.with_bodies(kernel, _align)


def _align(body: Iterable[ir.Statement]) -> Statements:
    result: list[ir.Statement] = []
    rest = tuple(body)
    while rest:
        if (tile := match_tile(rest)) is not None:
            places = tuple((copy.buffer, copy.index) for copy in tile.copies)
            # if it starts at a line in every output
            result += either(ir.InWholeLines(tile.tile.extent, tile.cells, places), (_lines(tile),), tile.statements)
            rest = rest[len(tile.statements) :]
            continue
        statement, *_ = rest
        inner = replace(statement, body=_align(statement.body)) if isinstance(statement, ir.Loop | ir.If) else statement
        result.append(inner)
        rest = rest[1:]
    return tuple(result)


def match_tile(statements: Sequence[ir.Statement]) -> StagedTile | None:
    """The staged tile at the start of statements, if it is divisible."""
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


def _lines(staged: StagedTile) -> ir.Loop:
    """A whole tile as a loop over a few lines at a time."""
    count, tile = Dim.of(LINED), staged.tile
    at = f"{tile.var}l"
    start = Dim.of(at) * count
    memory = tuple(replace(alloc, name=_lines_of(alloc.name), shape=(count,)) for alloc in staged.memory)
    body: list[ir.Statement] = []
    for statement in substitute(tile.body, {tile.var: start + Dim.of(tile.var)}):
        if isinstance(statement, ir.Store):
            statement = replace(statement, buffers=tuple(map(_lines_of, statement.buffers)), index=(Dim.of(tile.var),))
        body.append(statement)
    moved = (replace(copy, index=(*copy.index[:-1], copy.index[-1] + start)) for copy in staged.copies)
    copies = [replace(copy, memory=_lines_of(copy.memory), extent=count, lines=True) for copy in moved]
    inner: Statements = (*memory, replace(tile, extent=count, body=tuple(body)), *copies)
    return ir.Loop(at, Dim.of(staged.cells // LINED), ir.Axis.SERIAL, inner)


def _lines_of(name: str) -> str:
    """The name of a few lines of an array of a tile."""
    return f"{name}.lines"
