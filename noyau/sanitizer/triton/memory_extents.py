"""The extents of a launch's arguments in memory: raw addresses as cells of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Access, WatchedMemory

Array = np.ndarray
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Extent:
    """The memory of an argument: its number in the shadow, where it starts and ends, and its cells as bits."""

    memory: int
    start: int
    end: int
    bits: Array

    @property
    def item(self) -> int:
        """Bytes of a cell."""
        return int(self.bits.itemsize)


class MemoryExtents:
    """The arguments of a launch, by the addresses that pointers hold. What lies in none counts for the
    one that the rest of its access lies in, or for the nearest."""

    def __init__(self, shadow: Shadow) -> None:
        self.shadow = shadow
        self.memories: dict[int, WatchedMemory] = {}
        self._extents: list[Extent] = []
        self._borders = np.zeros(0, np.int64)  # halfway between an argument and the next

    def add(self, name: str, array: Array, *, is_set: bool) -> int:
        """The number of the memory of a packed array, which has to outlive this. MemoryError where there is no room
        for its shadow."""
        memory = self.shadow.memory(array.size, is_set=is_set)
        self.memories[memory] = WatchedMemory(name, array.shape)
        bits = array.reshape(-1).view(_BITS[array.itemsize])
        start = int(bits.__array_interface__["data"][0])
        self._extents.append(Extent(memory, start, start + bits.nbytes, bits))
        self._extents.sort(key=lambda each: each.start)
        ends = zip(self._extents, self._extents[1:], strict=False)
        self._borders = np.array([(one.end + other.start) // 2 for one, other in ends], np.int64)
        return memory

    def touch(self, addresses: Array, size: int, access: Access, site: int, values: Array | None = None) -> Array:
        """Note one access of `size` bytes at each address; which of them lie inside an argument. `values`: what a
        write puts there, as many."""
        inside = np.zeros(addresses.size, bool)
        places = addresses.view(np.int64) if addresses.dtype.itemsize == 8 else addresses.astype(np.int64)
        if not places.size or not self._extents:
            return inside
        bits = None if values is None else np.ascontiguousarray(values).view(_BITS[values.itemsize])
        low, high = int(places.min()), int(places.max()) + size
        for extent in self._extents:
            if extent.start <= low and high <= extent.end:
                return self._touched(extent, places, size, access, site, bits)
        nearest = self._counting(places)
        for number in np.unique(nearest):
            chosen = nearest == number
            extent = self._extents[number]
            own = None if bits is None else bits[chosen]
            inside[chosen] = self._touched(extent, places[chosen], size, access, site, own)
        return inside

    def _counting(self, places: Array) -> Array:
        """For which argument each address counts: the one that it lies in, or others of the same access do, since they
        come of one pointer; else the nearest."""
        nearest: Array = np.searchsorted(self._borders, places, side="right")
        starts = np.array([each.start for each in self._extents])[nearest]
        ends = np.array([each.end for each in self._extents])[nearest]
        inside = (places >= starts) & (places < ends)
        if inside.any() and not inside.all():
            nearest[~inside] = nearest[inside][0]
        return nearest

    def _touched(
        self, extent: Extent, places: Array, size: int, access: Access, site: int, values: Array | None
    ) -> Array:
        """Accesses that count for one argument."""
        offsets = places - extent.start
        inside: Array = (offsets >= 0) & (places <= extent.end - size)
        shift = extent.item.bit_length() - 1  # items are of 1, 2, 4 or 8 bytes
        cells = offsets >> shift
        is_one = size == extent.item and not (offsets & (size - 1)).any()
        ends = cells if is_one else (offsets + (size - 1)) >> shift
        widest = 1 if is_one else int((ends - cells).max()) + 1
        changed = None
        if values is not None and widest == 1 and size == extent.item:
            if inside.all():
                changed = extent.bits[cells] != values
            else:
                changed = np.ones(cells.size, bool)
                changed[inside] = extent.bits[cells[inside]] != values[inside]
        self.shadow.touch_many(extent.memory, cells, access, site, changed)
        for more in range(1, widest):
            wide = cells + more
            self.shadow.touch_many(extent.memory, wide[wide <= ends], access, site)
        return inside
