"""NumPy's functions that pass over NaN, or put something in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.reductions import array_of
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call


def _numbers(a: TracedArray) -> Any:
    """A mask of the cells that are no NaN."""
    return UFUNCS["equal"](a, a)


def _neutral_for_nan(name: str, neutral: int) -> Callable[..., Any]:
    """A sum or a product in which NaN changes nothing."""

    def reduce(a: Any, *args: Any, **options: Any) -> Any:
        a = array_of(a)
        clean = where(_numbers(a), a, np.array(neutral, a.dtype)) if a.dtype.kind == "f" else a
        return call(name, clean, *args, **options)

    return reduce


def _over_numbers(name: str) -> Callable[..., Any]:
    """A mean or a variance of the numbers alone; NaN where there is none."""

    def reduce(a: Any, *args: Any, **options: Any) -> Any:
        a = array_of(a)
        return call(name, a, *args, **(options if a.dtype.kind != "f" else {**options, "where": _numbers(a)}))

    return reduce


def _nan_extreme(name: str, end: float) -> Callable[..., Any]:
    """The largest or the least number; NaN where there is none."""

    def reduce(a: Any, axis: Any = None, out: Any = None, **options: Any) -> Any:
        a = array_of(a)
        if a.dtype.kind != "f":
            return call(name, a, axis, out=out, **options)
        keep = {key: value for key, value in options.items() if key == "keepdims"}
        extreme = call(name, where(_numbers(a), a, np.array(end, a.dtype)), axis, **options)
        some = call("any", _numbers(a), axis, **keep)
        extreme = extreme if "initial" in options else where(some, extreme, np.array(np.nan, a.dtype))
        return extreme if out is None else UFUNCS["positive"](extreme, out=out)

    return reduce


def _place(name: str, end: float) -> Callable[..., Any]:
    """The place of an extreme; where all are NaN it is 0, and NumPy refuses."""

    def reduce(a: Any, axis: Any = None, **options: Any) -> Any:
        a = array_of(a)
        clean = where(_numbers(a), a, np.array(end, a.dtype)) if a.dtype.kind == "f" else a
        return call(name, clean, axis, **options)

    return reduce


def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = array_of(x)
    if x.dtype.kind != "f":
        return call("copy", x)
    info = np.finfo(x.dtype)
    high, low = (info.max if posinf is None else posinf), (info.min if neginf is None else neginf)
    numbers = where(x == np.inf, np.array(high, x.dtype), where(x == -np.inf, np.array(low, x.dtype), x))
    numbers = where(_numbers(x), numbers, np.array(nan, x.dtype))
    return numbers if copy else UFUNCS["positive"](numbers, out=x)


FUNCTIONS.update(
    {
        "nansum": _neutral_for_nan("sum", 0),
        "nanprod": _neutral_for_nan("prod", 1),
        "nancumsum": _neutral_for_nan("cumsum", 0),
        "nancumprod": _neutral_for_nan("cumprod", 1),
        "nanmean": _over_numbers("mean"),
        "nanvar": _over_numbers("var"),
        "nanstd": _over_numbers("std"),
        "nanmax": _nan_extreme("max", -np.inf),
        "nanmin": _nan_extreme("min", np.inf),
        "nanargmax": _place("argmax", -np.inf),
        "nanargmin": _place("argmin", np.inf),
        "nan_to_num": _nan_to_num,
    }
)
UFUNCS.update(
    {
        "fmax.reduce": lambda a, axis=0, **said: call("nanmax", a, axis, **said),
        "fmin.reduce": lambda a, axis=0, **said: call("nanmin", a, axis, **said),
    }
)
