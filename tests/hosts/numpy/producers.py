"""Objects that speak DLPack by ctypes, as a package of arrays does, and count how often their memory is given back."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

_I64 = ctypes.c_int64
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
_python = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

CODES = {np.dtype(np.bool_): 6, np.dtype(ml_dtypes.bfloat16): 4, np.dtype(ml_dtypes.float8_e4m3fn): 10}
CODES |= {np.dtype(ml_dtypes.float8_e3m4): 7, np.dtype(ml_dtypes.float8_e4m3): 8}
CODES |= {np.dtype(ml_dtypes.float8_e4m3b11fnuz): 9, np.dtype(ml_dtypes.float8_e4m3fnuz): 11}
CODES |= {np.dtype(ml_dtypes.float8_e5m2): 12, np.dtype(ml_dtypes.float8_e5m2fnuz): 13}
CODES |= {np.dtype(ml_dtypes.float8_e8m0fnu): 14}
LETTERS = {"i": 0, "u": 1, "f": 2, "c": 5}


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(_I64)),
        ("strides", ctypes.POINTER(_I64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


class Producer:
    """The cells of a NumPy array, spoken of in DLPack alone. `given` capsules were asked for, and of `deleted` ones
    the memory was given back. `offset`: so many bytes of the address are said as `byte_offset`."""

    def __init__(
        self,
        array: np.ndarray,
        *,
        versioned: bool = True,
        read_only: bool = False,
        device: tuple[int, int] = (1, 0),
        offset: int = 0,
        major: int = 1,
        without_strides: bool = False,
        **said: int,
    ) -> None:
        self.array, self.versioned, self.read_only, self.device = array, versioned, read_only, device
        self.offset, self.major, self.without_strides, self.said = offset, major, without_strides, said
        self.given = self.deleted = 0
        self.capsules: list[object] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **wanted: Any) -> object:
        if wanted and not self.versioned:
            raise TypeError(f"unexpected keyword arguments {wanted}")
        if self.versioned and not wanted:
            raise BufferError("who asks for no version gets none of what has one")
        dtype, item = self.array.dtype, self.array.itemsize
        shape = (_I64 * self.array.ndim)(*self.array.shape)
        strides = (_I64 * self.array.ndim)(*(stride // item for stride in self.array.strides))
        code = CODES[dtype] if dtype in CODES else LETTERS[dtype.kind]
        said = {"code": code, "bits": 8 * item, "lanes": 1, **self.said}
        pointer = None if self.without_strides else ctypes.cast(strides, ctypes.POINTER(_I64))
        tensor = Tensor(
            self.array.ctypes.data - self.offset,
            *self.device,
            self.array.ndim,
            said["code"],
            said["bits"],
            said["lanes"],
            ctypes.cast(shape, ctypes.POINTER(_I64)),
            pointer,
            self.offset,
        )
        deleter = _Deleter(self.delete)
        if self.versioned:
            managed: Any = ManagedVersioned(self.major, 0, None, deleter, int(self.read_only), tensor)
        else:
            managed = Managed(tensor, None, deleter)
        address = ctypes.addressof(managed)
        HELD[address] = (managed, shape, strides, deleter, self)
        self.given += 1
        self.capsules.append(_new(address, _NAMES[self.versioned], None))
        return self.capsules[-1]

    def drop_capsules(self) -> None:
        """Give back what no consumer has taken, as a capsule does when it goes. (One in Python cannot: it may go while
        an exception is on its way.)"""
        kind, name = (ManagedVersioned, b"dltensor_versioned") if self.versioned else (Managed, b"dltensor")
        while self.capsules:
            capsule = self.capsules.pop()
            if _is_valid(capsule, name):
                address = _pointer(capsule, name)
                kind.from_address(address).deleter(address)

    def delete(self, address: int) -> None:
        self.deleted += 1
        KEPT.append(HELD.pop(address))  # the callback is running: it must not be freed by itself


HELD: dict[int, tuple[Any, ...]] = {}  # what was handed out keeps its producer, as the standard wants it
KEPT: list[Any] = []
