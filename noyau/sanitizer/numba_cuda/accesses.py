"""Accesses of kernels to their arrays, read in C and queued for the shadow: accesses.c, built once."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.hosts.numpy.c_library import Library, reads_scalars
from noyau.toolchain.c import compiler as c_compiler

ROWS = 4096  # that wait before they are handed on
MOST_AXES = 4
_KINDS = {"i": 1, "u": 2, "b": 3, "f": 4}
_FUNCTIONS = (
    "PyObject_GetItem PyObject_SetItem PyObject_Call PyLong_AsVoidPtr PyLong_FromLongLong PyLong_AsLongLong "
    "PyLong_AsUnsignedLongLongMask PyBool_FromLong PyFloat_AsDouble PyTuple_Size PyTuple_GetItem PyErr_Occurred "
    "PyErr_Clear Py_IncRef Py_DecRef".split()
)
_OBJECTS = (int, float, tuple, np.int32, np.int64, np.float32, np.float64, None, ())


class Queue:
    """Rows of accesses, as Shadow.replay takes them, which wait until there are many: then `play` is called with them,
    a buffer, and their number."""

    def __init__(self, arrays: type, play: Callable[[Any, int], None]) -> None:
        self._rows = np.zeros((ROWS, 4), np.int64)
        self._play = play
        whole = self._played = _Played(self)
        self._state = array("q", (0, ROWS, 0, 0, 0, id(whole), self._rows.ctypes.data))
        code, address = _library(arrays), self._state.buffer_info()[0]
        self.load, self.store, self.note = (code.fast_call(address, f"noyau_{n}") for n in ("load", "store", "note"))

    def flush(self) -> None:
        """Hand on what waits."""
        count, self._state[0] = self._state[0], 0
        if count:
            self._play(self._rows, count)

    def touched(self) -> None:
        """Note that who runs touched something that is no row."""
        self._state[4] = 0

    @property
    def owner(self) -> int:
        """The owner that entered last."""
        return self._state[2]

    @property
    def idle(self) -> int:
        """The number of owners that entered and touched nothing, where each enters once."""
        return self._state[3] + self._state[4]


class _Played:
    """The function that C calls where the queue is full; it keeps no queue alive."""

    def __init__(self, queue: Queue) -> None:
        self._queue = weakref.ref(queue)

    def __call__(self) -> None:
        queue = self._queue()
        if queue is not None:
            queue.flush()


def layout_of(data: np.ndarray, memory: int, start: int, steps: tuple[int, ...], width: int) -> array[int] | None:
    """The layout of an array for C; None for one whose accesses Python notes. `start`, `steps`: its first cell, and
    those from one to the next along each axis; `width`: how many one element is."""
    if data.ndim > MOST_AXES or data.dtype.names is not None or not data.dtype.isnative:
        return None
    kind = _KINDS.get(data.dtype.kind, 0) if data.dtype.itemsize in (1, 2, 4, 8) and data.dtype.char != "e" else 0
    numbers = memory, kind, data.dtype.itemsize, int(data.flags.writeable), width, data.ndim, start
    words = [data.ctypes.data, *numbers]
    for axis in zip(data.shape, steps, data.strides, strict=True):
        words += axis
    return array("q", words)


@cache
def _library(arrays: type) -> Library:
    """The C, which knows where arrays of this class have their `data` and their `layout`. BuildError without a C
    compiler, UnsupportedError where objects are laid out otherwise than it reads them."""
    texts = files("noyau").joinpath("sanitizer", "numba_cuda", "accesses.c").read_text("ascii")
    code = ctypes.CDLL(str(c_compiler.compile_library([texts])))
    places = [_place(arrays, name) for name in ("data", "layout")]
    if not all(reads_scalars(np.dtype(each)) for each in (np.int32, np.int64)):
        raise UnsupportedError("this Python lays its objects out as noyau does not read them; use CPython 3.11 to 3.14")
    functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    words = [*functions, *map(id, (arrays, *_OBJECTS)), object.__basicsize__, *places]
    table = (ctypes.c_size_t * len(words))(*(word or 0 for word in words))
    code.noyau_accesses_open(table, ctypes.c_int64(ctypes.sizeof(table)))
    return Library(code, True)


def _place(kind: type, slot: str) -> int:
    """The bytes from the begin of an object of this class to what the slot holds."""
    mark = object()
    probe: Any = object.__new__(kind)
    setattr(probe, slot, mark)
    size = kind.__basicsize__ // ctypes.sizeof(ctypes.c_size_t)
    words = list((ctypes.c_size_t * size).from_address(id(probe)))
    if words.count(id(mark)) != 1:
        raise UnsupportedError("this Python lays its objects out as noyau does not read them; use CPython 3.11 to 3.14")
    return words.index(id(mark)) * ctypes.sizeof(ctypes.c_size_t)
