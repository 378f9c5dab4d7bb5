"""The candidates of a bench as the clock calls them; those that are plain functions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.errors import NoyauError, SignatureError
from noyau.hosts.numpy.dlpack import as_array, is_foreign
from noyau.hosts.torch import as_tensors
from noyau.jobs.bench.inputs import Array, Arrays, Views
from noyau.ops.op import Op
from noyau.timing.sides import Contender

Function = Callable[..., object]


def one_or_all(arrays: Arrays) -> Any:
    return arrays[0] if len(arrays) == 1 else arrays


@dataclass(frozen=True, slots=True)
class Entry:
    """A participant of a race. `returning`: called as users call it; `filling`: called with `out=`, where it takes
    that; `other`: called on tensors instead, where it does not take arrays; `skipped`: why it cannot run here; `fault`:
    why it cannot be built; `is_peer`: it is timed where its values are wrong, too, and not ranked; `is_judge`: its
    values are what the others are judged by; `note`: why it is tried."""

    name: str
    language: str = ""
    returning: Contender | None = None
    filling: Contender | None = None
    other: Entry | None = None
    skipped: str = ""
    fault: str = ""
    is_peer: bool = False
    is_judge: bool = False
    note: str = ""


def built(name: str, language: str, make: Callable[[], Entry]) -> Entry:
    """The participant that a kernel is; without a clock where it does not take the inputs, or cannot be built."""
    try:
        return make()
    except SignatureError as error:
        return Entry(name, language, skipped=f"it does not take these inputs: {error}")
    except NoyauError as error:
        return Entry(name, language, fault=str(error))


@dataclass(frozen=True, slots=True)
class CandidateCall:
    """The way from arrays to arguments. `views`: from memory to arguments; `scalars`: which are given as numbers;
    `dtypes`: of the results, for Python's own numbers."""

    views: Views
    scalars: tuple[bool, ...]
    dtypes: tuple[np.dtype[Any], ...] = ()

    def plain(self, arrays: Arrays) -> tuple[Any, ...]:
        """The arguments as users give them."""
        arguments = self.views.arguments(arrays)
        return tuple(g[()] if s and isinstance(g, Array) else g for g, s in zip(arguments, self.scalars, strict=True))

    def gives(self, result: object) -> object:
        """Results as arrays: numbers and arrays of other packages become such; all else stays what it is."""
        parts = result if isinstance(result, tuple | list) else (result,)
        dtypes = self.dtypes if len(self.dtypes) == len(parts) else (None,) * len(parts)
        return tuple(_as_array(*each) for each in zip(parts, dtypes, strict=True))


def of_functions(functions: Mapping[str, Function], calling: CandidateCall) -> Iterator[Entry]:
    """Plain functions. One whose name begins with `torch` is given tensors, and so is one that does not take arrays
    while torch is loaded."""
    for name, function in functions.items():
        usual, tensors = (_entry(name, function, calling, tensors=each) for each in (False, True))
        yield tensors if name.startswith("torch") else replace(usual, other=tensors if "torch" in sys.modules else None)


def _entry(name: str, function: Function, calling: CandidateCall, *, tensors: bool) -> Entry:
    def takes(arrays: Arrays) -> tuple[Any, ...]:
        return as_tensors(calling.plain(arrays)) if tensors else calling.plain(arrays)

    def takes_out(arrays: Arrays) -> Any:
        return one_or_all(as_tensors(arrays) if tensors else arrays)

    returning = Contender(name, function, takes=takes, gives=calling.gives)
    filling = Contender(name, function, True, takes, takes_out, calling.gives) if takes_an_out(function) else None
    return Entry(name, "", returning, filling)


def takes_an_out(function: Function) -> bool:
    """Whether a function has a parameter `out`, as far as it can be told."""
    if isinstance(function, np.ufunc | Op):
        return True
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _as_array(part: object, dtype: np.dtype[Any] | None) -> object:
    if type(part) in (bool, int, float):
        return np.asarray(part, dtype)
    if isinstance(part, np.generic):
        return np.asarray(part)
    return as_array(part) if is_foreign(part) else part
