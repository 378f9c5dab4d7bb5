"""Large outputs written around the caches: what is stored is not read before it, and pushes nothing else out; a kernel
decides by the size as it runs. Loops whose cells all are of bfloat16 do an even and an odd one in each round: a word of
32 bits holds both. What is gained and lost: docs/notes/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.prefetches import NextRow, fetch, next_rows, replace_names
from noyau.compiler.schedules.primitives import Statements, change_lanes, either, stride_of, with_bodies
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, product
from noyau.ir.walk import every_statement, loads_of, rewrite, substitute

TILE = 256  # cells: few, so that memory takes them while the next ones are computed; enough for whole lines among them
LEAST_BYTES = 64  # of a run of cells that is worth it: a line of a cache
LEAST_CELLS = 64  # of a run whose length varies


@dataclass(frozen=True, slots=True)
class LargeOutputs:
    """The outputs that are written around the caches, the rows that are read next, the most that a length with a name
    is, and the dtypes of memory of the thread."""

    outputs: Mapping[str, ir.Buffer]
    least_bytes: int
    rows: tuple[NextRow, ...]
    lengths: Mapping[str, int]
    own: Mapping[str, DType]


def lengths_of(body: Statements) -> dict[str, int]:
    """The number in each length of tiles, min(a number, what is left), by its name, unless the name has two numbers."""
    numbers: dict[str, set[int]] = {}
    for let in every_statement(body):
        if isinstance(let, ir.Let):
            numbers.setdefault(let.name, set()).add(primitives.most_of(let.value))
    return {name: max(most) for name, most in numbers.items() if len(most) == 1 and LEAST_CELLS <= max(most) <= TILE}


def bytes_of(loop: ir.Loop, change: LargeOutputs) -> Dim | None:
    """The size of the first output that a loop stores, if all it does is to store runs of neighbouring cells."""
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
            return None  # what is merged into, and what may be written again
    if not stores or len({store.buffers for store in stores}) < len(stores):
        return None
    first = change.outputs[stores[0].buffers[0]]
    return product(first.shape) * first.dtype.bytes


def most_rounds(loop: ir.Loop, change: LargeOutputs) -> int | None:
    """The most rounds of a loop, where that is known."""
    return change.lengths.get(str(loop.extent), loop.extent.constant)


def stores_of(loop: ir.Loop) -> list[ir.Store]:
    return [s for s in loop.body if isinstance(s, ir.Store)]


def write_nontemporal(kernel: ir.Kernel, least_bytes: int) -> ir.Kernel:
    """Innermost loops that store runs of cells of outputs of `least_bytes` or more, in tiles, around the caches."""
    outputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.OUTPUT)}
    inputs = {buffer.name: buffer for buffer in kernel.of(ir.Role.INPUT)}
    launches = []
    for launch in kernel.launches:
        own = {s.name: s.dtype for s in every_statement(launch.body) if isinstance(s, ir.Alloc)}
        change = LargeOutputs(outputs, least_bytes, next_rows(launch.body, inputs), lengths_of(launch.body), own)
        launches.append(replace(launch, body=primitives.change_each(launch.body, partial(_around, change=change))))
    return replace(kernel, launches=tuple(launches))


def in_whole_tiles(kernel: ir.Kernel) -> ir.Kernel:
    """Launches whose items would be single cells, in tiles of cells: a compiler rounds otherwise in the rest of a loop
    than in its vectors, so a cell must be in the same place of its loop however the work is cut."""
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
    """A loop in tiles that go around the caches, where it stores large runs of cells; None of what does not."""
    if not isinstance(statement, ir.Loop) or (size := bytes_of(statement, change)) is None:
        return None
    known = size.constant
    return (statement,) if known is not None and known < change.least_bytes else _loop(statement, size, change)


def _loop(loop: ir.Loop, size: Dim, change: LargeOutputs) -> Statements:
    """The loop, and the same in tiles that go around the caches, of which the kernel takes one by the size."""
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
    """The loop over tiles of TILE cells, the Let of their length, and the loop over one, in lanes."""
    tiles, length, tile = primitives.tile_loop(loop, TILE, f"{loop.var}w", loop.var, f"{loop.var}_count")
    axis = ir.Axis.THREADS if loop.axis is ir.Axis.THREADS else ir.Axis.SERIAL
    return replace(tiles, axis=axis), length, replace(tile, axis=ir.Axis.LANES)


def _by_size(size: Dim, least_bytes: int, small: Statements, large: Statements) -> Statements:
    if size.constant is not None:
        return large
    is_large = ir.Call("less_equal", (ir.Const(least_bytes, DType.I64), ir.Index(size)), DType.BOOL)
    return primitives.either(is_large, large, small)


def _stage(tile: ir.Loop, change: LargeOutputs) -> Statements:
    """A tile whose cells go to memory of the thread, if they are not there, and then around the caches to outputs."""
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
    """The cells of a tile, from memory of the thread."""
    to, (start,) = (replace_names(index, {tile.var: 0}) for index in (store.index, load.index))
    return ir.StreamStore(store.buffers[0], to, load.buffer, start, tile.extent, load.dtype)


def _copies(tile: ir.Loop, change: LargeOutputs) -> tuple[ir.StreamStore, ...]:
    """The copies of a tile, if all it does is to copy cells that lie side by side in memory of the thread."""
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
    """The kernel whose tiles of words that begin with a line go around the caches a few lines at a time."""
    return with_bodies(kernel, _align)


def _align(body: Iterable[ir.Statement]) -> Statements:
    result: list[ir.Statement] = []
    rest = tuple(body)
    while rest:
        if (tile := match_tile(rest)) is not None:
            places = tuple((copy.buffer, copy.index) for copy in tile.copies)
            # and begins with a line wherever it is written
            result += either(ir.InWholeLines(tile.tile.extent, tile.cells, places), (_lines(tile),), tile.statements)
            rest = rest[len(tile.statements) :]
            continue
        statement, *_ = rest
        inner = replace(statement, body=_align(statement.body)) if isinstance(statement, ir.Loop | ir.If) else statement
        result.append(inner)
        rest = rest[1:]
    return tuple(result)


def match_tile(statements: Sequence[ir.Statement]) -> StagedTile | None:
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


PAIRED = 16  # cells of a loop of known length that is worth it


def in_pairs(kernel: ir.Kernel) -> ir.Kernel:
    """The loops in lanes of which all that moves from cell to cell are neighbours in bfloat16, two cells a round."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}

    def in_body(body: Statements) -> Statements:
        memory = buffers | {s.name: s.dtype for s in every_statement(body) if isinstance(s, ir.Alloc)}
        return change_lanes(body, lambda loop: _pair_cells(loop) if _is_of_halves(loop, memory) else None)

    return with_bodies(kernel, in_body)


def _is_of_halves(loop: ir.Loop, memory: Mapping[str, DType]) -> bool:
    """Whether a loop goes from cell to cell of bfloat16 alone, and nothing it does may be left out."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    plain = all([value.dtype for value in s.values] == [DType.F32] and s.merge is None for s in stores)
    straight = plain and all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
    if not straight or (loop.extent.constant or PAIRED) < PAIRED:
        return False
    accesses: list[ir.Load | ir.Store] = [*loads_of(loop.body), *stores]
    moving = [each for each in accesses if any(loop.var in dim.names for dim in each.index)]
    stored = any(isinstance(each, ir.Store) for each in moving)
    return stored and all(_is_half(each, loop.var, memory) for each in moving)


def _is_half(access: ir.Load | ir.Store, variable: str, memory: Mapping[str, DType]) -> bool:
    name = access.buffer if isinstance(access, ir.Load) else access.buffers[0]
    masked = isinstance(access, ir.Load) and access.where is not None
    return memory.get(name) is DType.BF16 and stride_of(access, variable) == Dim.of(1) and not masked


def _pair_cells(loop: ir.Loop) -> Statements:
    """The loop over pairs, and one over the last cell where their number is odd."""
    half, first = f"{loop.var}h", Dim.of(f"{loop.var}h") * 2
    odd = _rename_lets(substitute(loop.body, {loop.var: first + 1}))
    pairs = ir.Loop(half, loop.extent // 2, ir.Axis.LANES, (*substitute(loop.body, {loop.var: first}), *odd))
    if loop.extent % 2 == Dim.of(0):
        return (pairs,)
    last = substitute(loop.body, {loop.var: loop.extent // 2 * 2 + Dim.of(loop.var)})
    return pairs, replace(loop, extent=loop.extent % 2, body=last)


def _rename_lets(body: Statements) -> Statements:
    """The statements with names of their own for their Lets."""
    names = {s.name: f"{s.name}.odd" for s in body if isinstance(s, ir.Let)}

    def read(expr: ir.Expr) -> ir.Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, ir.Var) else expr

    return tuple(replace(s, name=names[s.name]) if isinstance(s, ir.Let) else s for s in rewrite(body, read))
