"""The numpy module as a traced function sees it: creation functions take sizes that have no number yet."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import Traced
from noyau.frontends.numpy.tape import Tape, dtype_from
from noyau.ir.dims import Dim
from noyau.ir.graph import Iota
from noyau.ir.symbols import Size, dim_of


class Numpy:
    """numpy, whose creation functions note what they make on a tape where they are given a Size."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._made: dict[str, Callable[..., Traced]] = {
            "arange": self._arange,
            "zeros": self._zeros,
            "ones": self._ones,
            "full": self._full,
        }

    def __getattr__(self, name: str) -> Any:
        plain = getattr(np, name)
        made = self._made.get(name)
        if made is None:
            return plain

        def call(*args: Any, **kwargs: Any) -> Any:
            return made(*args, **kwargs) if _has_size((*args, *kwargs.values())) else plain(*args, **kwargs)

        return call

    def _arange(self, *ends: Any, dtype: Any = None) -> Traced:
        start, stop, step = {1: (0, *ends, 1), 2: (*ends, 1)}.get(len(ends), ends)
        if not isinstance(step, int) or step < 1:
            raise UnsupportedError("np.arange is traced with a step of 1, 2, 3...")
        first, last = dim_of(start), dim_of(stop)
        self._tape.demand_at_most(first, last)
        length = (last - first + (step - 1)) // step
        node = self._tape.emit(Iota(Dim.of("#0") * step + first), [], DType.I64, (length,))
        return Traced(self._tape, self._tape.cast(node, DType.I64 if dtype is None else dtype_from(dtype)))

    def _zeros(self, shape: Any, dtype: Any = np.float64) -> Traced:
        return self._full(shape, 0, dtype)

    def _ones(self, shape: Any, dtype: Any = np.float64) -> Traced:
        return self._full(shape, 1, dtype)

    def _full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Traced:
        dims = shape if isinstance(shape, tuple | list) else (shape,)
        wanted = np.asarray(fill_value).dtype if dtype is None else dtype
        value = self._tape.constant(fill_value, dtype_from(wanted))
        return Traced(self._tape, self._tape.expand(value, tuple(map(dim_of, dims))))


def with_numpy(function: Callable[..., Any], tape: Tape) -> Callable[..., Any]:
    """The function, in whose globals and enclosing scopes numpy is the one of a tape."""
    if not isinstance(function, FunctionType):
        return function
    proxy = Numpy(tape)
    scope = {name: proxy if value is np else value for name, value in function.__globals__.items()}
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _has_size(values: Any) -> bool:
    return any(isinstance(v, Size) or (isinstance(v, tuple | list) and _has_size(v)) for v in values)
