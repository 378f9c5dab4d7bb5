"""The key of a call: what kernels are made for, so that calls alike in it run the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from noyau.dispatching.generating import CPU, Wanted
from noyau.dispatching.layouts import PACKED, Layout, layout_of
from noyau.signatures.binding import Bound
from noyau.signatures.instances import sizing_integers
from noyau.signatures.types import Signature

Key = tuple[Any, ...]  # what `key_of` gives
T = TypeVar("T")


def wanted_by(signature: Signature, bound: Bound, constants: Mapping[str, Any], device: str = CPU) -> Wanted:
    """What kernels the arguments of a call want, which lie on `device`. Arrays that no kernel reads where they lie
    count as packed."""
    names = sizing_integers(signature)
    pairs = zip(bound.instance.inputs, bound.arrays, strict=True)
    integers = {value.name: int(array) for value, array in pairs if value.name in names}
    layouts = tuple(layout_of(array) or PACKED for array in bound.arrays)
    return Wanted(bound.instance, constants, integers, layouts, bound.sizes, device)


def key_of(wanted: Wanted) -> Key:
    """What tells calls apart."""
    return wanted.instance, frozen(wanted.constants), frozen(wanted.integers), wanted.layouts, wanted.device


def frozen(constants: Mapping[str, Any]) -> tuple[Any, ...]:
    """Constants as a key; what cannot be hashed counts by how it is written. 1, 1.0 and True are three."""
    return tuple((name, type(value), _hashable(value)) for name, value in sorted(constants.items()))


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return repr(value) if isinstance(value, float) else value  # -0.0 is not 0.0, and NaN is NaN


def fitted(arrays: Sequence[np.ndarray], layouts: Sequence[Layout]) -> list[np.ndarray]:
    """The arrays as kernels of these layouts may read them: packed copies where they lie otherwise."""
    return [
        array if layout_of(array) is not None and (layout is not PACKED or array.flags.c_contiguous) else _packed(array)
        for array, layout in zip(arrays, layouts, strict=True)
    ]


def _packed(array: np.ndarray) -> np.ndarray:
    return np.require(array, requirements=["C", "A"])


class Once:
    """What is made once a key, by one thread while others wait: one lock a key. A forked child has locks of its own,
    for who held one of its parent's will not let go there."""

    def __init__(self) -> None:
        self._locks: dict[tuple[int, Hashable], Lock] = {}

    def made(self, key: Hashable, known: Callable[[], T | None], make: Callable[[], T]) -> T:
        """What is known for a key, or else is made now, which makes it known."""
        found = known()
        if found is None:
            with self._locks.setdefault((os.getpid(), key), Lock()):
                found = known()
                if found is None:
                    found = make()
        return found
