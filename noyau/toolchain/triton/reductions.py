"""Triton's reductions and scans on whole slices of NumPy: a function combines halves of an axis, not cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from noyau.toolchain.triton.builder import DTYPES, is_tensor, number_of, shaped, tensor_of, tl
from noyau.toolchain.triton.programs import BATCH


def _reduce(values: Any, axis: Any, combine: Any, keep_dims: bool = False, **options: Any) -> Any:
    """tl.reduce: halves of an axis are combined, neighbour with neighbour, until one slice is left."""
    parts = values if isinstance(values, tuple | tl.core.tuple) else (values,)
    axis, keep_dims, lead = number_of(axis), bool(number_of(keep_dims)), BATCH.axes
    rank = parts[0].handle.data.ndim - lead
    place = lead + (0 if axis is None else int(axis) % rank)
    arrays = [
        shaped(each.handle.data, (number_of(each.numel),)) if axis is None else each.handle.data for each in parts
    ]
    known = _KNOWN.get(_name(combine)) if len(parts) == 1 else None
    slices = [known(arrays[0], place)] if known else _folded(combine, parts, arrays, place)
    shape = (1,) * rank if axis is None else slices[0].shape[lead:]
    if not keep_dims:
        shape = () if axis is None else (*shape[: place - lead], *shape[place - lead + 1 :])
    results = tuple(
        tensor_of(shaped(each, shape).astype(DTYPES[part.dtype.name], copy=False), part.dtype, bool(shape))
        for each, part in zip(slices, parts, strict=True)
    )
    return results if isinstance(values, tuple | tl.core.tuple) else results[0]


def _folded(combine: Any, parts: Sequence[Any], arrays: list[np.ndarray], axis: int) -> list[np.ndarray]:
    even, odd = _cut(axis, slice(0, None, 2)), _cut(axis, slice(1, None, 2))
    while arrays[0].shape[axis] > 1:  # a power of two, as all extents of blocks
        arrays = _combined(combine, parts, [each[even] for each in arrays], [each[odd] for each in arrays])
    return arrays


def _scan(values: Any, axis: Any, combine: Any, reverse: bool = False, **options: Any) -> Any:
    """tl.associative_scan: what lies 1, 2, 4, ... cells before is combined with each."""
    parts = values if isinstance(values, tuple | tl.core.tuple) else (values,)
    axis, reverse = int(number_of(axis)) % len(parts[0].shape) + BATCH.axes, bool(number_of(reverse))
    back = _cut(axis, slice(None, None, -1)) if reverse else ()
    arrays = [each.handle.data[back].copy() for each in parts]
    step, known = 1, _KNOWN_SCANS.get(_name(combine)) if len(parts) == 1 else None
    if known is not None:
        arrays, step = [known(arrays[0], axis)], arrays[0].shape[axis]
    while step < arrays[0].shape[axis]:
        last = _cut(axis, slice(step, None))
        joined = _combined(combine, parts, [np.roll(each, step, axis) for each in arrays], arrays)
        for array, each in zip(arrays, joined, strict=True):
            array[last] = each[last]
        step *= 2
    pairs = zip(arrays, parts, strict=True)
    results = tuple(tensor_of(np.ascontiguousarray(each[back]), part.dtype) for each, part in pairs)
    return results if isinstance(values, tuple | tl.core.tuple) else results[0]


def _combined(
    combine: Any, parts: Sequence[Any], left: Sequence[np.ndarray], right: Sequence[np.ndarray]
) -> list[np.ndarray]:
    tensors = [tensor_of(each, part.dtype) for side in (left, right) for each, part in zip(side, parts, strict=True)]
    results = combine(*tensors)
    results = results if isinstance(results, tuple | tl.core.tuple) else (results,)
    arrays = [each.handle.data if is_tensor(each) else np.asarray(number_of(each)) for each in results]
    pairs = zip(arrays, parts, strict=True)
    return [np.broadcast_to(each, left[0].shape).astype(DTYPES[part.dtype.name], copy=False) for each, part in pairs]


def _cut(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, part)


def _name(combine: Any) -> str:
    function = getattr(combine, "fn", combine)
    return function.__name__ if getattr(function, "__module__", "") == "triton.language.standard" else ""


_KNOWN: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "_sum_combine": lambda array, axis: np.sum(array, axis, dtype=array.dtype, keepdims=True),
    "_elementwise_max": lambda array, axis: np.fmax.reduce(array, axis, keepdims=True),
    "_elementwise_min": lambda array, axis: np.fmin.reduce(array, axis, keepdims=True),
    "_xor_combine": lambda array, axis: np.bitwise_xor.reduce(array, axis, keepdims=True),
}
_KNOWN_SCANS: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "_sum_combine": lambda array, axis: np.cumsum(array, axis, dtype=array.dtype),
    "_prod_combine": lambda array, axis: np.cumprod(array, axis, dtype=array.dtype),
}
WORDS: Mapping[str, Any] = {"reduce": _reduce, "associative_scan": _scan}
