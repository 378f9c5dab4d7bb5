"""The shadow of memory in Python: engine.c, built once, through ctypes."""

import ctypes
import math
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from noyau.errors import BuildError, FindingKind
from noyau.sanitizer.records import INDICES, Access, Observation
from noyau.text import package_text
from noyau.toolchain.c import compiler as c_compiler

Array = np.ndarray
_STRUCT = ctypes.c_void_p
FILLS = (0x00, 0x7B, 0xFB)  # bytes for unset memory, in runs that show what depends on it: 0, huge, very negative
_ROW = 4  # int64 per row of `replay`
_I32, _I64 = ctypes.c_int32, ctypes.c_int64
_TYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "shadow_new": (_STRUCT, ()),
    "shadow_free": (None, (_STRUCT,)),
    "shadow_memory": (_I32, (_STRUCT, _I64, _I32)),
    "shadow_split": (_I32, (_STRUCT, _I32, _I64)),
    "shadow_forget": (None, (_STRUCT, _I32)),
    "shadow_region": (None, (_STRUCT, _I32)),
    "shadow_enter": (None, (_STRUCT, _I64, _I32, _I32, _I32, _I32)),
    "shadow_fence": (None, (_STRUCT,)),
    "shadow_touch": (_I32, (_STRUCT, _I32, _I64, _I32, _I32)),
    "shadow_touch_many": (_I64, (_STRUCT, _I32, _STRUCT, _I64, _I32, _I32, _STRUCT)),
    "shadow_touch_each": (None, (_STRUCT, _STRUCT, _STRUCT, _I64, _I32, _STRUCT, _I32, _I32, _STRUCT, _I32)),
    "shadow_replay": (None, (_STRUCT, _STRUCT, _I64)),
    "shadow_note": (None, (_STRUCT, _I32, _I32, _I32, _I32, _I32, _I64, _I64, _I64, _I64)),
    "shadow_unwritten": (_I64, (_STRUCT, _I32, _STRUCT)),
    "shadow_written": (None, (_STRUCT, _I32, _STRUCT)),
    "shadow_accesses": (_I64, (_STRUCT,)),
    "shadow_count": (_I64, (_STRUCT,)),
    "shadow_dropped": (_I64, (_STRUCT,)),
    "shadow_findings": (_STRUCT, (_STRUCT,)),
}


# Kinds in the order of their numbers in engine.h, from 1 on.
_KINDS = (FindingKind.RACE, *INDICES, FindingKind.UNINITIALISED, FindingKind.DIVERGENT_BARRIER)


def number_of(kind: FindingKind) -> int:
    """Return the number of a kind in engine.h."""
    return _KINDS.index(kind) + 1


class ReplayEvent(IntEnum):
    """Rows of `replay` that are not accesses, by their numbers in engine.h."""

    REGION = -1
    ENTER = -2
    FENCE = -3
    CLEAR = -4


class _Finding(ctypes.Structure):
    """shadow_finding of engine.h."""

    _names32 = ("kind", "memory", "access", "other_access", "site", "other_site", "block", "other_block", "reach")
    _names64 = ("owner", "other_owner", "cell", "axis", "extent", "count", "changed")
    _fields_ = (*((name, _I32) for name in _names32), *((name, _I64) for name in _names64))


def text() -> str:
    """Return the C text of the engine, header first, to be compiled alone or before other C."""
    return "\n".join(map(package_text, ("sanitizer/engine.h", "sanitizer/engine.c")))


@cache
def library() -> ctypes.CDLL:
    """Load the engine, from the cache or built. BuildError without a C compiler."""
    try:
        engine = ctypes.CDLL(str(c_compiler.compile_library([text()])))
    except OSError as error:
        raise BuildError(f"the shadow of memory cannot be loaded: {error}; run: noyau cache clear") from error
    for name, (result, arguments) in _TYPES.items():
        function = getattr(engine, name)
        function.restype, function.argtypes = result, arguments
    return engine


def address(name: str) -> int:
    """Return the address of a function of the engine, for compiled code."""
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0


class Shadow:
    """The shadow of the memories of one run, as engine.h describes. BuildError without a C compiler.

    `handle` is its address, for compiled code."""

    def __init__(self) -> None:
        self._library = library()
        self.handle: int = self._library.shadow_new()
        if not self.handle:
            raise MemoryError("there is no memory for a shadow")

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.shadow_free(self.handle)

    def memory(self, cells: int, *, is_set: bool) -> int:
        """Add a memory of so many cells; return its number. MemoryError without room for its shadow."""
        number: int = self._library.shadow_memory(self.handle, cells, is_set)
        if number < 0:
            raise MemoryError(f"there is no memory for the shadow of {cells} cells; check smaller arrays")
        return number

    def split(self, memory: int, parts: int) -> None:
        """Split each cell of a memory into `parts` cells of the same state. MemoryError without room."""
        if not self._library.shadow_split(self.handle, memory, parts):
            raise MemoryError("there is no memory for the shadow of narrower cells; check smaller arrays")

    def forget(self, memory: int) -> None:
        self._library.shadow_forget(self.handle, memory)

    def region(self, *, serial: bool = False) -> None:
        """Begin a region, which all before it precedes. In a `serial` region nothing races."""
        self._library.shadow_region(self.handle, serial)

    def enter(self, owner: int, block: int = 0, warp: int = 0, epoch: int = 0, warp_epoch: int = 0) -> None:
        """Begin the accesses of an owner."""
        self._library.shadow_enter(self.handle, owner, block, warp, epoch, warp_epoch)

    def fence(self) -> None:
        """Note that the owner passed a memory fence."""
        self._library.shadow_fence(self.handle)

    def touch(self, memory: int, cell: int, access: Access, site: int) -> bool:
        """Record an access; return whether the cell is inside."""
        return bool(self._library.shadow_touch(self.handle, memory, cell, access, site))

    def touch_many(self, memory: int, cells: Array, access: Access, site: int, changed: Array | None = None) -> int:
        """Record accesses to cells, in the order of the array; return how many lie inside. `changed`: whether each
        write changed the cell's value (bool, one per cell)."""
        rows = np.ascontiguousarray(cells, np.int64)
        marks = None if changed is None else np.ascontiguousarray(changed, np.uint8)
        where = memory, rows.ctypes.data, rows.size, access, site, None if marks is None else marks.ctypes.data
        return int(self._library.shadow_touch_many(self.handle, *where))

    def touch_each(self, owners: Array, starts: Array, fences: bool, access: Sequence[Any]) -> None:
        """Record an access, as `touch_many` takes it, of owners in sequence, each in a block of its own: owner i
        touches the cells from `starts[i]` to `starts[i + 1]`. `fences`: each passes a memory fence before."""
        memory, cells, how, site, changed = access
        numbers, begins, rows = (np.ascontiguousarray(each, np.int64) for each in (owners, starts, cells))
        marks = None if changed is None else np.ascontiguousarray(changed, np.uint8)
        where = memory, rows.ctypes.data, how, site, None if marks is None else marks.ctypes.data
        whose = numbers.ctypes.data, begins.ctypes.data, numbers.size
        self._library.shadow_touch_each(self.handle, *whose, *where, fences)

    def replay(self, rows: Any, count: int) -> None:
        """Record rows in order: a buffer of `count` rows of 4 int64 (see engine.h)."""
        if count:
            notes = np.frombuffer(rows, np.int64, count * _ROW)
            self._library.shadow_replay(self.handle, notes.ctypes.data, count)

    def note(
        self,
        kind: FindingKind,
        memory: int,
        access: Access,
        site: int,
        *,
        other: tuple[int, int] = (-1, -1),
        index: int = 0,
        axis: int = -1,
        extent: int = 0,
    ) -> None:
        """Record a fault: an index outside `extent` along an axis, a barrier; `other`: a site and an owner."""
        self._library.shadow_note(self.handle, number_of(kind), memory, access, site, *other, index, axis, extent)

    def unwritten(self, memory: int) -> tuple[int, int]:
        """Return the number of cells that nobody wrote, and the first of them (-1 for none)."""
        first = ctypes.c_int64(-1)
        missed: int = self._library.shadow_unwritten(self.handle, memory, ctypes.byref(first))
        return missed, first.value

    def written_cells(self, memory: int, cells: int) -> Array:
        """Return a mask of the cells that some owner wrote in any region."""
        marks = np.zeros(cells, np.uint8)
        self._library.shadow_written(self.handle, memory, marks.ctypes.data)
        return marks.astype(bool)

    @property
    def accesses(self) -> int:
        return int(self._library.shadow_accesses(self.handle))

    @property
    def count(self) -> int:
        """The number of findings."""
        return int(self._library.shadow_count(self.handle))

    @property
    def dropped(self) -> int:
        """Findings that the table had no room for."""
        return int(self._library.shadow_dropped(self.handle))

    def observations(self) -> Sequence[Observation]:
        """Return the findings in order; those with equal kind, accesses, sites and memory are merged."""
        count = self.count
        array = (_Finding * count).from_address(self._library.shadow_findings(self.handle)) if count else ()
        return [_observation_of(each) for each in array]


def part_bytes(dtype: np.dtype) -> int:
    """Return the bytes of an element's parts: of its fields, of the two halves of a complex number."""
    if dtype.subdtype is not None:
        return part_bytes(dtype.base)
    parts = [size for each, place, *_ in (dtype.fields or {}).values() for size in (place, part_bytes(each))]
    return math.gcd(dtype.itemsize, *parts) if parts else max(1, dtype.itemsize // (2 if dtype.kind == "c" else 1))


def root_of(array: np.ndarray) -> np.ndarray:
    """Return the packed NumPy array that an array is a view of, or the array itself."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    is_packed = root.flags.c_contiguous or (root.flags.f_contiguous and _goes_along_axes(array, root))
    return root if root.itemsize and is_packed else array


def _goes_along_axes(view: np.ndarray, root: np.ndarray) -> bool:
    """Whether each axis of a view lies along one of its column-major root, so that its cells have equal steps."""
    for step, count in zip(map(abs, view.strides), view.shape, strict=True):
        each, extent = max(((s, n) for s, n in zip(root.strides, root.shape, strict=True) if s <= step), default=(0, 0))
        if count > 1 and (not each or step % each or step // each * (count - 1) >= extent):
            return False
    return True


def cells_of(view: np.ndarray, root: np.ndarray, unit: int) -> np.ndarray:
    """Return the first cell, of `unit` bytes, of each element of a view, among the cells of its root."""
    cells = np.arange(root.nbytes // unit)
    if not root.flags.c_contiguous:  # cells count in row-major order
        cells = np.moveaxis(cells.reshape(*root.shape, -1).T, 0, -1).ravel()
    start = (view.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // unit
    strides = [step // unit * cells.itemsize for step in view.strides]
    return np.lib.stride_tricks.as_strided(cells[start:], view.shape, strides)


def _observation_of(finding: Any) -> Observation:
    values = {name: int(getattr(finding, name)) for name in (*_Finding._names32, *_Finding._names64)}
    kind = _KINDS[values.pop("kind") - 1]
    access, other = Access(values.pop("access")), Access(values.pop("other_access"))
    changed = values.pop("changed")
    if kind is FindingKind.RACE and access is other is Access.WRITE and not changed:
        kind = FindingKind.WRITTEN_TWICE
    return Observation(kind=kind, access=access, other_access=other, **values)
