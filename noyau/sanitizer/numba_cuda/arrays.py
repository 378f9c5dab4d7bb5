"""Arrays in a Numba-CUDA kernel: recording arrays, whose accesses count for the running thread."""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

import numpy as np

from noyau.errors import FindingKind, UnsupportedError
from noyau.hosts.numpy.c_library import Library
from noyau.hosts.numpy.fast_calls import reads_scalars
from noyau.sanitizer.engine import ReplayEvent, Shadow
from noyau.sanitizer.recording_array import ATOMIC, READ, SAME, WRITE, ArrayRecord, Recorder, Recording, TooManyError
from noyau.sanitizer.records import ACCESSES, Access
from noyau.text import package_text
from noyau.toolchain.c import compiler as c_compiler

ROWS = 4096  # rows that wait before they are passed on
MOST_AXES = 4
_KINDS = {"i": 1, "u": 2, "b": 3, "f": 4}
_FUNCTIONS = (
    "PyObject_GetItem PyObject_SetItem PyObject_Call PyLong_AsVoidPtr PyLong_FromLongLong PyLong_AsLongLong "
    "PyLong_AsUnsignedLongLongMask PyBool_FromLong PyFloat_AsDouble PyTuple_Size PyTuple_GetItem PyErr_Occurred "
    "PyErr_Clear Py_IncRef Py_DecRef".split()
)
_OTHER_PYTHON = "this Python lays its objects out as noyau does not read them; use CPython 3.11 to 3.14"
_OBJECTS = (int, float, tuple, np.int32, np.int64, np.float32, np.float64, None, ())
_REGION, _ENTER, _FENCE, _CLEAR = (int(ReplayEvent[name]) for name in ("REGION", "ENTER", "FENCE", "CLEAR"))


class Queue:
    """A buffer of rows of accesses, as Shadow.replay takes them; when it is full, `play` is called with the rows and
    their number."""

    def __init__(self, arrays: type, play: Callable[[Any, int], None]) -> None:
        self._rows = np.zeros((ROWS, 4), np.int64)
        self._play = play
        flush = weakref.WeakMethod(self.flush)

        def flush_whole() -> None:
            """Flush a full queue, called by C; it does not keep the queue alive."""
            if (own := flush()) is not None:
                own()

        self._full = flush_whole  # kept alive, as C has its address
        self._state = array("q", (0, ROWS, 0, 0, 0, id(flush_whole), self._rows.ctypes.data))
        code, address = _library(arrays), self._state.buffer_info()[0]
        self.load, self.store, self.note = (code.fast_call(address, f"noyau_{n}") for n in ("load", "store", "note"))

    def flush(self) -> None:
        """Pass on the waiting rows."""
        count, self._state[0] = self._state[0], 0
        if count:
            self._play(self._rows, count)

    def touch(self) -> None:
        """Note that the running thread touched something that is not a row."""
        self._state[4] = 0

    @property
    def owner(self) -> int:
        """The owner that entered last."""
        return self._state[2]

    @property
    def idle(self) -> int:
        """The number of owners that entered and touched nothing, if each enters once."""
        return self._state[3] + self._state[4]


def layout_of(data: np.ndarray, memory: int, start: int, steps: tuple[int, ...], width: int) -> array[int] | None:
    """Return the layout of an array for C; None if Python records its accesses. `start`: its first cell; `steps`: cells
    between neighbours along each axis; `width`: cells per element."""
    if data.ndim > MOST_AXES or data.dtype.names is not None or not data.dtype.isnative:
        return None
    kind = _KINDS.get(data.dtype.kind, 0) if data.dtype.itemsize in (1, 2, 4, 8) and data.dtype.char != "e" else 0
    numbers = memory, kind, data.dtype.itemsize, int(data.flags.writeable), width, data.ndim, start
    axes = zip(data.shape, steps, data.strides, strict=True)
    return array("q", [data.ctypes.data, *numbers, *(word for axis in axes for word in axis)])


@cache
def _library(arrays: type) -> Library:
    """Compile accesses.c for arrays of this class, with the offsets of their `data` and `layout`. BuildError without a
    C compiler, UnsupportedError if objects have another layout than it reads."""
    texts = package_text("sanitizer/numba_cuda/accesses.c")
    code = ctypes.CDLL(str(c_compiler.compile_library([texts])))
    places = [_place(arrays, name) for name in ("data", "layout")]
    if not all(reads_scalars(np.dtype(each)) for each in (np.int32, np.int64)):
        raise UnsupportedError(_OTHER_PYTHON)
    functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    words = [*functions, *map(id, (arrays, *_OBJECTS)), object.__basicsize__, *places]
    table = (ctypes.c_size_t * len(words))(*(word or 0 for word in words))
    code.noyau_accesses_open(table, ctypes.c_int64(ctypes.sizeof(table)))
    return Library(code, True)


def _place(kind: type, slot: str) -> int:
    """Return the offset in bytes of a slot within an object of this class."""
    mark = object()
    probe: Any = object.__new__(kind)
    setattr(probe, slot, mark)
    size = kind.__basicsize__ // ctypes.sizeof(ctypes.c_size_t)
    words = list((ctypes.c_size_t * size).from_address(id(probe)))
    if words.count(id(mark)) != 1:
        raise UnsupportedError(_OTHER_PYTHON)
    return words.index(id(mark)) * ctypes.sizeof(ctypes.c_size_t)


class LaunchRecorder(Recorder):
    """The recorder of the arrays of one launch; `load`, `store` and `note` are those of accesses.c."""

    def __init__(self, most: int = 1 << 62, shadow: Shadow | None = None, *, goes_on: bool = False) -> None:
        super().__init__(most, shadow)
        self.unordered: set[int] = set()  # sites where atomics add to floats
        self._replay = _Replay(self.shadow, most, goes_on)
        self.ran = self._replay.sites  # of recorded accesses
        self.queue = Queue(DeviceArray, self._replay)
        self.load, self.store, self.note = self.queue.load, self.queue.store, self.queue.note

    @property
    def was_cut(self) -> bool:
        """Whether it made more accesses than the limit; later ones are not seen."""
        return self._replay.was_cut

    def play(self) -> None:
        self.queue.flush()

    def region(self, *, serial: bool) -> None:
        self.note(_REGION, int(serial))

    def enter(self, owner: int, block: int, warp: int, epoch: int = 0, warp_epoch: int = 0) -> None:
        """Begin the accesses of a thread."""
        self.note(_ENTER, owner, block << 32 | warp, epoch << 32 | warp_epoch)

    def fence(self) -> None:
        """Note that the thread passed a memory fence."""
        self.note(_FENCE)

    def clear(self, memory: int) -> None:
        """Reset a memory to its state at the start."""
        self.note(_CLEAR, memory)

    def touch_all(self, memory: int, cells: np.ndarray, access: int, site: int) -> None:
        rows = np.empty((cells.size, 4), np.int64)
        word = ACCESSES * memory + access
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = word, cells.ravel(), self.queue.owner, site
        self.play()
        self.queue.touch()
        self._replay(rows, len(rows))

    def outside(
        self, kind: FindingKind, memory: int, access: int, site: int, index: int, axis: int, extent: int
    ) -> None:
        self.play()
        self.ran.add(site)
        if not self.was_cut:  # past the limit the shadow does not know the owner
            self.shadow.note(kind, memory, Access(access), site, index=index, axis=axis, extent=extent)

    def line(self, file: str, number: int) -> int:
        """Return the site of a line, whose file is watched from here on."""
        self.files.add(file)
        return self.site_at(file, number)

    def array(self, data: np.ndarray, name: str, *, is_set: bool = True) -> DeviceArray:
        whole = super().array(data, name, is_set=is_set)
        return DeviceArray(self, whole.memory, data, whole.cells, whole.width)


@dataclass(slots=True)
class _Replay:
    """Passes rows to the shadow, up to `most` accesses: past them TooManyError, unless the run goes on."""

    shadow: Shadow
    most: int
    goes_on: bool
    was_cut: bool = False
    sites: set[int] = field(default_factory=set)

    def __call__(self, rows: Any, count: int) -> None:
        self.sites.update(np.unique(rows[:count, 3][rows[:count, 0] >= 0]).tolist())
        if self.was_cut:
            return
        self.shadow.replay(rows, count)
        self.was_cut = self.shadow.accesses > self.most
        if self.was_cut and not self.goes_on:
            raise TooManyError


class DeviceArray(Recording):
    """An array in a kernel. Elements that are read compute as on the device, integers up to 63 bits as 64-bit ones.
    `layout`: the address of the layout that accesses.c reads, else None."""

    __slots__ = ("_words", "is_plain", "layout", "number", "size")

    def __init__(self, recorder: Recorder, memory: int, data: np.ndarray, cells: np.ndarray, width: int = 1) -> None:
        super().__init__(recorder, memory, data, cells, width)
        self.number, self.size = number_of(data.dtype), int(data.size)
        self.is_plain = data.dtype.names is None
        self._words = layout_of(data, memory, self.start, self.steps, width)
        self.layout = None if self._words is None else self._words.buffer_info()[0]

    def __getitem__(self, key: Any) -> Any:
        site = self.recorder.site(sys._getframe(1))
        cell = self.cell(key)
        if cell >= 0 and self.is_plain:
            self._note(READ, cell, site)
            return self.number(self.data[key])
        return self.pick(key, site)

    def pick(self, key: Any, site: int) -> Any:
        item = super().pick(key, site)
        return self.number(item) if isinstance(item, np.generic) else item  # outside: zeros of that shape

    def __setitem__(self, key: Any, value: Any) -> None:
        site = self.recorder.site(sys._getframe(1))
        cell = self.cell(key)
        if cell >= 0 and self.is_plain:
            self._store(key, cell, value, WRITE, site)
        else:
            self.put(key, value, site)

    def put(self, key: Any, value: Any, site: int) -> None:
        is_part = isinstance(value, Recording | ArrayRecord)
        super().put(key, value if is_part else convert_number(value, self.data.dtype), site)

    def change(
        self, key: Any, change: Callable[[Any], Any], frame: FrameType, *, sums: bool = False, how: int = ATOMIC
    ) -> Any:
        """Perform an atomic: the cell becomes `change` of its value, which is returned. `sums`: it adds."""
        site = self.recorder.site(frame)
        if sums and self.data.dtype.kind == "f":
            self.launch.unordered.add(site)
        key = self.inside(key, ATOMIC, site)
        if key is None:
            return self.number(0)
        before = self.data[key]
        if isinstance(before, np.ndarray):
            raise UnsupportedError("an atomic of numba.cuda takes the index of one cell")
        number = self.number(before)
        self._store(key, self.cells.item(key), change(number), how, site)
        return number

    @property
    def launch(self) -> LaunchRecorder:
        """Its recorder."""
        assert isinstance(self.recorder, LaunchRecorder)
        return self.recorder

    def _store(self, key: Any, cell: int, value: Any, access: int, site: int) -> None:
        data = self.data
        before = data[key]
        data[key] = convert_number(value, data.dtype)
        if access == WRITE and before == data[key]:
            access = SAME
        self._note(access, cell, site)

    def _note(self, access: int, cell: int, site: int) -> None:
        launch = self.launch
        for each in range(cell, cell + self.width):
            launch.note(self.noted + access, each, launch.queue.owner, site)


def number_of(dtype: np.dtype) -> Callable[[Any], Any]:
    """Return the conversion of an element for a kernel: Numba computes integers up to 63 bits in 64, as Python."""
    if dtype.kind == "b":
        return bool
    if dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8):
        return int
    return dtype.type


def convert_number(value: Any, dtype: np.dtype) -> Any:
    """Convert a number for an array of integers: integers wrap around, a float that is too large becomes the limit of
    the dtype, or of 32 bits if the dtype is narrower, and NaN 0."""
    if dtype.kind not in "iu" or isinstance(value, bool):
        return value
    if isinstance(value, float | np.floating):
        limits = np.iinfo(dtype if dtype.itemsize >= np.dtype(np.int32).itemsize else np.int32)
        value = 0 if math.isnan(value) else int(min(max(float(value), limits.min), limits.max))
    if not isinstance(value, int | np.integer):
        return value
    bits = 8 * dtype.itemsize
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if dtype.kind == "i" and wrapped >> (bits - 1) else wrapped
