"""The runtime's own C library: built once, tested, and given a table of functions of Python and of NumPy."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import Any

import numpy as np

from noyau.errors import BuildError, OutputError, warn
from noyau.text import package_text
from noyau.toolchain.c import compiler as c_compiler
from noyau.workers.resources import processors

_POINTER = ctypes.c_void_p
_PYTHON = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)  # our own: others declare types on ctypes.pythonapi
# Types are declared once, since threads call these functions.
_MAKE, capsule_address = _PYTHON.PyCFunction_NewEx, _PYTHON.PyCapsule_GetPointer
_MAKE.restype, _MAKE.argtypes = ctypes.py_object, (_POINTER, ctypes.py_object, _POINTER)
capsule_address.restype, capsule_address.argtypes = _POINTER, (ctypes.py_object, ctypes.c_char_p)
_FUNCTIONS = tuple(
    "PyTuple_Size PyTuple_GetItem PyTuple_New PyTuple_SetItem PyLong_AsVoidPtr PyLong_FromLongLong PyLong_AsLongLong "
    "PyLong_AsUnsignedLongLong PyFloat_AsDouble PyErr_Occurred PyErr_Clear PyErr_SetObject PyObject_Call "
    "PyObject_GetItem PyObject_RichCompareBool Py_IncRef Py_DecRef PyEval_SaveThread PyEval_RestoreThread".split()
)
_NEW_FROM_DESCR = 94  # the index of PyArray_NewFromDescr in NumPy's table, whose ABI is stable
FILES = (
    "codegen/c/noyau.h",
    "hosts/shares.h",
    *(f"hosts/numpy/{name}.c" for name in ("threads", "arguments", "fast_call")),
)
AGAIN_S = 30.0  # the pause after a build that found no room, before a call tries again
_NOTHING: tuple[()] = ()
_OBJECTS = (np.ndarray, tuple, bool, int, float, True, None, _NOTHING)


class _Fields(ctypes.Structure):
    """The fields behind the head of an array, by NumPy's documentation: PyArrayObject_fields."""

    _fields_ = (
        ("data", _POINTER),
        ("nd", ctypes.c_int),
        *((name, ctypes.POINTER(ctypes.c_ssize_t)) for name in ("dimensions", "strides")),
        *((name, _POINTER) for name in ("parent", "descr")),
        ("flags", ctypes.c_int),
    )


@dataclass(frozen=True, slots=True)
class Library:
    """The loaded C library. `fast_calls`: whether it can read arguments in this process, as fast calls need."""

    code: ctypes.CDLL
    fast_calls: bool

    def fast_call(self, state: object, name: str = "noyau_fast_call") -> Callable[..., Any]:
        """A Python function, `fast_call(arguments, out=None)`, whose C code gets `state` at every call."""
        method = ctypes.addressof(ctypes.c_char.in_dll(self.code, f"{name}_method"))
        entry: Callable[..., Any] = _MAKE(method, state, None)
        return entry


class Loader:
    """The library that `make` builds, at the first call; None where it cannot be built. A lack of room is reported as a
    warning, and a later call tries again, after AGAIN_S."""

    def __init__(self, what: str, make: Callable[[], Library | None]) -> None:
        self.what, self.make, self.again = what, cache(make), 0.0

    def __call__(self) -> Library | None:
        if monotonic() < self.again:
            return None
        try:
            library = self.make()
        except OutputError as error:
            self.again = monotonic() + AGAIN_S
            message = f"noyau's own C, which {self.what} are read by, cannot be built now: {error}"
            warn(f"{message}; Python reads them, and after {AGAIN_S:g} s a call tries again")
            return None
        self.again = 0.0
        return library

    def awaits_room(self) -> bool:
        """Whether there was no room and is none now: an object made without the C library is not to be cached."""
        return self.again != 0 and self() is None


def open_texts(*paths: str) -> Library | None:
    """Build and load these files as one library; None where it cannot be built, OutputError where there is no room."""
    try:
        texts = ["#define _POSIX_C_SOURCE 200809L"]  # -std=c11 alone hides threads and signals
        texts += map(package_text, paths)
        c_library = ctypes.CDLL(str(c_compiler.compile_library(["\n".join(texts)])))
        c_library.noyau_threads_open()
        c_library.noyau_threads_limit(processors())
        return Library(c_library, reads_arrays() and _open(c_library))
    except (BuildError, OSError) as error:
        if isinstance(error, OutputError) and error.lacks_room:
            raise
        return None


library = Loader("arguments", lambda: open_texts(*FILES))


def _open(c_library: ctypes.CDLL) -> bool:
    """Pass the table that arguments.c calls `python`."""
    functions = [ctypes.cast(getattr(_PYTHON, name), _POINTER).value for name in _FUNCTIONS]
    words = [*functions, _new_array(), *map(id, _OBJECTS), object.__basicsize__]
    table = (ctypes.c_size_t * len(words))(*(word or 0 for word in words))
    return bool(c_library.noyau_fast_call_open(table, ctypes.c_int64(ctypes.sizeof(table))))


def reads_arrays(head_bytes: int = object.__basicsize__) -> bool:
    """Whether the arrays of this Python and this NumPy have the layout that the C reads behind a head of this size."""
    if ctypes.sizeof(_POINTER) != 8 or head_bytes + ctypes.sizeof(_Fields) > np.ndarray.__basicsize__:
        return False
    whole = np.zeros((7, 5), np.float32)
    return all(_is_read(array, head_bytes) for array in (whole, whole[::-2, 1:4], whole.astype(np.int64)[3, 2:]))


def _is_read(array: np.ndarray, head_bytes: int) -> bool:
    """Whether an array has that layout. Fields of the object come first: pointers are followed once these are right."""
    fields = _Fields.from_address(id(array) + head_bytes)
    kind = _POINTER.from_address(id(array) + head_bytes - ctypes.sizeof(_POINTER)).value
    parts = (kind, fields.data, fields.nd, fields.descr, fields.flags)
    if parts != (id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype), array.flags.num):
        return False
    axes = [(fields.dimensions[axis], fields.strides[axis]) for axis in range(array.ndim)]
    return axes == list(zip(array.shape, array.strides, strict=True))


def _new_array() -> int:
    """The address of NumPy's PyArray_NewFromDescr, or 0."""
    core = getattr(np, "_core", None) or getattr(np, "core", None)  # the place differs between releases
    capsule = getattr(getattr(core, "_multiarray_umath", None), "_ARRAY_API", None)
    if capsule is None:
        return 0
    table = capsule_address(capsule, None)
    return int(_POINTER.from_address(table + _NEW_FROM_DESCR * ctypes.sizeof(_POINTER)).value or 0)
