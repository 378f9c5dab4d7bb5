"""NumPy's functions that it writes in Python, of its others: their own text is traced, as a function of the user is."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from noyau.frontends.numpy.reductions import array_of
from noyau.frontends.numpy.scopes import Within
from noyau.frontends.numpy.traced_array import FUNCTIONS, call, tape_of

DEFINED = """angle apply_along_axis apply_over_axes block corrcoef cov cumulative_prod cumulative_sum
diag_indices_from ediff1d geomspace i0 iscomplex isreal isrealobj logspace poly polyadd polyder polydiv polyint polymul
polysub polyval real_if_close require roots tril_indices_from triu_indices_from unwrap vander
linalg.cross linalg.diagonal linalg.matrix_norm linalg.matrix_power linalg.multi_dot linalg.outer linalg.trace
linalg.vector_norm""".split()


def from_source(name: str) -> Callable[..., Any]:
    """A function of NumPy, by its own text."""

    def trace(*args: Any, **kwargs: Any) -> Any:
        function = attrgetter(name)(np)
        text = getattr(function, "_implementation", function)
        return Within(tape_of([*args, *kwargs.values()])).rebuilt(text)(*args, **kwargs)

    return trace


FUNCTIONS.update({name: from_source(name) for name in DEFINED})
FUNCTIONS["imag"] = lambda val: call("zeros_like", array_of(val))
