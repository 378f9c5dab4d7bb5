"""Arrays of known numbers, which a traced function looks into: a codebook, the rows of np.eye."""

from __future__ import annotations

from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import Traced, call, tape_of
from noyau.frontends.numpy.ufuncs import traced


class Table(np.ndarray):
    """An array of NumPy that traced indices may look into: it is a constant of the graph then. What NumPy makes of one
    is one, too."""

    def __getitem__(self, key: Any) -> Any:
        if not _holds_traced(key):
            return super().__getitem__(key)
        tape = tape_of(list(key) if isinstance(key, tuple) else [key])
        return call("getitem", traced(tape, self), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if _holds_traced(key) or _holds_traced(value):
            told = "it writes what is traced into an array whose numbers are known"
            raise UnsupportedError(f"{told}; write into one that np.zeros, np.full or a traced .copy() makes")
        super().__setitem__(key, value)

    def take(self, indices: Any, *args: Any, **said: Any) -> Any:
        if not isinstance(indices, Traced):
            return super().take(indices, *args, **said)
        return call("take", traced(indices.tape, self), indices, *args, **said)

    def dot(self, b: Any, *args: Any, **said: Any) -> Any:
        return call("dot", self, b, *args, **said) if isinstance(b, Traced) else super().dot(b, *args, **said)


def _holds_traced(key: Any) -> bool:
    """Whether traced arrays are among what stands between brackets."""
    return isinstance(key, Traced) or (isinstance(key, tuple | list) and any(map(_holds_traced, key)))


def as_table(value: Any) -> Any:
    """An array of NumPy as a Table of the same memory, if its class is NumPy's own; anything else as it is."""
    return value.view(Table) if type(value) is np.ndarray else value
