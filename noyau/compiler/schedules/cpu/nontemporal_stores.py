"""Large outputs written around the caches: what is stored is not read before it, and pushes nothing else out.

A store to memory that is not in a cache first reads its line, which the kernel then overwrites. Stores that go around
the caches do not, which saves a third of the traffic of a map; but what comes next has to read them from far away. So
they pay where an output is larger than what the caches would keep, and are decided as the kernel runs. (What glibc's
memcpy does for large copies.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.prefetches import NextRow, fetch, next_rows, replaced
from noyau.compiler.schedules.primitives import Statements
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, product
from noyau.ir.walk import every_statement, loads_of

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
    """The lengths of tiles, min(a number, what is left), by name: that number. A name that stands twice, in scopes of
    their own, is left out where the numbers differ."""
    numbers: dict[str, set[int]] = {}
    for let in every_statement(body):
        if isinstance(let, ir.Let):
            numbers.setdefault(let.name, set()).add(primitives.most_of(let.value))
    return {name: max(most) for name, most in numbers.items() if len(most) == 1 and LEAST_CELLS <= max(most) <= TILE}


def bytes_of(loop: ir.Loop, change: LargeOutputs) -> Dim | None:
    """The size of the first output that a loop stores, if it stores runs of neighbouring cells of outputs and does
    nothing else."""
    if (
        loop.axis is ir.Axis.SERIAL
        or not all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
        or primitives.is_costly(loop.body)
    ):
        return None
    stores, known = stores_of(loop), most_rounds(loop, change)
    read = {load.buffer for load in loads_of(loop.body)}
    if known is None and any(name.startswith("#") for name in loop.extent.names):  # a tile already
        return None
    for store in stores:
        buffer = change.outputs.get(store.buffers[0])
        if (
            buffer is None
            or len(store.buffers) > 1
            or store.merge
            or primitives.stride_of(store, loop.var) != Dim.of(1)
        ):
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
    """Innermost loops that store runs of neighbouring cells of outputs, each output of `least_bytes` or more: tiles of
    cells, then their stores around the caches."""
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
    *before, last = body
    if (
        isinstance(last, ir.Loop)
        and last.axis is ir.Axis.THREADS
        and all(isinstance(s, ir.Let | ir.Store) for s in last.body)
    ):
        tiles, length, tile = _tiled(last)
        return (*before, replace(tiles, body=(*length, tile)))
    return body


def _around(statement: ir.Statement, change: LargeOutputs) -> Statements | None:
    """A loop in tiles that go around the caches, where it stores large runs of cells; None of what does not."""
    size = bytes_of(statement, change) if isinstance(statement, ir.Loop) else None
    if size is None or not isinstance(statement, ir.Loop):
        return None
    known = size.constant
    return (statement,) if known is not None and known < change.least_bytes else _loop(statement, size, change)


def _loop(loop: ir.Loop, size: Dim, change: LargeOutputs) -> Statements:
    """The loop, and the same in tiles that go around the caches, of which the kernel takes one by the size."""
    if loop.axis is ir.Axis.LANES and (most_rounds(loop, change) or TILE + 1) <= TILE:
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
    tiles, length, tile = primitives.tiled(loop, TILE, f"{loop.var}w", loop.var, f"{loop.var}_count")
    axis = ir.Axis.THREADS if loop.axis is ir.Axis.THREADS else ir.Axis.SERIAL
    return replace(tiles, axis=axis), length, replace(tile, axis=ir.Axis.LANES)


def _by_size(size: Dim, least_bytes: int, small: Statements, large: Statements) -> Statements:
    if size.constant is not None:
        return large
    return primitives.either(
        ir.Call("less_equal", (ir.Const(least_bytes, DType.I64), ir.Index(size)), DType.BOOL), large, small
    )


def _staged(tile: ir.Loop, change: LargeOutputs) -> Statements:
    """A tile whose stores go to memory of the thread first, and from there to the outputs, around the caches; what lies
    in such memory goes from there."""
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
    copies = (_streamed(tile, store, load) for store, load in zip(stores_of(tile), loads, strict=True))
    return (*memory, replace(tile, body=body), *copies)


def _streamed(tile: ir.Loop, store: ir.Store, load: ir.Load) -> ir.StreamStore:
    """The cells of a tile, from memory of the thread."""
    to, (start,) = (replaced(index, {tile.var: 0}) for index in (store.index, load.index))
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
        copies.append(_streamed(tile, store, load))
    return tuple(copies)
