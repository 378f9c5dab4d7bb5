"""Compiled accesses that note themselves: what `compiled.py` puts in the place of `a[i, j]`."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numba
import numpy as np

from noyau.errors import FindingKind
from noyau.sanitizer import engine
from noyau.sanitizer.engine import number_of
from noyau.sanitizer.records import Access

_HANDLE, _I32, _I64 = ctypes.c_int64, ctypes.c_int32, ctypes.c_int64  # a pointer, as the number that it is
_READ, _WRITE, _SAME = int(Access.READ), int(Access.WRITE), int(Access.SAME_WRITE)
_OUTSIDE, _NEGATIVE = number_of(FindingKind.OUT_OF_BOUNDS), number_of(FindingKind.NEGATIVE_INDEX)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, _HANDLE, *arguments)(engine.address(name))


@cache
def accesses() -> dict[str, Any]:
    """The functions that a changed text calls, by name: `load1`, `store1`, `load2`, `store2`, `memory`, `region`,
    `enter`. BuildError without a C compiler."""
    touch = _function("shadow_touch", _I32, _I32, _I64, _I32, _I32)
    within = _within(_function("shadow_note", None, _I32, _I32, _I32, _I32, _I32, _I64, _I64, _I64, _I64))
    return {
        **_loads(touch, within),
        **_stores(touch, within),
        "memory": _function("shadow_memory", _I32, _I64, _I32),
        "region": _function("shadow_region", None, _I32),
        "enter": _function("shadow_enter", None, _I64, _I32, _I32, _I32, _I32),
    }


def _within(note: Any) -> Any:
    @numba.njit
    def within(index, extent, axis, s, m, access, site, signed):  # type: ignore[no-untyped-def]
        """The index from the start of the axis, or -1; what is not 0 .. extent - 1 is noted."""
        if 0 <= index < extent:
            return index
        wraps = -extent <= index < 0
        if not (wraps and signed):
            note(s, _NEGATIVE if wraps else _OUTSIDE, m, access, site, -1, -1, index, axis, extent)
        return index + extent if wraps else -1

    return within


def _loads(touch: Any, within: Any) -> dict[str, Any]:
    @numba.njit
    def nothing(a):  # type: ignore[no-untyped-def]
        return np.zeros(1, a.dtype)[0]

    @numba.njit
    def load1(a, i, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _READ, site, signed)
        if i < 0:
            return nothing(a)
        touch(s, m, i, _READ, site)
        return a[i]

    @numba.njit
    def load2(a, i, j, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _READ, site, signed)
        j = within(np.int64(j), a.shape[1], 1, s, m, _READ, site, signed)
        if i < 0 or j < 0:
            return nothing(a)
        touch(s, m, i * a.shape[1] + j, _READ, site)
        return a[i, j]

    return {"load1": load1, "load2": load2}


def _stores(touch: Any, within: Any) -> dict[str, Any]:
    @numba.njit
    def put(a, at, value, cell, s, m, site):  # type: ignore[no-untyped-def]
        before = a[at]
        a[at] = value
        after = a[at]
        is_same = before == after or (before != before and after != after)  # noqa: PLR0124  NaN stays NaN
        touch(s, m, cell, _SAME if is_same else _WRITE, site)

    @numba.njit
    def store1(a, i, value, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _WRITE, site, signed)
        if i >= 0:
            put(a, i, value, i, s, m, site)

    @numba.njit
    def store2(a, i, j, value, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _WRITE, site, signed)
        j = within(np.int64(j), a.shape[1], 1, s, m, _WRITE, site, signed)
        if i >= 0 and j >= 0:
            put(a, (i, j), value, i * a.shape[1] + j, s, m, site)

    return {"store1": store1, "store2": store2}
