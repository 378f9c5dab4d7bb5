"""Functions of numbers as compiled code has them, where Python's raise."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of math that gives NaN or infinity where Python's raises."""

    def computed(*values: Any) -> Any:
        try:
            return function(*values)
        except ValueError:
            return getattr(np, _IN_NUMPY.get(function.__name__, function.__name__), _nan)(*values)
        except OverflowError:
            return math.inf

    return computed


def _nan(*values: Any) -> float:
    return math.nan


_IN_NUMPY = {"log": "log", "pow": "power", "fmod": "fmod", "acos": "arccos", "asin": "arcsin", "acosh": "arccosh"}
MATH = SimpleNamespace(
    **{
        name: _compiled(value) if isinstance(value, types.BuiltinFunctionType) else value
        for name, value in vars(math).items()
        if not name.startswith("_")
    }
)
