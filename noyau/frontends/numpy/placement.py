"""NumPy's functions that put cells at places: diagonals, pieces by conditions, the flat array, places as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.numpy_source import from_source
from noyau.frontends.numpy.reductions import array_of
from noyau.frontends.numpy.setitem import setitem
from noyau.frontends.numpy.shapes import diagonal, shape_given
from noyau.frontends.numpy.traced_array import ATTRIBUTES, FUNCTIONS, METHODS, UFUNCS, TracedArray, call, tape_of
from noyau.frontends.numpy.ufuncs import as_traced
from noyau.ir.dims import Dim, index_name


def _diag(v: Any, k: int = 0) -> Any:
    """np.diag: the diagonal of a matrix, or a matrix of which it is a vector."""
    v = array_of(v)
    if v.ndim == 2:
        return call("diagonal", v, k)
    if v.ndim != 1:
        raise ValueError("np.diag takes a vector or a matrix")  # NumPy's own, which np.corrcoef waits for
    square = where(_on_diagonal(v, (v.node.shape[0],) * 2, 0), v, np.zeros((), v.dtype))
    below, right = max(-k, 0), max(k, 0)
    return call("pad", square, ((below, right), (right, below))) if k else square


def _on_diagonal(v: TracedArray, shape: Sequence[Dim], k: int) -> Any:
    offset = v.tape.iota(Dim.of(index_name(1)) - Dim.of(index_name(0)), tuple(shape))
    return UFUNCS["equal"](TracedArray(v.tape, offset), k)


def _fill_diagonal(a: TracedArray, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal of matrices, by one number or by as many as it has."""
    if wrap or a.ndim != 2:
        raise UnsupportedError("np.fill_diagonal is traced for matrices, without wrap=")
    values = call("ravel", as_traced(a.tape, val)).astype(a.dtype)
    values = values[0] if values.node.shape == (Dim.of(1),) else values
    if values.ndim:
        count = diagonal(a).node.shape[0]
        a.tape.demand_at_most(count, values.node.shape[0])
        values = call("pad", values[: call("size", diagonal(a))], (0, a.shape[1] - call("size", diagonal(a))))
    FUNCTIONS["write"](a, where(_on_diagonal(a, a.node.shape, 0), values, a).node)


def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """np.piecewise: each function sees the cells that its condition picks; the last condition that holds counts."""
    x = as_traced(tape_of([x, condlist]), x)
    several = _is_array(condlist) and (not x.ndim or _is_array(condlist[0]))
    given = list(condlist) if several else [condlist]
    conditions = [as_traced(x.tape, each).astype(bool) for each in given]
    if len(conditions) == len(funclist) - 1:
        conditions.append(~call("any", call("stack", conditions), axis=0))
    if len(conditions) != len(funclist):
        raise UnsupportedError("np.piecewise takes a function for each condition, and one more for all other cells")
    cells = call("zeros_like", x)
    for condition, function in zip(conditions, funclist, strict=True):
        if not x.ndim:
            value = function(x, *args, **kw) if callable(function) else function
            cells = where(condition, as_traced(x.tape, value).astype(x.dtype), cells)
        else:
            setitem(cells, condition, function(x[condition], *args, **kw) if callable(function) else function)
    return cells


def _is_array(value: Any) -> bool:
    return isinstance(value, tuple | list) or (isinstance(value, TracedArray | np.ndarray) and value.ndim > 0)


def _flat(a: TracedArray) -> Any:
    """The array in C order, as one axis: whoever writes into it writes into the array."""
    return call("flat", a)


def _flat_copy(a: TracedArray) -> TracedArray:
    return TracedArray(a.tape, call("ravel", a).node)


def _put(a: TracedArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """np.put by places in C order."""
    if mode != "raise":
        raise UnsupportedError("np.put is traced without mode=")
    setitem(_flat(a), np.asarray(ind) if isinstance(ind, tuple | list) else ind, v)


def _put_along_axis(arr: TracedArray, indices: Any, values: Any, axis: Any) -> None:
    """np.put_along_axis: by NumPy's text along an axis, into all cells for None."""
    if axis is None:
        setitem(_flat(arr), indices, values)
    else:
        from_source("put_along_axis")(arr, indices, values, axis)


def _ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    """np.ravel_multi_index of places that are inside; NumPy refuses others."""
    shape = shape_given((dims,))
    tape = tape_of([multi_index, dims])
    if mode != "raise" or order not in ("C", "F"):
        raise UnsupportedError("np.ravel_multi_index is traced without mode=")
    pairs = list(zip([as_traced(tape, each) for each in multi_index], shape, strict=True))
    flat: Any = None
    for each, extent in pairs if order == "C" else pairs[::-1]:
        flat = each if flat is None else flat * extent + each
    return flat.astype(np.int64)


def _unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """np.unravel_index of places that are inside; NumPy refuses others."""
    rest: Any = as_traced(tape_of([indices, shape]), indices).astype(np.int64)
    positions, extents = [], shape_given((shape,))
    for extent in extents[::-1] if order == "C" else extents:
        positions.append(rest % extent)
        rest = rest // extent
    return tuple(positions[::-1] if order == "C" else positions)


FUNCTIONS.update(
    {
        "diag": _diag,
        "diagflat": lambda v, k=0: _diag(call("ravel", array_of(v)), k),
        "fill_diagonal": _fill_diagonal,
        "piecewise": _piecewise,
        "flat": _flat_copy,
        "put": _put,
        "put_along_axis": _put_along_axis,
        "ravel_multi_index": _ravel_multi_index,
        "unravel_index": _unravel_index,
    }
)
METHODS["put"] = _put
ATTRIBUTES["flat"] = _flat
ATTRIBUTES["imag"] = lambda a: call("imag", a)
