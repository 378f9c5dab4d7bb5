"""Searches in sorted cells, and what NumPy does by them: bins, interpolation, membership, histograms."""

from itertools import pairwise
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.creation import linspace
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.scopes import from_source
from noyau.frontends.numpy.setitem import fit
from noyau.frontends.numpy.shapes import shape_of
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, enter, tape_of
from noyau.frontends.numpy.traced_sizes import as_size
from noyau.frontends.numpy.ufuncs import as_traced, common_dtype
from noyau.ir.dims import indices
from noyau.ir.graph import Lookup
from noyau.ir.sizes import Size


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted by bisection, a step for each bit of the number of cells; NaN is larger than all numbers."""
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
    rounds = ((tape.settle(extent) if number is None else number) - 1).bit_length()
    tape.demand_at_most(extent, 2**rounds)
    lengths = [as_size(tape, (extent + (2**k - 1)) // 2**k) for k in range(rounds + 1)]
    for length, rest in pairwise(lengths):  # the place is among `length` cells from `at` on, or right behind them
        half = length - rest
        at = at + where(_is_before(clipped_lookup(a, at + (half - 1)), v, side), half, 0)
    return at + _is_before(clipped_lookup(a, at), v, side)


def _is_before(cell: Any, v: Any, side: str) -> Any:
    """Whether a cell stands before the place of `v`; NaN is larger than all numbers."""
    before = UFUNCS["less" if side == "left" else "less_equal"](cell, v)
    if cell.dtype.kind != "f":
        return before
    return before | (UFUNCS["isnan"](v) & ~UFUNCS["isnan"](cell) if side == "left" else UFUNCS["isnan"](v))


def clipped_lookup(a: TracedArray, at: Any) -> TracedArray:
    """Cells of a vector at indices that are clipped to its ends."""
    inside = UFUNCS["maximum"](UFUNCS["minimum"](at, a.shape[0] - 1), 0)
    index = (Lookup(1, indices(inside.ndim)),)
    return TracedArray(a.tape, a.tape.gather(index, [a.node, inside.node], inside.node.shape))


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize into known bins."""
    if isinstance(bins, TracedArray):
        raise UnsupportedError("np.digitize is traced for known bins; np.searchsorted is traced for any that increase")
    return from_source("digitize")(x, bins, right)


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp: linear between neighbours, constant beyond the ends, and exact at the given points."""
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
    """np.isin among known elements."""
    if not isinstance(element, TracedArray) or isinstance(test_elements, TracedArray):
        raise UnsupportedError("np.isin is traced for elements that are known; compare, and use np.any")
    elements = np.unique(np.asarray(test_elements))
    if {element.dtype.kind, elements.dtype.kind} <= {"i", "u"}:  # only those that its dtype can hold
        ends = np.iinfo(element.dtype)
        elements = elements[(elements >= ends.min) & (elements <= ends.max)].astype(element.dtype)
    if not elements.size:
        return call("full_like", element, bool(invert), dtype=bool)
    nearest = clipped_lookup(as_traced(element.tape, elements), searchsorted(elements, element))
    return UFUNCS["not_equal" if invert else "equal"](nearest, element)


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:  # noqa: A002
    """np.histogram: each cell within the edges counts in its bin; the last edge belongs to the last bin."""
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


def _bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> TracedArray:
    """np.bincount of integers below `minlength`. For larger ones NumPy's result is longer, and a kernel stops."""
    if isinstance(minlength, int | np.integer) and minlength < 1:
        raise UnsupportedError("np.bincount is traced with minlength=, below which all numbers are")
    tape = tape_of([x, weights, minlength])
    x = as_traced(tape, x)
    one = as_traced(tape, 1, DType.I64) if weights is None else as_traced(tape, weights, DType.F64)
    if x.ndim != 1 or x.dtype.kind not in "iub":
        raise UnsupportedError(f"np.bincount takes a vector of whole numbers, not {x.ndim} axes of {x.dtype}")
    counts, updates = tape.full(0, one.node.dtype, shape_of(minlength)), fit(tape, one.node, x.node.shape)
    operands = [counts, tape.cast(x.node, DType.I64), updates]
    return TracedArray(tape, tape.scatter((Lookup(1, indices(1)),), "sum", operands))


def _edges(a: TracedArray, bins: Any, limits: Any) -> Any:
    if limits is None and not a.tape.at_most(1, a.node.shape[0], usual=True):
        limits = (0, 1)
    low, high = (call("min", a), call("max", a)) if limits is None else limits
    dtype = common_dtype([low, high, a]).numpy
    dtype = dtype if dtype.kind == "f" else np.result_type(dtype, float)
    low, high = (as_traced(a.tape, each) for each in (low, high))
    alike = low == high
    low, high = (where(alike, end + by, end) for end, by in ((low, -0.5), (high, 0.5)))
    return linspace(a.tape, low, high, bins + 1, dtype=dtype)


enter(FUNCTIONS, searchsorted, _digitize, _interp, _isin, _histogram, _bincount)
