"""Arrays of other packages as NumPy arrays of the same memory, and results as arrays of their kind, by DLPack.

No such package is imported: an object says by DLPack (https://dmlc.github.io/dlpack), by `__array_interface__` or by
Python's buffers where its cells lie, and the package of an argument is there already."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from noyau.errors import UnsupportedError
from noyau.runtimes.numpy.capsules import array_of

_ON_THE_CPU = frozenset({1, 3, 11})  # kDLCPU, kDLCUDAHost, kDLROCMHost
_DEVICES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda, managed", 14: "oneapi"}
_SPOKEN = ("__dlpack__", "__array_interface__", "__array_struct__", "__cuda_array_interface__")


def speaks(thing: object) -> bool:
    """Whether `as_array` takes it, as far as is known before it is asked: numbers, lists and texts it does not."""
    return isinstance(thing, np.ndarray) or any(hasattr(thing, name) for name in _SPOKEN) or _buffer(thing) is not None


def is_foreign(thing: object) -> bool:
    """Whether it is an array of another package than NumPy."""
    return not isinstance(thing, np.ndarray | np.generic) and hasattr(thing, "__dlpack__")


def leading(arguments: Iterable[object]) -> Any:
    """The argument whose kind the results have: the first array of another package, or None where all are NumPy's."""
    return next((thing for thing in arguments if is_foreign(thing)), None)


def as_array(thing: Any, called: str = "an argument") -> np.ndarray:
    """The same cells as a NumPy array: nothing is copied, strides stay, and what is read-only there is so here. The
    memory is given back once, when the last view of the array is gone. bfloat16 and float8 are those of ml_dtypes.

    Without DLPack's version 1 nothing tells whether an object may be written to; the array is read-only then. A NumPy
    array is returned as it is. UnsupportedError for what lies on a GPU, requires a gradient, has a dtype that NumPy
    cannot hold, or is no array; `called` is its name in the message."""
    if isinstance(thing, np.ndarray):
        return thing
    if hasattr(thing, "__dlpack__"):
        _require_plain(thing, called)
        return _exchanged(thing, called)
    if hasattr(thing, "__cuda_array_interface__"):
        raise _elsewhere(called, "cuda")
    if hasattr(thing, "__array_interface__") or hasattr(thing, "__array_struct__"):
        return np.asarray(thing)
    view = _buffer(thing)
    if view is None:
        told = "speaks neither DLPack nor Python's buffers"
        raise UnsupportedError(f"{called} is no array: {type(thing).__name__} {told}; give a NumPy array")
    return np.asarray(view)


def as_targets(out: Any) -> Any:
    """What results are to be written to, each array of another package as `as_array` gives it, on the same memory; what
    speaks no such protocol as it is. `out` itself where there is nothing to take."""
    targets = out if isinstance(out, tuple) else (out,)
    if not any(_is_target(each) for each in targets):
        return out
    taken = tuple(as_array(each, "out") if _is_target(each) else each for each in targets)
    return taken if isinstance(out, tuple) else taken[0]


def _is_target(thing: object) -> bool:
    return not isinstance(thing, np.ndarray | np.generic) and speaks(thing)


def given_back(result: np.ndarray, like: Any) -> Any:
    """A result as an array of the package of `like`, on the same memory, which lives as long as either is used.

    The package is that of the array API's `__array_namespace__`, else that of the type; where it has no `from_dlpack`,
    or `like` is None or NumPy's, the NumPy array is returned, which speaks DLPack itself."""
    package = _package(like)
    taken = getattr(package, "from_dlpack", None)
    if taken is None:
        return result
    name = result.dtype.name
    if not hasattr(ml_dtypes, name):
        return taken(result)
    # NumPy's exporter lacks these: the bits are exchanged, and read as what they are in the other package.
    bits = taken(result.view(f"u{result.itemsize}"))
    return bits.view(getattr(package, name)) if hasattr(package, name) else result


def _package(like: Any) -> Any:
    if not is_foreign(like):
        return None
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__()
    return sys.modules.get(type(like).__module__.partition(".")[0])


def _exchanged(thing: Any, called: str) -> np.ndarray:
    """By NumPy where it has the dtype, else by what it was handed."""
    try:
        return np.from_dlpack(thing)
    except Exception:  # noqa: BLE001  what is wrong is found, and told, below
        return array_of(_capsule(thing, called), called)


def _capsule(thing: Any, called: str) -> object:
    try:
        return thing.__dlpack__(max_version=(1, 1))
    except TypeError:
        pass  # it is of a time before versions
    except Exception as error:
        raise _unwilling(thing, called, error) from error
    try:
        return thing.__dlpack__()
    except Exception as error:
        raise _unwilling(thing, called, error) from error


def _require_plain(thing: Any, called: str) -> None:
    """UnsupportedError for what NumPy has no way to read as it is."""
    if getattr(thing, "requires_grad", False):
        told = "it requires a gradient, which a kernel called from NumPy would lose"
        raise UnsupportedError(f"{called} cannot be taken: {told}; give {called}.detach()")
    negated = getattr(thing, "is_neg", None)
    if callable(negated) and negated():
        told = "it is a view that negates its memory as it is read"
        raise UnsupportedError(f"{called} cannot be taken: {told}; give {called}.resolve_neg()")
    try:
        kind, number = thing.__dlpack_device__() if hasattr(thing, "__dlpack_device__") else (1, 0)
    except Exception as error:
        raise _unwilling(thing, called, error) from error
    if int(kind) not in _ON_THE_CPU:
        raise _elsewhere(called, f"{_DEVICES.get(int(kind), f'device type {int(kind)}')}:{int(number)}")


def _elsewhere(called: str, device: str) -> UnsupportedError:
    return UnsupportedError(f"{called} lies on {device}, and this kernel runs on the CPU; copy it there first")


def _unwilling(thing: Any, called: str, error: Exception) -> UnsupportedError:
    told = " ".join(str(error).split())[:300] or type(error).__name__
    return UnsupportedError(f"{called} does not hand over its memory, as {type(thing).__name__} says: {told}")


def _buffer(thing: Any) -> memoryview | None:
    try:
        return memoryview(thing)
    except TypeError:
        return None
