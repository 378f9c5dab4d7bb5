"""The closure of a function of numbers, adapted to arrays: NumPy's functions replace those of Python and its math."""

import builtins
import functools
import math
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from noyau import functions
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.scopes import global_names

Scalar = Callable[..., Any]


def largest(*numbers: Any) -> Any:
    """max() of numbers: NaN where one is NaN."""
    return functools.reduce(np.maximum, numbers)


def least(*numbers: Any) -> Any:
    """min() of numbers: NaN where one is NaN."""
    return functools.reduce(np.minimum, numbers)


def logarithm(x: Any, base: Any = None) -> Any:
    """math.log, of one argument or of two."""
    return np.log(x) if base is None else np.log(x) / np.log(base)


def whole(rounding: np.ufunc) -> Scalar:
    """A variant of math.floor and its like, which give integers."""
    return lambda x: rounding(x).astype(np.int64)


# Functions of Python for numbers, and of NumPy for arrays.
MATH: Mapping[str, Scalar] = {
    **{name: getattr(np, name) for name in "sqrt exp exp2 expm1 log2 log10 log1p sin cos tan sinh cosh tanh".split()},
    **{name: getattr(np, name) for name in "cbrt hypot copysign fmod isnan isinf isfinite degrees radians".split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
    "atan2": np.arctan2,
    "pow": np.power,
    "fabs": np.fabs,
    "log": logarithm,
    "erf": functions.erf,
    "floor": whole(np.floor),
    "ceil": whole(np.ceil),
    "trunc": whole(np.trunc),
}
BUILTINS: Mapping[str, Scalar] = {"max": largest, "min": least, "abs": np.abs, "pow": np.power}


class Mathematics:
    """A proxy of the math module with functions of arrays."""

    def __getattr__(self, name: str) -> Any:
        return _of_math(name)


def _of_math(name: str) -> Any:
    """The stand-in for `math.name`. UnsupportedError where NumPy has no such function."""
    value = getattr(math, name)
    if name in MATH or not callable(value):
        return MATH.get(name, value)
    raise UnsupportedError(f"math.{name} is not traced; write it with functions of NumPy")


class ClosureValues:
    """The values in closures and globals of functions, each replaced once."""

    def __init__(self) -> None:
        self.seen: dict[int, FunctionType] = {}

    def replace(self, value: Any) -> Any:
        """The value that a function of arrays sees in place of `value`."""
        name = getattr(value, "__name__", "")
        match value:
            case ModuleType() if value is math:
                return Mathematics()
            case BuiltinFunctionType() if getattr(math, name, None) is value:
                return _of_math(name)
            case BuiltinFunctionType() if getattr(builtins, name, None) is value:
                return BUILTINS.get(name, value)
            case functools.partial():
                return functools.partial(self.replace(value.func), *value.args, **value.keywords)
            case FunctionType() if not f"{value.__module__}.".startswith(("numpy.", "noyau.functions.")):
                return self.rebuilt(value)
            case _:
                return value

    def rebuilt(self, function: FunctionType) -> FunctionType:
        """A user's function with its globals, closure and defaults replaced; it may be recursive."""
        if id(function) in self.seen:
            return self.seen[id(function)]
        scope = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        result = FunctionType(function.__code__, scope, function.__name__, None, cells)
        self.seen[id(function)] = result
        for name in set(global_names(function.__code__)):
            if name in scope:
                scope[name] = self.replace(scope[name])
            elif name in BUILTINS:
                scope[name] = BUILTINS[name]
        for cell, before in builtins.zip(cells, function.__closure__ or (), strict=True):
            cell.cell_contents = self.replace(before.cell_contents)
        result.__defaults__ = tuple(builtins.map(self.replace, function.__defaults__ or ())) or None
        result.__kwdefaults__ = {k: self.replace(v) for k, v in (function.__kwdefaults__ or {}).items()} or None
        result.__doc__, result.__module__ = function.__doc__, function.__module__
        return result
