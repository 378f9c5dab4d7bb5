"""Memory of the loop interpreter: cells that record whether they are set, and which iterations touched them.

A race of two threads or lanes, a read of an unset cell, or an index outside is a GraphError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import GraphError

Array = np.ndarray
Touched = dict[tuple[int, int], int]  # a memory and a cell: who touched it, -1 for several


class CheckedArray:
    """The memory of a buffer or an Alloc: cells in the dtype that arithmetic uses, None where unset."""

    def __init__(self, name: str, dtype: DType, shape: Sequence[int], array: Array | None = None) -> None:
        self.name, self.dtype, self.shape = name, dtype, tuple(shape)
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self.rounds = dtype.numpy.type if dtype is not dtype.compute else None
        unset = [None] * self.size
        self.cells: list[Any] = unset if array is None else list(np.ravel(array).astype(dtype.compute.numpy))

    def unset(self) -> CheckedArray:
        """Another memory of the same shape and dtype, all unset."""
        return CheckedArray(self.name, self.dtype, self.shape)

    def load(self, *index: int) -> Any:
        value = self.cells[self.offset(index)]
        if value is None:
            raise GraphError(f"{self.name}{list(index)} is read before it is set")
        return value

    def store(self, value: Any, *index: int) -> None:
        """Store a value, rounded once to the buffer's dtype."""
        if self.rounds is not None:
            value = np.float32(self.rounds(value))
        self.cells[self.offset(index)] = value

    def offset(self, index: tuple[int, ...]) -> int:
        """The flat offset of an index; a single index into memory of another rank is an offset already."""
        shape = self.shape if len(index) == len(self.shape) else (self.size,)
        at = 0
        for position, extent in zip(index, shape, strict=True):
            if not 0 <= position < extent:
                raise GraphError(f"{self.name}{list(index)} is outside {list(shape)}")
            at = at * extent + position
        return at

    def result(self) -> Array:
        """The array; GraphError names the first cell that was never written."""
        if None in self.cells:
            missing = np.unravel_index(self.cells.index(None), self.shape)
            raise GraphError(f"{self.name}{[int(at) for at in missing]} is never written")
        return np.array(self.cells, self.dtype.numpy).reshape(self.shape)


class RaceDetector:
    """Race detector of one parallel loop: the iterations that touched each cell. GraphError where two touch one cell,
    unless both read, or both merge, on threads or atomically."""

    def __init__(self, lanes: bool) -> None:
        self.lanes = lanes
        self.readers: Touched = {}
        self.writers: Touched = {}
        self.mergers: Touched = {}

    def loads(self, who: int, memory: CheckedArray, *index: int) -> None:
        key = self.meet(who, memory, index, self.writers, self.mergers)
        self.readers[key] = who if self.readers.get(key, who) == who else -1

    def stores(self, who: int, memory: CheckedArray, *index: int) -> None:
        self.writers[self.meet(who, memory, index, self.readers, self.writers, self.mergers)] = who

    def merges(self, who: int, is_atomic: bool, memory: CheckedArray, *index: int) -> None:
        """Record a merge. Threads may merge into one cell; of lanes only one merge survives, unless they are atomic."""
        others = (self.mergers,) if self.lanes and not is_atomic else ()
        key = self.meet(who, memory, index, self.readers, self.writers, *others)
        self.mergers[key] = who if self.mergers.get(key, who) == who else -1

    def meet(self, who: int, memory: CheckedArray, index: tuple[int, ...], *others: Touched) -> tuple[int, int]:
        key = id(memory), memory.offset(index)
        for touched in others:
            if touched.get(key, who) != who:
                raise GraphError(f"two {'lanes' if self.lanes else 'threads'} meet in {memory.name}{list(index)}")
        return key
