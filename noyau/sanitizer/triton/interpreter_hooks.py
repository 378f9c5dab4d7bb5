"""Hooks of Triton's interpreter that record each load, store and atomic as an access to an argument of the launch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import numpy as np

from noyau.errors import dependency
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.recording_array import TooManyError
from noyau.sanitizer.records import Access, Site, WatchedMemory
from noyau.sanitizer.scripts.fakes import patch
from noyau.toolchain.triton import interpreter as own_interpreter
from noyau.toolchain.triton.programs import BATCH

with dependency("triton, or torch,", "noyau-kernels[triton]"):
    import triton
    from triton.runtime import interpreter

Array = np.ndarray
Cells = np.ndarray | None
Plain = Callable[..., Any]  # the builder's own method
_FOLDERS = tuple(f"{Path(file).parent}{os.sep}" for file in (triton.__file__, __file__, own_interpreter.__file__))
_ATOMIC_MOVES = ("create_atomic_load", "create_atomic_store", "create_atomic_poll")  # of newer releases
_INT32_END = 2.0**31
_MOST_KEPT = 1 << 24  # accesses of a batch
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_BORDER = 2  # programs at each end of an axis
_MORE = 4  # factor on the limit of accesses, for programs at the corners


class Hooks:
    """Hooks in the interpreter's builder while a launch is watched. `most`: accesses after which it ends or, with
    `goes_on`, only a sample of its programs is watched."""

    def __init__(self, extents: MemoryExtents, most: int, *, goes_on: bool) -> None:
        self.extents, self.shadow, self.sample, self.goes_on = extents, extents.shadow, LaunchSample(most), goes_on
        self.builder: Any = interpreter.interpreter_builder
        self.sites: list[Site] = []
        self.overflows: set[int] = set()  # sites of int32 products that overflowed
        self.masks: dict[int, str] = {}  # the fault of a mask, by the site of an access that lies outside despite it
        self._numbers: dict[tuple[str, int], int] = {}
        self._is_atomic = False

    def replacements(self) -> dict[str, Callable[..., Any]]:
        """Return replacements of methods of the builder, by name."""
        hooks: dict[str, Callable[..., Any]] = {
            "set_grid_dim": self.grid_dim,
            "set_grid_idx": self.grid_idx,
            "settle": self.settle,
            "create_masked_load": self.load,
            "create_masked_store": self.store,
            "create_atomic_rmw": self.merge,
            "create_atomic_cas": self.compare_and_swap,
            "create_mul": self.multiply,
            **dict.fromkeys(_ATOMIC_MOVES, self.move),
        }
        methods = {name: getattr(self.builder, name, None) for name in hooks}
        return {name: partial(hooks[name], method) for name, method in methods.items() if method is not None}

    @property
    def part(self) -> str:
        """The watched part of the launch, in words."""
        if self.sample.is_over:
            return f"its first {self.shadow.accesses} accesses alone"
        return f"{self.sample.watched} of {self.sample.total} programs"

    def owner(self, number: int) -> str:
        """Return a program in words, by its number."""
        grid, place = self.sample.grid, self.sample.place(number)
        axes = 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1
        return f"program {place[0]}" if axes == 1 else f"program {place[:axes]}"

    def grid_dim(self, plain: Plain, x: int, y: int, z: int) -> Any:
        self.sample.grid = (int(x), int(y), int(z))
        return plain(x, y, z)

    def grid_idx(self, plain: Plain, x: Any, y: Any, z: Any) -> Any:
        grid = self.sample.grid
        owner = (x * grid[1] + y) * grid[2] + z
        owners = owner.tolist() if BATCH.size else [owner]
        self.extents.is_blind = self.goes_on and not self.sample.has(owners, self.shadow.accesses)
        self.extents.owners = np.array(owners, np.int64)
        if not BATCH.size:
            self.shadow.enter(owner, block=owner)
        return plain(x, y, z)

    def settle(self, plain: Plain, is_whole: bool) -> Any:
        self.extents.settle(is_whole)
        return plain(is_whole)

    def load(self, plain: Plain, pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        inside = self.note(pointers, mask.data.astype(bool, copy=False), Access.READ)
        return plain(pointers, _like(mask, inside), *rest, **options)

    def store(self, plain: Plain, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        inside = self.note(pointers, mask.data, Access.WRITE, value.data)
        return plain(pointers, value, _like(mask, inside), *rest, **options)

    def merge(self, plain: Plain, how: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        self.fence(pointers, rest)
        inside = self.note(pointers, mask.data, Access.ATOMIC)
        return plain(how, pointers, value, _like(mask, inside), *rest, **options)

    def compare_and_swap(
        self, plain: Plain, pointers: Any, expected: Any, value: Any, *rest: Any, **options: Any
    ) -> Any:
        """Record a compare-and-swap, which takes no mask: lanes that lie outside are left out."""
        self.fence(pointers, rest)
        inside = self.note(pointers, np.ones(1, bool), Access.SWAP)
        if inside.all():
            return plain(pointers, expected, value, *rest, **options)
        handles = pointers, expected, value
        some = [_like(each, np.broadcast_to(each.data, inside.shape)[inside].copy()) for each in handles]
        result = np.zeros(inside.shape, expected.data.dtype)
        if inside.any():
            result[inside] = plain(*some, *rest, **options).data
        return _like(expected, result)

    def move(self, plain: Plain, pointers: Any, *rest: Any, **options: Any) -> Any:
        """Record atomic loads and stores, which the interpreter performs by plain ones."""
        self.fence(pointers, rest)
        self._is_atomic = True
        try:
            return plain(pointers, *rest, **options)
        finally:
            self._is_atomic = False

    def multiply(self, plain: Plain, left: Any, right: Any) -> Any:
        """Record int32 products that overflow: they are the usual reason for an offset that lies outside."""
        exact = plain(left, right)
        if exact.data.dtype == np.int32 and _largest(left.data) * _largest(right.data) >= _INT32_END:
            wide = np.multiply(left.data, right.data, dtype=np.float64)
            if np.any(np.abs(wide) >= _INT32_END):
                self.overflows.add(self.site())
        return exact

    def fence(self, pointers: Any, rest: Sequence[Any]) -> None:
        """Record a fence for an atomic of one cell, unless it is relaxed: locks and tickets order earlier accesses."""
        is_one = pointers.data.ndim == 1 if BATCH.size else pointers.data.size == 1
        if is_one and not any("relaxed" in str(each).lower() for each in rest):
            self.sample.is_ordered, self.extents.has_fence = True, not self.extents.is_blind

    def note(self, pointers: Any, lanes: Array, access: Access, values: Array | None = None) -> Array:
        """Record an access, and return its lanes that lie inside an argument."""
        access = Access.ATOMIC if self._is_atomic else access
        self.end_if_full()
        size = max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)
        addresses, values = pointers.data, values if access is Access.WRITE else None
        shape = np.broadcast_shapes(addresses.shape, lanes.shape)
        is_same = shape[0] == 1 < BATCH.size and access is not Access.ATOMIC  # the same for all programs of a batch
        shape = (BATCH.size, *shape[1:]) if BATCH.size else shape
        if not addresses.shape == lanes.shape == (shape if values is None else values.shape):
            addresses, lanes = np.broadcast_to(addresses, shape), np.broadcast_to(lanes, shape)
            values = None if values is None else np.broadcast_to(values, shape)
        starts = None
        if BATCH.size and not self.extents.is_blind:
            counts = np.count_nonzero(lanes.reshape(BATCH.size, -1), axis=1)
            starts = np.append(0, np.cumsum(counts))
        chosen: Any = ... if lanes.all() else lanes  # indexing by a mask takes longer
        flat_values = None if values is None else values[chosen].reshape(-1)
        hits = self.extents.touch(addresses[chosen].reshape(-1), size, access, self.site(), flat_values, starts)
        if hits.all():
            return lanes[:1] if is_same else lanes
        inside = lanes.copy()
        inside[lanes] = hits
        if chosen is lanes:
            wrong = np.argwhere(inside != lanes)[0][: BATCH.axes]
            self.masks.setdefault(self.site(), _forgotten(lanes[*wrong], inside[*wrong]))
        return inside[:1] if is_same else inside

    def end_if_full(self) -> None:
        """End the launch at its limit of accesses or, if it goes on, stop watching once one program makes too many."""
        if not self.goes_on and self.shadow.accesses > self.sample.most:
            self.sample.is_over = True
            raise TooManyError
        if self.goes_on and self.sample.end_if_full(self.shadow.accesses):
            self.extents.is_blind = True

    def site(self) -> int:
        """Return the number of the kernel's current line."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_FOLDERS):
            frame = frame.f_back
        place = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
        if place not in self._numbers:
            self._numbers[place] = len(self.sites)
            self.sites.append(Site.of(*place))
        return self._numbers[place]


@contextmanager
def interpreter_hooks(extents: MemoryExtents, most: int, *, goes_on: bool = False) -> Iterator[Hooks]:
    """Watch the programs that the interpreter runs within the context."""
    hooks = Hooks(extents, most, goes_on=goes_on)
    own_interpreter.install()
    with ExitStack() as undone, np.errstate(all="ignore"):
        for name, function in hooks.replacements().items():
            patch(undone, hooks.builder, name, function)
        yield hooks


def _largest(cells: Array) -> int:
    return max(int(cells.max()), -int(cells.min()))


def _forgotten(lanes: Array, inside: Array) -> str:
    """Describe the axes of a block that its mask does not restrict, though the access leaves its tensor there."""
    axes = [axis for axis in range(lanes.ndim) if lanes.shape[axis] > 1]
    free = [axis for axis in axes if (lanes == lanes.take([0], axis)).all() and np.diff(inside, axis=axis).any()]
    if not free or len(axes) == 1:
        return "the mask lets lanes through that lie outside: compare the offsets with the size of this tensor"
    names = " and ".join(f"axis {axis}" for axis in free)
    return f"the mask forgets {names} of its block: compare the offsets along it too, as in (rows < m) & (columns < n)"


def _like(handle: Any, data: Array) -> Any:
    """Return a handle of the interpreter with other data."""
    return type(handle)(data, handle.dtype)


@dataclass(slots=True)
class Extent:
    """The memory of an argument: its number in the shadow, its start and end address, and its cells as bits."""

    memory: int
    start: int
    end: int
    bits: np.ndarray


class MemoryExtents:
    """The arguments of a launch, by address. An address outside all of them counts for the argument that contains the
    rest of its access, or else for the nearest."""

    def __init__(self, shadow: Shadow) -> None:
        self.shadow = shadow
        self.is_blind = False  # no access is recorded
        self.has_fence = False  # a fence precedes the next access
        self.owners = np.zeros(0, np.int64)  # the running programs
        # A batch's accesses: whether a fence precedes each, where each program's cells begin, and the access.
        self.pending: list[tuple[bool, Array, tuple[Any, ...]]] = []
        self.kept = 0  # the number of their cells
        self.memories: dict[int, WatchedMemory] = {}
        self.stores: dict[int, set[int]] = {}  # the sites of each memory's stores
        self._extents: list[Extent] = []
        self._borders = np.zeros(0, np.int64)  # halfway between an argument and the next

    def add(self, name: str, array: np.ndarray, *, is_set: bool) -> int:
        """Add a packed array, which must outlive this; return its number. MemoryError without room for its shadow."""
        memory = self.shadow.memory(array.size, is_set=is_set)
        self.memories[memory] = WatchedMemory(name, array.shape)
        bits = array.reshape(-1).view(_BITS[array.itemsize])
        start = int(bits.__array_interface__["data"][0])
        self._extents.append(Extent(memory, start, start + bits.nbytes, bits))
        self._extents.sort(key=lambda each: each.start)
        ends = zip(self._extents, self._extents[1:], strict=False)
        self._borders = np.array([(one.end + other.start) // 2 for one, other in ends], np.int64)
        return memory

    def note(self, starts: Cells, *access: Any) -> None:
        """Record an access of many cells, as `Shadow.touch_many` takes it, or keep it until the batch has run."""
        if starts is not None:
            self.pending.append((self.has_fence, starts, access))
            self.kept += int(starts[-1])
            if self.kept > _MOST_KEPT:  # if the batch is split later, its programs repeat them
                self.settle(is_whole=True)
        else:
            if self.has_fence:
                self.shadow.fence()
            self.shadow.touch_many(*access)
        self.has_fence = False

    def settle(self, is_whole: bool) -> None:
        """Record each statement of a batch, program by program; nothing if the batch is rolled back."""
        for has_fence, starts, access in self.pending if is_whole else ():
            self.shadow.touch_each(self.owners, starts, has_fence, access)
        self.pending.clear()
        self.kept = 0

    def touch(
        self, addresses: Array, size: int, access: Access, site: int, values: Cells = None, starts: Cells = None
    ) -> Array:
        """Record one access of `size` bytes at each address; return which of them lie inside an argument. `values`: the
        values that a write stores; `starts`: in a batch, where each program's addresses begin, and where they end."""
        inside = np.zeros(addresses.size, bool)
        places = addresses.view(np.int64) if addresses.dtype.itemsize == 8 else addresses.astype(np.int64)
        if not places.size or not self._extents:
            return inside
        bits = None if values is None else np.ascontiguousarray(values).view(_BITS[values.itemsize])
        low, high = int(places.min()), int(places.max()) + size
        for extent in self._extents:
            if extent.start <= low and high <= extent.end:
                if self.is_blind:
                    return ~inside
                return self._touch(extent, places, size, access, site, bits, starts)
        nearest = self._counting(places)
        for number in np.unique(nearest):
            chosen = nearest == number
            own, begins = None if bits is None else bits[chosen], _starts_of(starts, chosen)
            inside[chosen] = self._touch(self._extents[number], places[chosen], size, access, site, own, begins)
        return inside

    def _counting(self, places: np.ndarray) -> np.ndarray:
        """Return the argument that each address counts for: the one that contains it or, since an access has one
        pointer, another address of the access; else the nearest."""
        nearest: np.ndarray = np.searchsorted(self._borders, places, side="right")
        starts = np.array([each.start for each in self._extents])[nearest]
        ends = np.array([each.end for each in self._extents])[nearest]
        inside = (places >= starts) & (places < ends)
        if inside.any() and not inside.all():
            nearest[~inside] = nearest[inside][0]
        return nearest

    def _touch(
        self, extent: Extent, places: Array, size: int, access: Access, site: int, values: Cells, starts: Cells
    ) -> Array:
        """Record the accesses that count for one argument."""
        if access is Access.WRITE:
            self.stores.setdefault(extent.memory, set()).add(site)
        offsets = places - extent.start
        inside: np.ndarray = (offsets >= 0) & (places <= extent.end - size)
        if self.is_blind:
            return inside
        if size < extent.bits.itemsize:
            self._part(extent, size)
        item = int(extent.bits.itemsize)
        shift = item.bit_length() - 1  # cells are of 1, 2, 4 or 8 bytes
        cells = offsets >> shift
        is_one = size == item and not (offsets & (size - 1)).any()
        ends = cells if is_one else (offsets + (size - 1)) >> shift
        widest = 1 if is_one else int((ends - cells).max()) + 1
        changed = None
        if values is not None and not ((offsets & (size - 1)).any() or extent.bits.nbytes % size):
            changed, held = np.ones(cells.size, bool), extent.bits.view(_BITS[size])
            wide = offsets[inside] // size
            changed[inside] = _changes(held, wide, values[inside], is_batch=starts is not None)
        self.note(starts, extent.memory, cells, access, site, changed)
        for more in range(1, widest):
            reaches = cells + more <= ends
            which = None if changed is None else changed[reaches]
            self.note(_starts_of(starts, reaches), extent.memory, cells[reaches] + more, access, site, which)
        return inside

    def _part(self, extent: Extent, size: int) -> None:
        """Split the cells of an argument into cells of `size` bytes, since it is accessed as a narrower dtype."""
        self.settle(is_whole=True)  # if the batch is split later, its programs repeat them
        parts = extent.bits.itemsize // size
        self.shadow.split(extent.memory, parts)
        memory = self.memories[extent.memory]
        self.memories[extent.memory] = replace(memory, width=memory.width * parts)
        extent.bits = extent.bits.view(_BITS[size])


def _starts_of(starts: Cells, chosen: Array) -> Cells:
    """Return where each program's accesses begin among the chosen ones."""
    return None if starts is None else np.append(0, np.cumsum(chosen))[starts]


def _changes(bits: Array, cells: Array, values: Array, *, is_batch: bool) -> Array:
    """Whether each write changes its cell, which an earlier program of the batch may have written."""
    changed: Array = bits[cells] != values
    if is_batch:
        order = np.argsort(cells, kind="stable")
        again = np.flatnonzero(np.diff(cells[order]) == 0)
        changed[order[again + 1]] = values[order[again + 1]] != values[order[again]]
    return changed


class LaunchSample:
    """A sample of a launch's programs, drawn as they begin. `most`: accesses that are watched.

    Half of the accesses are for the first programs; the rest is spread over the remaining grid, to all programs if it
    suffices, else at random with a fixed seed. Those at and beside the corners of the grid are always watched, since
    masks and offsets fail there. A batch is chosen as a whole, so that neighbours are seen together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.grid: tuple[int, int, int] = (0, 1, 1)  # no programs before the launch
        self.chosen: dict[int, bool] = {}  # whether each program that has begun is watched
        self.watched = 0
        self.is_ordered = False  # programs wait for others: the watched ones then have no gaps
        self.is_over = False  # nothing more is watched
        self._random = Random(0)  # noqa: S311  it hides nothing

    @property
    def total(self) -> int:
        """The number of programs of the launch."""
        x, y, z = self.grid
        return x * y * z

    @property
    def is_partial(self) -> bool:
        """Whether accesses were left out."""
        return self.is_over or self.watched < len(self.chosen)

    def place(self, program: int) -> tuple[int, int, int]:
        """Return the place in the grid of a program, by its number."""
        rest, z = divmod(program, self.grid[2])
        return (*divmod(rest, self.grid[1]), z)

    def has(self, programs: Sequence[int], accesses: int) -> bool:
        """Whether programs that begin together, or go on, are watched. `accesses`: the number until now."""
        if programs[0] not in self.chosen:
            is_in = self._has_room(programs, accesses)
            self.chosen.update(dict.fromkeys(programs, is_in))
            self.watched += len(programs) if is_in else 0
        return self.chosen[programs[0]] and not self.is_over

    def _has_room(self, programs: Sequence[int], accesses: int) -> bool:
        room = self.most - accesses
        if self.is_ordered:
            return room >= 0 and not self.is_partial
        wanted = accesses / max(self.watched, 1) * (self.total - len(self.chosen))
        if room >= self.most / 2 or room >= wanted or self._random.random() < room / wanted:
            return True
        places = (zip(self.place(program), self.grid, strict=True) for program in programs)
        corners = (all(min(at, extent - 1 - at) < _BORDER for at, extent in place) for place in places)
        return accesses <= _MORE * self.most and any(corners)

    def end_if_full(self, accesses: int) -> bool:
        """Whether a single program makes so many accesses that no more are watched."""
        self.is_over = self.is_over or accesses > _MORE * self.most
        return self.is_over
