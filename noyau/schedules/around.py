"""Large outputs written around the caches: what is stored is not read before it, and pushes nothing else out.

A store to memory that is not in a cache first reads its line, which the kernel then overwrites. Stores that go around
the caches do not, which saves a third of the traffic of a map; but what comes next has to read them from far away. So
they pay where an output is larger than what the caches would keep, and are decided as the kernel runs. (What glibc's
memcpy does for large copies.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Const,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Role,
    Space,
    Statement,
    Store,
    Var,
)
from noyau.ir.walk import every_statement
from noyau.schedules.ahead import Row, computes, fetch, next_rows
from noyau.schedules.steps import Statements, counted, loads_of, most_of, split, stride_of

TILE = 256  # cells: few, so that memory takes them while the next ones are computed; enough for whole lines among them
LEAST_BYTES = 64  # of a run of cells that is worth it: a line of a cache
LEAST_CELLS = 64  # of a run whose length varies


def write_around(kernel: Kernel, least_bytes: int) -> Kernel:
    """Innermost loops that store runs of neighbouring cells of outputs, each output of `least_bytes` or more: tiles of
    cells, then their stores around the caches."""
    outputs = {buffer.name: buffer for buffer in kernel.of(Role.OUTPUT)}
    inputs = {buffer.name: buffer for buffer in kernel.of(Role.INPUT)}
    launches = []
    for launch in kernel.launches:
        own = {s.name: s.dtype for s in every_statement(launch.body) if isinstance(s, Alloc)}
        change = _Around(outputs, least_bytes, next_rows(launch.body, inputs), _lengths(launch.body), own)
        launches.append(replace(launch, body=_block(launch.body, change)))
    return replace(kernel, launches=tuple(launches))


def in_whole_tiles(kernel: Kernel) -> Kernel:
    """Launches whose items would be single cells, in tiles of cells: a compiler rounds otherwise in the rest of a loop
    than in its vectors, so a cell must be in the same place of its loop however the work is cut."""
    return replace(kernel, launches=tuple(replace(each, body=_in_tiles(each.body)) for each in kernel.launches))


def _in_tiles(body: Statements) -> Statements:
    *before, last = body
    if not isinstance(last, Loop) or last.axis is not Axis.THREADS:
        return body
    straight = all(isinstance(s, Let | Store) for s in last.body)
    return (*before, _tiled(last)) if straight else body


@dataclass(frozen=True, slots=True)
class _Around:
    """What is written around the caches, what is read next, the most that a length with a name is, and the dtypes of
    memory of the thread."""

    outputs: Mapping[str, Buffer]
    least_bytes: int
    rows: tuple[Row, ...]
    lengths: Mapping[str, int]
    own: Mapping[str, DType]


def _lengths(body: Statements) -> dict[str, int]:
    """The lengths of tiles, min(a number, what is left), by name: that number. A name that is given twice, in scopes of
    their own, is left out where the numbers differ."""
    found: dict[str, set[int]] = {}
    for let in every_statement(body):
        if isinstance(let, Let):
            found.setdefault(let.name, set()).add(most_of(let.value))
    return {name: max(most) for name, most in found.items() if len(most) == 1 and LEAST_CELLS <= max(most) <= TILE}


def _block(body: Iterable[Statement], change: _Around) -> Statements:
    made: list[Statement] = []
    for statement in body:
        match statement:
            case Loop() if (size := _bytes(statement, change)) is not None:
                known = size.constant
                small = known is not None and known < change.least_bytes
                made += (statement,) if small else _loop(statement, size, change)
            case Loop() | If():
                made.append(replace(statement, body=_block(statement.body, change)))
            case _:
                made.append(statement)
    return tuple(made)


def _bytes(loop: Loop, change: _Around) -> Dim | None:
    """The size of the first output that a loop stores, if it stores runs of neighbouring cells of outputs and does
    nothing else."""
    if loop.axis is Axis.SERIAL or not all(isinstance(s, Let | Store) for s in loop.body) or computes(loop.body):
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


def _most(loop: Loop, change: _Around) -> int | None:
    """The most rounds of a loop, where that is known."""
    return change.lengths.get(str(loop.extent), loop.extent.constant)


def _stores(loop: Loop) -> list[Store]:
    return [s for s in loop.body if isinstance(s, Store)]


def _loop(loop: Loop, size: Dim, change: _Around) -> Statements:
    """The loop, and the same in tiles that go around the caches, of which the kernel takes one by the size."""
    if loop.axis is Axis.LANES and (_most(loop, change) or TILE + 1) <= TILE:
        return _either(size, change.least_bytes, (loop,), _staged(loop, change))
    tiles = _tiled(loop)
    if loop.axis is Axis.THREADS:
        *before, tile = tiles.body
        assert isinstance(tile, Loop)
        return (replace(tiles, body=(*before, *_either(size, change.least_bytes, (tile,), _staged(tile, change)))),)
    *before, tile = tiles.body
    assert isinstance(tile, Loop)
    ahead = fetch(change.rows, loop, Dim.of(tiles.var) * TILE, TILE)
    staged = _staged(tile, change)
    memory = tuple(s for s in staged if isinstance(s, Alloc))
    large = replace(tiles, body=(*before, *memory, *ahead, *staged[len(memory) :]))
    return _either(size, change.least_bytes, (loop,), (large,))


def _tiled(loop: Loop) -> Loop:
    """The loop in tiles of TILE cells, each a loop in lanes."""
    tiles = split(loop, TILE, f"{loop.var}w", loop.var)
    (tile,) = tiles.body
    assert isinstance(tile, Loop)
    before, tile = counted(tile, f"{loop.var}_count")
    axis = Axis.THREADS if loop.axis is Axis.THREADS else Axis.SERIAL
    return replace(tiles, axis=axis, body=(*before, replace(tile, axis=Axis.LANES)))


def _either(size: Dim, least_bytes: int, small: Statements, large: Statements) -> Statements:
    if size.constant is not None:
        return large
    is_large = Call("less_equal", (Const(least_bytes, DType.I64), Index(size)), DType.BOOL)
    return (If(is_large, large), If(Call("logical_not", (is_large,), DType.BOOL), small))


def _staged(tile: Loop, change: _Around) -> Statements:
    """A tile whose stores go to memory of the thread first, and from there to the outputs, around the caches; what lies
    in such memory goes from there."""
    if as_they_are := _copies(tile, change):
        return tuple(replace(tile, body=(copy,)) for copy in as_they_are)
    outputs = change.outputs
    own = {name: f"{name}.tile" for store in _stores(tile) for name in store.buffers}
    cells, cell = Dim.of(min(tile.extent.constant or TILE, TILE)), (Dim.of(tile.var),)
    memory = tuple(Alloc(own[name], outputs[name].dtype, (cells,), Space.REGISTER) for name in own)
    body = tuple(_into(s, own, cell) if isinstance(s, Store) else s for s in tile.body)
    copies = []
    for store in _stores(tile):
        (name,) = store.buffers
        value = Load(own[name], cell, outputs[name].dtype.compute)
        copies.append(replace(tile, body=(replace(store, values=(value,), non_temporal=True),)))
    return (*memory, replace(tile, body=body), *copies)


def _copies(tile: Loop, change: _Around) -> tuple[Store, ...]:
    """The stores of a tile, if all it does is to copy cells that lie side by side in memory of the thread."""
    lets = {let.name: let.value for let in tile.body if isinstance(let, Let)}
    copies: list[Store] = []
    for store in _stores(tile):
        (value,) = store.values
        load = lets.get(value.name) if isinstance(value, Var) else value
        if not isinstance(load, Load) or load.where or stride_of(load, tile.var) != Dim.of(1):
            return ()
        if change.own.get(load.buffer) is not change.outputs[store.buffers[0]].dtype:
            return ()
        copies.append(replace(store, values=(load,), non_temporal=True))
    return tuple(copies)


def _into(store: Store, own: Mapping[str, str], cell: Shape) -> Store:
    return replace(store, buffers=(own[store.buffers[0]],), index=cell)
