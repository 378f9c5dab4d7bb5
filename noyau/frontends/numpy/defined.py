"""NumPy's functions that it writes in Python, of its others: their own text is traced, as a function of the user is."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from noyau.frontends.numpy.arrays import FUNCTIONS, call, tape_of
from noyau.frontends.numpy.creating import made_by
from noyau.frontends.numpy.joining import common_dtype
from noyau.frontends.numpy.reductions import array_of
from noyau.frontends.numpy.scopes import Scope, is_numpy
from noyau.frontends.numpy.ufuncs import traced

DEFINED = """angle apply_along_axis apply_over_axes block corrcoef cov cumulative_prod cumulative_sum
diag_indices_from ediff1d geomspace i0 iscomplex isreal isrealobj logspace poly polyadd polyder polydiv polyint polymul
polysub polyval real_if_close require roots tril_indices_from triu_indices_from unwrap vander
linalg.cross linalg.diagonal linalg.matrix_norm linalg.matrix_power linalg.multi_dot linalg.outer linalg.trace
linalg.vector_norm""".split()


class Within(Scope):
    """What NumPy's own text sees: of NumPy also what is not public is taken apart, or put in its place by its name."""

    def _replaced(self, value: Any) -> Any:
        name = getattr(value, "__name__", "")
        match value:
            case FunctionType() if is_numpy(value) and getattr(np, name, None) is not value:
                return self.function(value)
            case BuiltinFunctionType() if name in FUNCTIONS:
                return made_by(self.tape, name, value)
            case _:
                return _Converter if name == "_array_converter" else super()._replaced(value)


class _Converter:
    """What NumPy makes arrays of its arguments by, and wraps results."""

    def __init__(self, *given: Any) -> None:
        self.arrays = [traced(tape_of(given), each) if not hasattr(each, "node") else each for each in given]

    def __getitem__(self, at: int) -> Any:
        return self.arrays[at]

    def as_arrays(self, **said: Any) -> tuple[Any, ...]:
        return tuple(self.arrays)

    def result_type(self, **said: Any) -> np.dtype:
        return common_dtype(self.arrays).numpy

    def wrap(self, made: Any, **said: Any) -> Any:
        return made


def defined(name: str) -> Callable[..., Any]:
    """A function of NumPy, by its own text."""

    def trace(*args: Any, **kwargs: Any) -> Any:
        function = attrgetter(name)(np)
        text = getattr(function, "_implementation", function)
        return Within(tape_of([*args, *kwargs.values()])).rebuilt(text)(*args, **kwargs)

    return trace


FUNCTIONS.update({name: defined(name) for name in DEFINED})
FUNCTIONS["imag"] = lambda val: call("zeros_like", array_of(val))
