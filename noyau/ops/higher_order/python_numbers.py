"""Numbers of Python beside arrays and tensors: the dtypes that NumPy and torch give them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.dtypes import from_numpy

_NUMBERS = (bool, int, float)


def beside(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, where numbers of Python become arrays of the dtype that NumPy gives them beside the others; beside
    tensors of torch they become tensors."""
    if not any(type(each) in _NUMBERS for each in args):
        return tuple(args)
    tensors = [each for each in args if hasattr(each, "new_tensor")]
    if tensors:
        return tuple(_tensor(each, tensors) if type(each) in _NUMBERS else each for each in args)
    dtypes = [each.dtype for each in args if isinstance(each, np.ndarray | np.generic)]
    return tuple(_array(each, dtypes) if type(each) in _NUMBERS else each for each in args)


def _array(number: float, dtypes: Sequence[np.dtype]) -> np.ndarray:
    floats = [dtype for dtype in dtypes if (known := from_numpy(dtype)) is not None and known.is_float]
    others = floats if floats and not isinstance(number, bool) else dtypes
    if floats and isinstance(number, float):
        return np.asarray(number, np.result_type(*floats))
    return np.asarray(number, np.result_type(*others, number) if others else None)


def _tensor(number: float, tensors: Sequence[Any]) -> Any:
    """A number as a tensor of torch, of the dtype of those beside it; a float beside integers is a float64."""
    like = next((each for each in tensors if each.is_floating_point()), tensors[0])
    widened = isinstance(number, float) and not like.is_floating_point()
    return (like.detach().double() if widened else like.detach()).new_tensor(number)
