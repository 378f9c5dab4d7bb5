"""Arrays of other packages as NumPy arrays of the same memory, and results as arrays of their kind, by DLPack.

No such package is imported: an object describes its memory by DLPack (https://dmlc.github.io/dlpack), by
`__array_interface__` or by Python's buffers, and the package of an argument is loaded already.

Capsules of DLPack are read with ctypes where NumPy does not take their dtype. The structures are those of dlpack.h 1.1,
with and without a version."""

import ctypes
import math
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np

from noyau.errors import UnsupportedError

_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_READ_ONLY = 1
_NEWEST = 1  # the major version within which nothing but flags and dtypes may be added

# By DLDataTypeCode the kind of NumPy's dtype; by code and bits the short dtypes.
_NUMPY = {0: "i", 1: "u", 2: "f", 5: "c"}
_SHORT = {
    (6, 8): np.bool_,
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
        *((name, ctypes.c_int32) for name in ("device_type", "device_id", "ndim")),
        *((name, ctypes.c_uint8) for name in ("code", "bits")),
        ("lanes", ctypes.c_uint16),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("shape", "strides")),
        ("byte_offset", ctypes.c_uint64),
    )


# The interpreter's lock is kept: a deleter may belong to a Python object.
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedTensorVersioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("major", "minor")),
        *((name, ctypes.c_void_p) for name in ("context", "deleter")),
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
    """The owner of a capsule's memory: the deleter is called once, when the last array on the memory is gone."""

    def __init__(self, capsule: object, name: bytes, address: int, deleter: int | None) -> None:
        self.address, self.deleter = address, deleter
        _rename(capsule, ctypes.cast(_USED[name], ctypes.c_char_p))
        self.__array_interface__: dict[str, Any] = {}

    def __del__(self) -> None:
        deleter, self.deleter = self.deleter, None
        if deleter:
            _Deleter(deleter)(self.address)


def array_of(capsule: object, label: str) -> np.ndarray:
    """The array in an unused capsule, which is used up; read-only if the capsule says so, or has no version to say so.

    UnsupportedError for a version, a device or a dtype that NumPy cannot have; the capsule is unchanged then."""
    name = next((name for name in (_VERSIONED, _PLAIN) if _is_valid(capsule, name)), None)
    if name is None:
        raise UnsupportedError(f"{label} hands over {capsule!r}, which is no unused capsule of DLPack")
    address = _pointer(capsule, name)
    managed = (_ManagedTensorVersioned if name == _VERSIONED else _ManagedTensor).from_address(address)
    if isinstance(managed, _ManagedTensorVersioned) and managed.major > _NEWEST:
        raise UnsupportedError(f"{label} speaks DLPack {managed.major}, and only versions up to {_NEWEST} are known")
    tensor = managed.tensor
    dtype: np.dtype = _dtype(tensor, label)
    shape = tuple(tensor.shape[: tensor.ndim])
    if min(shape, default=0) < 0:
        raise UnsupportedError(f"{label} hands over an array of shape {list(shape)}, and no axis is below 0")
    writable = isinstance(managed, _ManagedTensorVersioned) and not managed.flags & _READ_ONLY
    owner = _Owner(capsule, name, address, managed.deleter)
    if not math.prod(shape):
        array = np.empty(shape, dtype)
        array.flags.writeable = writable
        return array
    bits = np.dtype(f"u{dtype.itemsize}") if dtype.itemsize <= 8 else dtype
    data = (tensor.data + tensor.byte_offset, not writable)
    strides = tuple(step * dtype.itemsize for step in tensor.strides[: len(shape)]) if tensor.strides else None
    owner.__array_interface__ = {"version": 3, "data": data, "shape": shape, "strides": strides, "typestr": bits.str}
    return np.asarray(owner).view(dtype)


def _dtype(tensor: _Tensor, name: str) -> np.dtype:
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    if tensor.device_type not in (1, 3, 11):
        raise UnsupportedError(f"{name} lies on a device of type {tensor.device_type}, not in memory of the CPU")
    if lanes == 1 and (code, bits) in _SHORT:
        short: np.dtype = np.dtype(_SHORT[code, bits])
        return short
    if lanes == 1 and code in _NUMPY and bits in (8, 16, 32, 64, 128):
        with suppress(TypeError):
            return np.dtype(f"{_NUMPY[code]}{bits // 8}")
    dtype_name = f"code {code}, {bits} bits, {lanes} lanes"
    raise UnsupportedError(f"{name} has a dtype of DLPack that NumPy cannot hold ({dtype_name}); cast it first")


# NumPy before 2.1 does not: every array that it imports is read-only then.
_ASKS_FOR_VERSION_1 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
_ON_THE_CPU = frozenset({1, 3, 11})  # kDLCPU, kDLCUDAHost, kDLROCMHost
_DEVICES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda, managed", 14: "oneapi"}
_SPOKEN = ("__dlpack__", "__array_interface__", "__array_struct__", "__cuda_array_interface__")


def speaks(thing: object) -> bool:
    """Whether `as_array` takes an object, judged by its protocols: it takes no numbers, lists and texts."""
    return isinstance(thing, np.ndarray) or any(hasattr(thing, name) for name in _SPOKEN) or _buffer(thing) is not None


def is_foreign(thing: object) -> bool:
    """Whether an object is an array of another package than NumPy."""
    return not isinstance(thing, np.ndarray | np.generic) and hasattr(thing, "__dlpack__")


def leading(arguments: Iterable[object]) -> Any:
    """The argument whose kind the results have: the first array of another package, or None where all are NumPy's."""
    return next((thing for thing in arguments if is_foreign(thing)), None)


def as_array(thing: Any, name: str = "an argument") -> np.ndarray:
    """A NumPy array of the same cells: nothing is copied, strides stay, and read-only memory is read-only here. The
    memory is released once, when the last view of the array is gone. bfloat16 and float8 are those of ml_dtypes.

    Before DLPack's version 1 no object can say whether it may be written to; the array is read-only then. A NumPy
    array is returned as it is. UnsupportedError for an object that lies on a GPU, requires a gradient, has a dtype
    that NumPy cannot hold, or is no array; `name` is its name in the message."""
    if isinstance(thing, np.ndarray):
        return thing
    if hasattr(thing, "__dlpack__"):
        _require_plain(thing, name)
        # By NumPy where it has the dtype, else from the capsule
        if _ASKS_FOR_VERSION_1:
            with suppress(Exception):  # faults are found, and reported, below
                return np.from_dlpack(thing)
        return array_of(_capsule(thing, name), name)
    if hasattr(thing, "__cuda_array_interface__"):
        raise _elsewhere(name, "cuda")
    if hasattr(thing, "__array_interface__") or hasattr(thing, "__array_struct__"):
        return np.asarray(thing)
    view = _buffer(thing)
    if view is None:
        reason = "speaks neither DLPack nor Python's buffers"
        raise UnsupportedError(f"{name} is no array: {type(thing).__name__} {reason}; give a NumPy array")
    return np.asarray(view)


def as_targets(out: Any) -> Any:
    """The arrays that results are written to, those of other packages as NumPy arrays of the same memory; other objects
    as they are. `out` itself where there is nothing to convert."""
    targets = out if isinstance(out, tuple) else (out,)
    if not any(_is_target(each) for each in targets):
        return out
    arrays = tuple(as_array(each, "out") if _is_target(each) else each for each in targets)
    return arrays if isinstance(out, tuple) else arrays[0]


def _is_target(thing: object) -> bool:
    return not isinstance(thing, np.ndarray | np.generic) and speaks(thing)


def return_like(result: np.ndarray, like: Any) -> Any:
    """A result as an array of the package of `like`, on the same memory, which lives as long as either is used.

    The package is that of the array API's `__array_namespace__`, else that of the type; where it has no `from_dlpack`,
    or `like` is None or NumPy's, the NumPy array is returned, which speaks DLPack itself."""
    package = _package(like)
    from_dlpack = getattr(package, "from_dlpack", None)
    if from_dlpack is None:
        return result
    name = result.dtype.name
    if not hasattr(ml_dtypes, name):
        return from_dlpack(result)
    # NumPy does not export these dtypes: the bits are exchanged, and viewed as the dtype of the other package.
    bits = from_dlpack(result.view(f"u{result.itemsize}"))
    return bits.view(getattr(package, name)) if hasattr(package, name) else result


def _package(like: Any) -> Any:
    if not is_foreign(like):
        return None
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__()
    return sys.modules.get(type(like).__module__.partition(".")[0])


def _capsule(thing: Any, name: str) -> object:
    try:
        with suppress(TypeError):  # an exporter older than versions
            return thing.__dlpack__(max_version=(1, 1))
        return thing.__dlpack__()
    except Exception as error:
        raise _refusal(thing, name, error) from error


def _require_plain(thing: Any, name: str) -> None:
    """Raise UnsupportedError for an object whose memory NumPy cannot read as it is."""
    if getattr(thing, "requires_grad", False):
        reason = "it requires a gradient, which a kernel called from NumPy would lose"
        raise UnsupportedError(f"{name} cannot be taken: {reason}; give {name}.detach()")
    negated = getattr(thing, "is_neg", None)
    if callable(negated) and negated():
        reason = "it is a view that negates its memory as it is read"
        raise UnsupportedError(f"{name} cannot be taken: {reason}; give {name}.resolve_neg()")
    try:
        kind, number = thing.__dlpack_device__() if hasattr(thing, "__dlpack_device__") else (1, 0)
    except Exception as error:
        raise _refusal(thing, name, error) from error
    if int(kind) not in _ON_THE_CPU:
        raise _elsewhere(name, f"{_DEVICES.get(int(kind), f'device type {int(kind)}')}:{int(number)}")


def _elsewhere(name: str, device: str) -> UnsupportedError:
    return UnsupportedError(f"{name} lies on {device}, and this kernel runs on the CPU; copy it there first")


def _refusal(thing: Any, name: str, error: Exception) -> UnsupportedError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return UnsupportedError(f"{name} does not hand over its memory, as {type(thing).__name__} says: {reason}")


def _buffer(thing: Any) -> memoryview | None:
    with suppress(TypeError):
        return memoryview(thing)
    return None


_ON_A_GPU = frozenset({2, 10, 13})  # kDLCUDA, kDLROCM, kDLCUDAManaged


def are_tensors(arguments: Iterable[object]) -> bool:
    """Whether a torch tensor, or an object that stands for one, is among the arguments."""
    return any(hasattr(type(each), "__torch_function__") for each in arguments)


def lies_on_gpu(thing: object) -> bool:
    """Whether an object is an array of another package that lies on a GPU."""
    if hasattr(type(thing), "__torch_function__") or isinstance(thing, np.ndarray | np.generic | int | float | str):
        return False
    if hasattr(type(thing), "__cuda_array_interface__"):
        return True
    tell = getattr(thing, "__dlpack_device__", None)
    return tell is not None and int(tell()[0]) in _ON_A_GPU


def is_traced() -> bool:
    """Whether torch.compile traces this very line."""
    return False


# Dynamo inlines this lambda instead of the function, so that a call needs no module of torch, and compiled code no
# guard on `sys.modules`, which other threads change.
is_traced._torchdynamo_inline = lambda: True  # type: ignore[attr-defined]
