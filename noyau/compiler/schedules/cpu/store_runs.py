"""Runs of neighbouring cells that loops store in large outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from noyau.compiler.schedules.cpu.next_rows import NextRow
from noyau.compiler.schedules.primitives import Statements, is_costly, most_of, stride_of
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
            numbers.setdefault(let.name, set()).add(most_of(let.value))
    return {name: max(most) for name, most in numbers.items() if len(most) == 1 and LEAST_CELLS <= max(most) <= TILE}


def bytes_of(loop: ir.Loop, change: LargeOutputs) -> Dim | None:
    """The size of the first output that a loop stores, if it stores runs of neighbouring cells of outputs and does
    nothing else."""
    if (
        loop.axis is ir.Axis.SERIAL
        or not all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
        or is_costly(loop.body)
    ):
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
