"""NumPy's functions of positions: diagonals, np.piecewise, flat indices, searches in sorted cells, histograms; and
functions that NumPy writes in Python, whose own source is traced (DEFINED)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.creation import linspace
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.reductions import array_of
from noyau.frontends.numpy.scopes import from_source
from noyau.frontends.numpy.setitem import fit, setitem
from noyau.frontends.numpy.shapes import diagonal, extents_of, offsets, shape_of
from noyau.frontends.numpy.traced_array import ATTRIBUTES, FUNCTIONS, METHODS, UFUNCS, TracedArray, call, enter, tape_of
from noyau.frontends.numpy.ufuncs import as_traced, common_dtype
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Lookup
from noyau.ir.sizes import Size


def _diag(v: Any, k: int = 0) -> Any:
    """np.diag: the diagonal of a matrix, or a matrix with a vector on its diagonal."""
    v = array_of(v)
    if v.ndim == 2:
        return call("diagonal", v, k)
    if v.ndim != 1:
        raise ValueError("np.diag takes a vector or a matrix")  # NumPy's own error, which np.corrcoef catches
    square = where(offsets(v.tape, (v.node.shape[0],) * 2) == 0, v, np.zeros((), v.dtype))
    below, right = max(-k, 0), max(k, 0)
    return call("pad", square, ((below, right), (right, below))) if k else square


def _fill_diagonal(a: TracedArray, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal of matrices, with one number or at least as many as the diagonal has."""
    if wrap or a.ndim != 2:
        raise UnsupportedError("np.fill_diagonal is traced for matrices, without wrap=")
    values = call("ravel", as_traced(a.tape, val)).astype(a.dtype)
    values = values[0] if values.node.shape == (Dim.of(1),) else values
    if values.ndim:
        a.tape.demand_at_most(diagonal(a).node.shape[0], values.node.shape[0])
        values = call("pad", values[: call("size", diagonal(a))], (0, a.shape[1] - call("size", diagonal(a))))
    FUNCTIONS["write"](a, where(offsets(a.tape, a.node.shape) == 0, values, a).node)


def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """np.piecewise: each function gets the cells that its condition selects; the last true condition wins."""
    x = as_traced(tape_of([x, condlist]), x)
    several = _is_array(condlist) and (not x.ndim or _is_array(condlist[0]))
    conditions = [as_traced(x.tape, each).astype(bool) for each in (condlist if several else [condlist])]
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


def _put(a: TracedArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """np.put by flat indices in C order."""
    if mode != "raise":
        raise UnsupportedError("np.put is traced without mode=")
    setitem(call("flat", a), np.asarray(ind) if isinstance(ind, tuple | list) else ind, v)


def _put_along_axis(arr: TracedArray, indices: Any, values: Any, axis: Any) -> None:
    """np.put_along_axis: by NumPy's source along an axis, into the flat array for None."""
    if axis is None:
        setitem(call("flat", arr), indices, values)
    else:
        from_source("put_along_axis")(arr, indices, values, axis)


def _ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    """np.ravel_multi_index of indices within `dims`; NumPy refuses others."""
    tape = tape_of([multi_index, dims])
    if mode != "raise" or order not in ("C", "F"):
        raise UnsupportedError("np.ravel_multi_index is traced without mode=")
    pairs = list(zip([as_traced(tape, each) for each in multi_index], extents_of((dims,)), strict=True))
    flat: Any = None
    for each, extent in pairs if order == "C" else pairs[::-1]:
        flat = each if flat is None else flat * extent + each
    return flat.astype(np.int64)


def _unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """np.unravel_index of indices within `shape`; NumPy refuses others."""
    rest: Any = as_traced(tape_of([indices, shape]), indices).astype(np.int64)
    positions, extents = [], extents_of((shape,))
    for extent in extents[::-1] if order == "C" else extents:
        positions.append(rest % extent)
        rest = rest // extent
    return tuple(positions[::-1] if order == "C" else positions)


DEFINED = """angle append apply_along_axis apply_over_axes atleast_1d atleast_2d atleast_3d block column_stack
convolve corrcoef cov cumulative_prod cumulative_sum diag_indices_from diagflat diff dsplit dstack ediff1d expand_dims
flip fliplr flipud geomspace hsplit hstack i0 iscomplex isreal isrealobj ix_ logspace moveaxis nan_to_num
nancumprod nancumsum nanprod nansum outer poly polyadd polyder polyint polysub polyval real_if_close
require rollaxis rot90 select sinc take_along_axis trapezoid tril_indices_from triu_indices_from unstack unwrap
vander vsplit vstack linalg.cross linalg.diagonal linalg.matmul linalg.matrix_norm linalg.matrix_power
linalg.multi_dot linalg.outer linalg.tensordot linalg.trace linalg.vector_norm""".split()


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
    bits = (tape.settle(extent) if number is None else number).bit_length()
    tape.demand_at_most(extent, 2**bits - 1)
    for half in (2**bit for bit in reversed(range(bits))):
        probe = at + (half - 1)
        cell = clipped_lookup(a, probe)
        before = _is_less(cell, v) if side == "left" else ~_is_less(v, cell)
        at = where(UFUNCS["less"](probe, a.shape[0]) & before, at + half, at)
    return at


def clipped_lookup(a: TracedArray, at: Any) -> TracedArray:
    """Cells of a vector at indices that are clipped to its ends."""
    inside = UFUNCS["maximum"](UFUNCS["minimum"](at, a.shape[0] - 1), 0)
    index = (Lookup(1, indices(inside.ndim)),)
    return TracedArray(a.tape, a.tape.gather(index, [a.node, inside.node], inside.node.shape))


def _is_less(a: Any, b: Any) -> Any:
    less = UFUNCS["less"](a, b)
    return less | (UFUNCS["isnan"](b) & ~UFUNCS["isnan"](a)) if a.dtype.kind == "f" else less


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


enter(FUNCTIONS, _diag, _fill_diagonal, _piecewise, _put, _put_along_axis, _ravel_multi_index, _unravel_index)
enter(FUNCTIONS, searchsorted, _digitize, _interp, _isin, _histogram, _bincount)
FUNCTIONS.update({name: from_source(name) for name in DEFINED})
FUNCTIONS["flat"] = lambda a: TracedArray(a.tape, call("ravel", a).node)
FUNCTIONS["imag"] = lambda val: call("zeros_like", array_of(val))
METHODS["put"] = _put
# Writes into `flat` are writes into the array.
ATTRIBUTES.update({name: partial(call, name) for name in ("flat", "imag", "real")})
ATTRIBUTES |= {"T": partial(call, "transpose"), "mT": partial(call, "matrix_transpose")}
ATTRIBUTES |= {"itemsize": lambda a: a.dtype.itemsize, "nbytes": lambda a: a.size * a.dtype.itemsize}
