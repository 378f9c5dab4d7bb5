"""Calls of kernels in Python alone, where the runtime's C cannot be built or does not know this NumPy; slow, and the
same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.compiler.lowering.input_layouts import layout_of
from noyau.errors import InputError
from noyau.toolchain.c.library import Native

if TYPE_CHECKING:
    from noyau.hosts.numpy.fast_calls import Argument


def call(native: Native, arguments: Sequence[Argument], scalars: Sequence[bool], given: object) -> Any:
    """The results of a kernel, one or a tuple; None where what is given is not as `arguments` says."""
    if type(given) is not tuple or len(given) != len(arguments):
        return None
    arrays = [array for end, each in zip(arguments, given, strict=True) if (array := read(end, each)) is not None]
    if len(arrays) != len(given):
        return None
    try:
        run = native.bound(*arrays)
    except InputError:  # no shapes of this kernel
        return None
    return packed(run(), scalars)


def packed(results: Sequence[np.ndarray], scalars: Sequence[bool]) -> Any:
    """Results as a caller gets them: one, or a tuple; those that are scalars as NumPy's."""
    made = tuple(result[()] if scalar else result for result, scalar in zip(results, scalars, strict=True))
    return made[0] if len(made) == 1 else made


def read(end: Argument, given: Any) -> np.ndarray | None:
    """An argument as the kernel takes it, or None where it is none."""
    if type(given) is np.ndarray:
        array = given if end.arrays and _fits(end, given) else None
    elif end.rank:
        array = None
    elif type(given) is end.dtype.numpy.type:
        array = np.asarray(given) if end.arrays else None
    else:
        array = number(end.dtype.numpy, given) if type(given) in end.numbers else None
    if array is None or (end.equals is not None and array != np.array(end.equals, array.dtype)):
        return None
    return end.layout.in_memory(array)


def number(dtype: np.dtype, given: bool | int | float) -> np.ndarray | None:
    """A Python number in a dtype, as NumPy takes it beside arrays of that dtype; None where it is out of range, or of
    more than 64 bits."""
    if (type(given) is bool) != (dtype.kind == "b") or (type(given) is float and dtype.kind in "iu"):
        return None
    limits = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
    if type(given) is int and not limits.min <= given <= limits.max:
        return None
    with np.errstate(over="ignore"):
        return np.array(given).astype(dtype)


def _fits(end: Argument, array: np.ndarray) -> bool:
    if array.ndim != end.rank or array.dtype != end.dtype.numpy or layout_of(array) != end.layout:
        return False
    return end.ones is None or end.ones == tuple(extent == 1 for extent in array.shape)
