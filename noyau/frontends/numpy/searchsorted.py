"""Places among cells that lie in order, found by halving: what looks values up in a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.concatenation import common_dtype
from noyau.frontends.numpy.creation import linspace
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, tape_of
from noyau.frontends.numpy.ufuncs import as_traced
from noyau.ir.dims import indices
from noyau.ir.graph import Lookup
from noyau.ir.sizes import Size


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted in as many steps as the number of cells has bits; NaN lies behind all numbers."""
    if side not in ("left", "right"):
        raise UnsupportedError(f"np.searchsorted takes side='left' or 'right', not {side!r}")
    tape = tape_of([a, v, sorter])
    a, v = as_traced(tape, a), as_traced(tape, v)
    if a.ndim != 1:
        raise UnsupportedError("np.searchsorted looks into a vector")
    a = a if sorter is None else call("take", a, sorter)
    common = common_dtype([a, v]).numpy
    a, v, extent = a.astype(common), v.astype(common), a.node.shape[0]
    at: Any = TracedArray(tape, tape.full(0, DType.I64, v.node.shape))
    if not tape.at_most(1, extent, usual=True):
        return at
    number = tape.number_of(extent)
    bits = (tape.settle(extent) if number is None else number).bit_length()
    tape.demand_at_most(extent, 2**bits - 1)
    for half in (2**bit for bit in reversed(range(bits))):
        probe = at + (half - 1)
        cell = clipped_lookup(a, probe)
        before = _is_less(cell, v) if side == "left" else ~_is_less(v, cell)
        inside = UFUNCS["less"](probe, a.shape[0])
        at = where(inside & before, at + half, at)
    return at


def clipped_lookup(a: TracedArray, at: Any) -> TracedArray:
    """Cells of a vector, at places that are drawn to its ends where they are beyond."""
    inside = UFUNCS["maximum"](UFUNCS["minimum"](at, a.shape[0] - 1), 0)
    index = (Lookup(1, indices(inside.ndim)),)
    return TracedArray(a.tape, a.tape.gather(index, [a.node, inside.node], inside.node.shape))


def _is_less(a: Any, b: Any) -> Any:
    less = UFUNCS["less"](a, b)
    return less | (UFUNCS["isnan"](b) & ~UFUNCS["isnan"](a)) if a.dtype.kind == "f" else less


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize into bins that are known."""
    if isinstance(bins, TracedArray):
        raise UnsupportedError("np.digitize is traced for bins that are known; np.searchsorted is for any that grow")
    edges = np.asarray(bins)
    if edges.size and (np.diff(edges) < 0).any():
        if (np.diff(edges) > 0).any():
            raise UnsupportedError("np.digitize takes bins that grow or fall")
        return edges.size - searchsorted(edges[::-1], x, side="right" if not right else "left")
    return searchsorted(edges, x, side="left" if right else "right")


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp: a line between neighbours, the ends beyond them; at a neighbour its very value."""
    if period is not None:
        raise UnsupportedError("np.interp is traced without period=, with which it sorts")
    tape = tape_of([x, xp, fp, left, right])
    x, xp, fp = (as_traced(tape, each).astype(np.float64) for each in (x, xp, fp))
    tape.demand_equal(xp.node.shape[0], fp.node.shape[0])
    tape.demand_at_most(1, xp.node.shape[0])
    at = searchsorted(xp, x, side="right") - 1
    (x0, y0), (x1, y1) = ((clipped_lookup(xp, k), clipped_lookup(fp, k)) for k in (at, at + 1))
    slope = (y1 - y0) / (x1 - x0)
    line: Any = slope * (x - x0) + y0
    line = where(UFUNCS["isnan"](line), slope * (x - x1) + y1, line)
    line = where(UFUNCS["isnan"](line) & (y0 == y1), y0, line)
    line = where((x0 == x) | (at == xp.shape[0] - 1), y0, line)
    line = where(x > xp[-1], fp[-1] if right is None else as_traced(tape, right).astype(np.float64), line)
    line = where(x < xp[0], fp[0] if left is None else as_traced(tape, left).astype(np.float64), line)
    return where(UFUNCS["isnan"](x), x, line) if tape.at_most(2, xp.node.shape[0], usual=True) else line


def _isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, kind: Any = None) -> Any:
    """np.isin among elements that are known."""
    if not isinstance(element, TracedArray) or isinstance(test_elements, TracedArray):
        raise UnsupportedError("np.isin is traced for elements that are known; compare, and use np.any")
    elements = np.unique(np.asarray(test_elements))
    if {element.dtype.kind, elements.dtype.kind} <= {"i", "u"}:  # of those that its dtype has
        ends = np.iinfo(element.dtype)
        elements = elements[(elements >= ends.min) & (elements <= ends.max)].astype(element.dtype)
    if not elements.size:
        return call("full_like", element, bool(invert), dtype=bool)
    nearest = clipped_lookup(as_traced(element.tape, elements), searchsorted(elements, element))
    return UFUNCS["not_equal" if invert else "equal"](nearest, element)


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:  # noqa: A002
    """np.histogram: each cell is counted where it lies between edges, the last of which belongs to its bin."""
    if isinstance(bins, str):
        raise UnsupportedError("np.histogram is traced for a number of bins, or their edges")
    tape = tape_of([a, bins, range, weights])
    a = call("ravel", as_traced(tape, a))
    edges: Any = _edges(a, bins, range) if isinstance(bins, int | np.integer | Size) else as_traced(tape, bins)
    a.tape.demand_at_most(2, edges.node.shape[0])
    keep, last = (a >= edges[0]) & (a <= edges[-1]), edges.shape[0] - 2
    at = where(a == edges[-1], last, searchsorted(edges, a, side="right") - 1)
    one = np.int64(1) if weights is None else call("ravel", as_traced(tape, weights))
    counts = call("zeros_like", edges[1:], dtype=one.dtype)
    UFUNCS["add.at"](counts, where(keep, at, 0), where(keep, one, np.zeros((), one.dtype)))
    if density:
        return counts / call("diff", edges).astype(np.float64) / counts.sum(), edges
    return counts, edges


def _edges(a: TracedArray, bins: Any, limits: Any) -> Any:
    """Edges of bins of one width."""
    if limits is None and not a.tape.at_most(1, a.node.shape[0], usual=True):
        limits = (0, 1)
    low, high = (call("min", a), call("max", a)) if limits is None else limits
    dtype = common_dtype([low, high, a]).numpy
    dtype = dtype if dtype.kind == "f" else np.result_type(dtype, float)
    low, high = (as_traced(a.tape, each) for each in (low, high))
    alike = low == high
    low, high = (where(alike, end + by, end) for end, by in ((low, -0.5), (high, 0.5)))
    return linspace(a.tape, low, high, bins + 1, dtype=dtype)


FUNCTIONS.update(
    {"searchsorted": searchsorted, "digitize": _digitize, "interp": _interp, "isin": _isin, "histogram": _histogram}
)
