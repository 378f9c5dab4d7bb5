"""What lies in a capsule of DLPack, read with ctypes: for dtypes that NumPy does not take out of one.

The structures are those of dlpack.h 1.1, with and without a version."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np

from noyau.errors import UnsupportedError

_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_READ_ONLY = 1
_NEWEST = 1  # the major version from which on nothing but flags and dtypes may be new

# Numbers of DLDataTypeCode, and the dtypes of so many bits.
_NUMPY = {0: "i", 1: "u", 2: "f", 5: "c"}
_SHORT = {
    (4, 16): ml_dtypes.bfloat16,
    (7, 8): ml_dtypes.float8_e3m4,
    (8, 8): ml_dtypes.float8_e4m3,
    (9, 8): ml_dtypes.float8_e4m3b11fnuz,
    (10, 8): ml_dtypes.float8_e4m3fn,
    (11, 8): ml_dtypes.float8_e4m3fnuz,
    (12, 8): ml_dtypes.float8_e5m2,
    (13, 8): ml_dtypes.float8_e5m2fnuz,
    (14, 8): ml_dtypes.float8_e8m0fnu,
}


class _Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


# The interpreter's lock is kept: a deleter may belong to a Python object.
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_python = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _python))

# A capsule keeps the pointer to its name: these live as long as the process.
_USED = {name: ctypes.create_string_buffer(b"used_" + name) for name in (_PLAIN, _VERSIONED)}


class _Owner:
    """Who keeps the memory of a capsule: its deleter is called once, with the last array that looks at it."""

    def __init__(self, capsule: object, name: bytes, address: int, deleter: int | None) -> None:
        self.address, self.deleter = address, deleter
        _rename(capsule, ctypes.cast(_USED[name], ctypes.c_char_p))
        self.__array_interface__: dict[str, Any] = {}

    def __del__(self) -> None:
        deleter, self.deleter = self.deleter, None
        if deleter:
            _Deleter(deleter)(self.address)


def array_of(capsule: object, called: str) -> np.ndarray:
    """The array in a fresh capsule, which is used up; it is read-only where the capsule says so, or cannot say.

    UnsupportedError for a version, a device or a dtype that it cannot be; the capsule is left as it was then."""
    name = next((name for name in (_VERSIONED, _PLAIN) if _is_valid(capsule, name)), None)
    if name is None:
        raise UnsupportedError(f"{called} hands over {capsule!r}, which is no unused capsule of DLPack")
    address = _pointer(capsule, name)
    managed = (_ManagedVersioned if name == _VERSIONED else _Managed).from_address(address)
    if isinstance(managed, _ManagedVersioned) and managed.major > _NEWEST:
        raise UnsupportedError(f"{called} speaks DLPack {managed.major}, and only versions up to {_NEWEST} are known")
    tensor = managed.tensor
    dtype: np.dtype = _dtype(tensor, called)
    shape = tuple(tensor.shape[: tensor.ndim])
    if min(shape, default=0) < 0:
        raise UnsupportedError(f"{called} hands over an array of shape {list(shape)}, and no axis is below 0")
    writable = isinstance(managed, _ManagedVersioned) and not managed.flags & _READ_ONLY
    owner = _Owner(capsule, name, address, managed.deleter)
    if not math.prod(shape):
        made = np.empty(shape, dtype)
        made.flags.writeable = writable
        return made
    bits = np.dtype(f"u{dtype.itemsize}") if dtype.itemsize <= 8 else dtype
    owner.__array_interface__ = {
        "version": 3,
        "data": (tensor.data + tensor.byte_offset, not writable),
        "shape": shape,
        "strides": _strides(tensor, shape, dtype.itemsize),
        "typestr": bits.str,
    }
    return np.asarray(owner).view(dtype)


def _dtype(tensor: _Tensor, called: str) -> np.dtype:
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    if tensor.device_type not in (1, 3, 11):
        raise UnsupportedError(f"{called} lies on a device of type {tensor.device_type}, not in memory of the CPU")
    if lanes == 1 and (code, bits) == (6, 8):
        return np.dtype(np.bool_)
    if lanes == 1 and (code, bits) in _SHORT:
        short: np.dtype = np.dtype(_SHORT[code, bits])
        return short
    if lanes == 1 and code in _NUMPY and bits in (8, 16, 32, 64, 128):
        try:
            return np.dtype(f"{_NUMPY[code]}{bits // 8}")
        except TypeError:
            pass
    told = f"code {code}, {bits} bits, {lanes} lanes"
    raise UnsupportedError(f"{called} has a dtype of DLPack that NumPy cannot hold ({told}); cast it first")


def _strides(tensor: _Tensor, shape: tuple[int, ...], item: int) -> tuple[int, ...] | None:
    """In bytes; None for a packed array."""
    if not tensor.strides:
        return None
    return tuple(stride * item for stride in tensor.strides[: len(shape)])
