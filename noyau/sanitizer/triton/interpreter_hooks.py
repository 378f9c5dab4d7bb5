"""Triton's interpreter with each of its loads, stores and atomics noted as of a cell of an argument of the launch.

What is wrapped is found by its name in the interpreter's builder: block pointers and tensor descriptors come to masked
loads and stores there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from noyau.errors import MissingExtraError, UnsupportedError
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.recording_array import TooManyError
from noyau.sanitizer.records import Access, Site, WatchedMemory
from noyau.sanitizer.scripts.fakes import patch
from noyau.toolchain.triton import interpreter as own_interpreter
from noyau.toolchain.triton.builder import lanes_of
from noyau.toolchain.triton.programs import BATCH

try:
    import triton
    from triton.runtime import interpreter
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau-kernels[triton]'") from error

Array = np.ndarray
Cells = np.ndarray | None
Plain = Callable[..., Any]  # the builder's own method
_FOLDERS = tuple(f"{Path(file).parent}{os.sep}" for file in (triton.__file__, __file__, own_interpreter.__file__))
_NEEDED = ("set_grid_dim", "set_grid_idx", "create_masked_load", "create_masked_store", "create_atomic_rmw")
_ATOMIC_MOVES = ("create_atomic_load", "create_atomic_store", "create_atomic_poll")  # of newer releases
_INT32_END = 2.0**31


class Hooks:
    """Hooks in the interpreter's builder while a launch is watched. `most`: accesses after which it ends, or, where it
    `goes_on`, is not watched any more."""

    def __init__(self, extents: MemoryExtents, most: int, *, goes_on: bool) -> None:
        self.extents, self.shadow, self.most, self.goes_on = extents, extents.shadow, most, goes_on
        self.builder: Any = interpreter.interpreter_builder
        self.grid: tuple[int, ...] = (0, 1, 1)  # no programs, until there are some
        self.sites: list[Site] = []
        self.overflows: set[int] = set()  # sites of products of int32 that did
        self.masks: dict[int, str] = {}  # what masks forget, by the site of an access that lies outside in spite of one
        self.was_cut = False
        self._numbers: dict[tuple[str, int], int] = {}
        self._is_atomic = False

    def wrapped(self) -> dict[str, Callable[..., Any]]:
        """Replacements of methods of the builder, by name. UnsupportedError where this release of Triton lacks one."""
        missing = next((name for name in _NEEDED if not hasattr(self.builder, name)), None)
        if missing is not None:
            message = f"the interpreter of triton {triton.__version__} has no {missing}: its accesses are not seen"
            raise UnsupportedError(message)
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

    def owner(self, number: int) -> str:
        """A program in words, by its number."""
        rest, z = divmod(number, self.grid[2])
        x, y = divmod(rest, self.grid[1])
        places = (x, y, z) if self.grid[2] > 1 else (x, y) if self.grid[1] > 1 else (x,)
        return f"program {places[0]}" if len(places) == 1 else f"program {places}"

    def grid_dim(self, plain: Plain, x: int, y: int, z: int) -> Any:
        self.grid = (int(x), int(y), int(z))
        return plain(x, y, z)

    def grid_idx(self, plain: Plain, x: Any, y: Any, z: Any) -> Any:
        owner = (x * self.grid[1] + y) * self.grid[2] + z
        if BATCH.size:
            self.extents.owners = owner.tolist()
        else:
            self.shadow.enter(owner, block=owner)
        return plain(x, y, z)

    def settle(self, plain: Plain, is_whole: bool) -> Any:
        self.extents.settle(is_whole)
        return plain(is_whole)

    def load(self, plain: Plain, pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        inside = self.noted(pointers, lanes_of(mask), Access.READ)
        return plain(pointers, _like(mask, inside), *rest, **options)

    def store(self, plain: Plain, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        inside = self.noted(pointers, lanes_of(mask), Access.WRITE, value.data)
        return plain(pointers, value, _like(mask, inside), *rest, **options)

    def merge(self, plain: Plain, how: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        self.fence(pointers, rest)
        inside = self.noted(pointers, lanes_of(mask), Access.ATOMIC)
        return plain(how, pointers, value, _like(mask, inside), *rest, **options)

    def compare_and_swap(
        self, plain: Plain, pointers: Any, expected: Any, value: Any, *rest: Any, **options: Any
    ) -> Any:
        """It takes no mask: lanes that lie outside are left out."""
        self.fence(pointers, rest)
        inside = self.noted(pointers, np.ones(1, bool), Access.SWAP)
        if inside.all():
            return plain(pointers, expected, value, *rest, **options)
        handles = pointers, expected, value
        some = [_like(each, np.broadcast_to(each.data, inside.shape)[inside].copy()) for each in handles]
        result = np.zeros(inside.shape, expected.data.dtype)
        if inside.any():
            result[inside] = plain(*some, *rest, **options).data
        return _like(expected, result)

    def move(self, plain: Plain, pointers: Any, *rest: Any, **options: Any) -> Any:
        """Loads and stores that are atomic: the interpreter has plain ones do them."""
        self.fence(pointers, rest)
        self._is_atomic = True
        try:
            return plain(pointers, *rest, **options)
        finally:
            self._is_atomic = False

    def multiply(self, plain: Plain, left: Any, right: Any) -> Any:
        """Products of int32 that overflow are remembered: they are the usual reason for an offset that lies outside."""
        exact = plain(left, right)
        if exact.data.dtype == np.int32:
            wide = np.multiply(left.data, right.data, dtype=np.float64)
            if np.any(np.abs(wide) >= _INT32_END):
                self.overflows.add(self.site())
        return exact

    def fence(self, pointers: Any, rest: Sequence[Any]) -> None:
        """An atomic of one cell that is not relaxed orders what its program did before: locks and tickets."""
        is_one = pointers.data.ndim == 1 if BATCH.size else pointers.data.size == 1
        if is_one and not any("relaxed" in str(each).lower() for each in rest):
            self.extents.has_fence = True

    def noted(self, pointers: Any, mask: Array, access: Access, values: Array | None = None) -> Array:
        """The lanes of an access that lie inside an argument, once all of it is noted."""
        access = Access.ATOMIC if self._is_atomic else access
        if not self.was_cut and self.shadow.accesses > self.most:
            self.was_cut = self.extents.is_blind = True
        if self.was_cut and not self.goes_on:
            raise TooManyError
        size = max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)
        addresses, values = pointers.data, values if access is Access.WRITE else None
        lanes = mask if mask.dtype == bool else mask.astype(bool)
        shape = np.broadcast_shapes(addresses.shape, lanes.shape)
        is_same = shape[0] == 1 < BATCH.size and access is not Access.ATOMIC  # for all programs of a batch
        shape = (BATCH.size, *shape[1:]) if BATCH.size else shape
        if not addresses.shape == lanes.shape == (shape if values is None else values.shape):
            addresses, lanes = np.broadcast_to(addresses, shape), np.broadcast_to(lanes, shape)
            values = None if values is None else np.broadcast_to(values, shape)
        counts = np.count_nonzero(lanes.reshape(BATCH.size or 1, -1), axis=1)
        programs = np.repeat(np.arange(BATCH.size), counts) if BATCH.size else None
        flat_values, inside = None if values is None else values[lanes], lanes.copy()
        inside[lanes] = self.extents.touch(addresses[lanes], size, access, self.site(), flat_values, programs)
        if not lanes.all() and not np.array_equal(inside, lanes):
            wrong = np.argwhere(inside != lanes)[0][: BATCH.axes]
            self.masks.setdefault(self.site(), _forgotten(lanes[*wrong], inside[*wrong]))
        return inside[:1] if is_same else inside

    def site(self) -> int:
        """The number of the line of the kernel that runs."""
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
    """Programs that the interpreter runs in the meantime are watched. UnsupportedError where this release of Triton
    lacks what is wrapped for it."""
    hooks = Hooks(extents, most, goes_on=goes_on)
    own_interpreter.install()
    with ExitStack() as undone, np.errstate(all="ignore"):
        for name, function in hooks.wrapped().items():
            patch(undone, hooks.builder, name, function)
        yield hooks


def _forgotten(lanes: Array, inside: Array) -> str:
    """The axes of a block that its mask says nothing of, though along them an access leaves its tensor."""
    axes = [axis for axis in range(lanes.ndim) if lanes.shape[axis] > 1]
    free = [axis for axis in axes if (lanes == lanes.take([0], axis)).all() and np.diff(inside, axis=axis).any()]
    if not free or len(axes) == 1:
        return "the mask lets lanes through that lie outside: compare the offsets with the size of this tensor"
    names = " and ".join(f"axis {axis}" for axis in free)
    return f"the mask forgets {names} of its block: compare the offsets along it too, as in (rows < m) & (columns < n)"


def _like(handle: Any, data: Array) -> Any:
    """A handle of the interpreter on other data."""
    return data if isinstance(handle, np.ndarray) else type(handle)(data, handle.dtype)


_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Extent:
    """The memory of an argument: its number in the shadow, where it starts and ends, and its cells as bits."""

    memory: int
    start: int
    end: int
    bits: np.ndarray


class MemoryExtents:
    """The arguments of a launch, by the addresses that pointers hold. What lies in none counts for the
    one that the rest of its access lies in, or for the nearest."""

    def __init__(self, shadow: Shadow) -> None:
        self.shadow = shadow
        self.is_blind = False  # no access is noted any more
        self.has_fence = False  # before the next access
        self.owners: list[int] = []  # of a batch of programs
        # Of a batch: whether a fence comes before an access, where each program's cells begin, and the access.
        self.pending: list[tuple[bool, Sequence[int], tuple[Any, ...]]] = []
        self.memories: dict[int, WatchedMemory] = {}
        self._extents: list[Extent] = []
        self._borders = np.zeros(0, np.int64)  # halfway between an argument and the next

    def add(self, name: str, array: np.ndarray, *, is_set: bool) -> int:
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

    def note(self, programs: Cells, *access: Any) -> None:
        """Note an access of many cells, as `Shadow.touch_many` takes it, or keep it until the batch has run."""
        if programs is not None:
            starts = np.searchsorted(programs, range(len(self.owners) + 1)).tolist()
            self.pending.append((self.has_fence, starts, access))
        else:
            if self.has_fence:
                self.shadow.fence()
            self.shadow.touch_many(*access)
        self.has_fence = False

    def settle(self, is_whole: bool) -> None:
        """Note what each program of a batch did, statement by statement; nothing where the batch is taken back."""
        for has_fence, starts, (memory, cells, access, site, changed) in self.pending if is_whole else ():
            for owner, start, end in zip(self.owners, starts, starts[1:], strict=False):
                self.shadow.enter(owner, block=owner)
                if has_fence:
                    self.shadow.fence()
                marks = None if changed is None else changed[start:end]
                self.shadow.touch_many(memory, cells[start:end], access, site, marks)
        self.pending.clear()

    def touch(
        self, addresses: Array, size: int, access: Access, site: int, values: Cells = None, programs: Cells = None
    ) -> Array:
        """Note one access of `size` bytes at each address; which of them lie inside an argument. `values`: what a
        write puts there, as many; `programs`: of a batch, the number of each one's program."""
        inside = np.zeros(addresses.size, bool)
        places = addresses.view(np.int64) if addresses.dtype.itemsize == 8 else addresses.astype(np.int64)
        if not places.size or not self._extents:
            return inside
        bits = None if values is None else np.ascontiguousarray(values).view(_BITS[values.itemsize])
        low, high = int(places.min()), int(places.max()) + size
        for extent in self._extents:
            if extent.start <= low and high <= extent.end:
                return self._touched(extent, places, size, access, site, bits, programs)
        nearest = self._counting(places)
        for number in np.unique(nearest):
            chosen = nearest == number
            extent = self._extents[number]
            own, whose = (None if each is None else each[chosen] for each in (bits, programs))
            inside[chosen] = self._touched(extent, places[chosen], size, access, site, own, whose)
        return inside

    def _counting(self, places: np.ndarray) -> np.ndarray:
        """For which argument each address counts: the one that it lies in, or others of the same access do, since they
        come of one pointer; else the nearest."""
        nearest: np.ndarray = np.searchsorted(self._borders, places, side="right")
        starts = np.array([each.start for each in self._extents])[nearest]
        ends = np.array([each.end for each in self._extents])[nearest]
        inside = (places >= starts) & (places < ends)
        if inside.any() and not inside.all():
            nearest[~inside] = nearest[inside][0]
        return nearest

    def _touched(
        self, extent: Extent, places: Array, size: int, access: Access, site: int, values: Cells, programs: Cells
    ) -> Array:
        """Accesses that count for one argument."""
        offsets = places - extent.start
        inside: np.ndarray = (offsets >= 0) & (places <= extent.end - size)
        if self.is_blind:
            return inside
        item = int(extent.bits.itemsize)
        shift = item.bit_length() - 1  # cells are of 1, 2, 4 or 8 bytes
        cells = offsets >> shift
        is_one = size == item and not (offsets & (size - 1)).any()
        ends = cells if is_one else (offsets + (size - 1)) >> shift
        widest = 1 if is_one else int((ends - cells).max()) + 1
        changed = None
        if values is not None and widest == 1 and size == item:
            changed = np.ones(cells.size, bool)
            changed[inside] = _changes(extent.bits, cells[inside], values[inside], is_batch=programs is not None)
        self.note(programs, extent.memory, cells, access, site, changed)
        for more in range(1, widest):
            reaches = cells + more <= ends
            whose = None if programs is None else programs[reaches]
            self.note(whose, extent.memory, cells[reaches] + more, access, site, None)
        return inside


def _changes(bits: Array, cells: Array, values: Array, *, is_batch: bool) -> Array:
    """Whether each write changes what its cell holds, to which an earlier program of a batch may have written."""
    changed: Array = bits[cells] != values
    if is_batch:
        order = np.argsort(cells, kind="stable")
        again = np.flatnonzero(np.diff(cells[order]) == 0)
        changed[order[again + 1]] = values[order[again + 1]] != values[order[again]]
    return changed
