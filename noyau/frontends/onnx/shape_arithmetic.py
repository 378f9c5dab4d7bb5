"""Constant folding of integer shape arithmetic with Dims as cells: Shape, Gather, Concat, Mul... of known cells,
and arithmetic, comparisons, choices and reductions of such cells.

A function returns the contents of the site's outputs, or None where they are not known."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np

from noyau.dtypes import DType, from_numpy, from_onnx
from noyau.frontends.onnx.creation import constant_array
from noyau.frontends.onnx.model_values import Contents
from noyau.frontends.onnx.sites import OnnxSite
from noyau.frontends.onnx.sizes import light, minimum
from noyau.ir.dims import Dim, equal, maximum, never_negative, product

_MOST_ROW = 1
_INTEGERS = (DType.I32, DType.I64)
Results: TypeAlias = "list[Contents] | None"
_MOST_CELLS = 256


def all_known(site: OnnxSite) -> list[Contents] | None:
    operands = [site.contents(k) for k in range(len(site.inputs))]
    complete = [contents for contents in operands if contents is not None]
    return complete if operands and len(complete) == len(operands) else None


def _cellwise(
    function: Callable[..., Dim | None], site: OnnxSite, *, result: DType | None = None, operands: slice = slice(None)
) -> Results:
    """Apply a function to broadcast cells. `result`: the dtype, if not that of `operands`, which share one dtype."""
    known = all_known(site)
    if known is None or len({contents.dtype for contents in known[operands]}) != 1:
        return None
    arrays = np.broadcast_arrays(*(contents.cells for contents in known))
    if arrays[0].size > max(_MOST_ROW, *(len(contents.dims) for contents in known)):  # a table is no shape
        return None
    cells = [function(*cell) for cell in zip(*(array.flat for array in arrays), strict=True)]
    complete = tuple(cell for cell in cells if cell is not None)
    dtype = result or known[operands][0].dtype
    return [Contents(complete, arrays[0].shape, dtype)] if len(complete) == len(cells) else None


def _integer(function: Callable[..., Dim | None]) -> Callable[[OnnxSite], Results]:
    """A cellwise function of integers (bools have no sum)."""
    return lambda site: known if (known := _cellwise(function, site)) and known[0].dtype in _INTEGERS else None


def _truth(function: Callable[[Dim, Dim], bool | None]) -> Callable[[OnnxSite], Results]:
    """A cellwise comparison whose answer may be unknown."""
    return partial(
        _cellwise, lambda a, b: None if (answer := function(a, b)) is None else Dim.of(int(answer)), result=DType.BOOL
    )


def _divide(left: Dim, right: Dim) -> Dim | None:
    """Division that truncates, which is floor division where nothing is negative."""
    a, b = left.constant, right.constant
    if a is not None and b:
        return Dim.of(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    return left // right if _is_positive(right) and never_negative(left) else None


def _is_positive(dim: Dim) -> bool:
    """Whether a divisor is surely above 0; a symbolic one need only be at least 0, since no valid run divides by 0."""
    return never_negative(dim) if dim.constant is None else dim.constant > 0


def _modulo(left: Dim, right: Dim) -> Dim | None:
    a, b = left.constant, right.constant
    if a is not None and b:
        return Dim.of(a % b)
    return left % right if _is_positive(right) and never_negative(left) else None


def _at_most(left: Dim, right: Dim) -> bool | None:
    return True if never_negative(right - left) else False if never_negative(left - right - 1) else None


def _choose(condition: Dim, left: Dim, right: Dim) -> Dim | None:
    if left == right:
        return left
    return None if condition.constant is None else left if condition.constant else right


def _cast(site: OnnxSite, dtype: DType | None) -> Results:
    contents = site.contents(0)
    if contents is None or dtype is None or dtype.kind not in ("int", "uint", "bool"):
        return None
    if contents.integers is not None:
        cells = np.array(contents.integers).astype(dtype.numpy)
        return [Contents(tuple(Dim.of(int(cell)) for cell in cells), contents.shape, dtype)]
    return [Contents(contents.dims, contents.shape, dtype)] if dtype in (DType.I32, DType.I64) else None


def _reduction(function: Callable[[Sequence[Dim]], Dim], site: OnnxSite) -> Results:
    contents = site.contents(0)
    if contents is None or len(contents.shape) != 1 or not contents.dims or contents.dtype not in _INTEGERS:
        return None
    if site.has(1) and not site.integers(1, "the axes") and site.attribute("noop_with_empty_axes", 0):
        return [contents]
    return [Contents((function(contents.dims),), (1,) if site.attribute("keepdims", 1) == 1 else (), contents.dtype)]


def shape_arithmetic(site: OnnxSite) -> Results:
    """The contents of a node's outputs, or None if it is no shape arithmetic."""
    function = ARITHMETIC.get(site.op)
    try:
        results = function(site) if function else None
    except (ValueError, IndexError):  # of NumPy, where the cells do not fit; the operator's importer names the reason
        return None
    useful = results and all(len(contents.dims) <= _MOST_CELLS and light(contents.dims) for contents in results)
    return results if useful else None


def constant_contents(array: np.ndarray, dtype: DType | None) -> Contents | None:
    """The contents of a small integer or bool array."""
    if dtype is None or dtype.kind not in ("int", "uint", "bool") or array.size > _MOST_CELLS:
        return None
    return Contents(tuple(Dim.of(int(cell)) for cell in array.flat), array.shape, dtype)


def _contents_of(cells: Any, dtype: DType) -> Contents:
    """The Contents of an array of Dims."""
    array = np.asarray(cells, dtype=object)
    return Contents(tuple(array.flat), array.shape, dtype)


def _move(function: Callable[[OnnxSite, np.ndarray], np.ndarray | None], site: OnnxSite) -> Results:
    """An operator that only moves the cells of its first input."""
    contents = site.contents(0)
    cells = None if contents is None else function(site, contents.cells)
    return None if contents is None or cells is None else [_contents_of(cells, contents.dtype)]


def _dims_of(site: OnnxSite) -> tuple[Dim, ...]:
    """The shape of the first input, without a node for its contents."""
    contents = site.contents(0)
    return site.input().shape if contents is None else contents.extents


def _shape(site: OnnxSite) -> Results:
    dims = _dims_of(site)
    dims = dims[site.attribute("start", 0) : site.attribute("end", len(dims))]
    return [Contents(dims, (len(dims),), DType.I64)]


def _gather(site: OnnxSite) -> Results:
    table, at = site.contents(0), site.contents(1)
    if table is None or at is None or at.integers is None or not table.shape:
        return None
    places = np.array(at.integers, np.int64).reshape(at.shape)
    return [_contents_of(np.take(table.cells, places, site.attribute("axis", 0)), table.dtype)]


def _slice(site: OnnxSite, cells: np.ndarray) -> np.ndarray | None:
    operands = (site.contents(k) for k in range(1, len(site.inputs)) if site.has(k))
    if len(site.inputs) < 3 or any(each is None or each.integers is None for each in operands):
        return None
    starts, ends = site.integers(1, "the starts"), site.integers(2, "the ends")
    axes = site.integers(3, "the axes") if site.has(3) else tuple(range(len(starts)))
    steps = site.integers(4, "the steps") if site.has(4) else (1,) * len(starts)
    index = [slice(None)] * cells.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    return cells[tuple(index)]


def _concat(site: OnnxSite) -> Results:
    pieces = all_known(site)
    if pieces is None or len({contents.dtype for contents in pieces}) != 1:
        return None
    cells = np.concatenate([contents.cells for contents in pieces], site.attribute("axis", 0))
    return [_contents_of(cells, pieces[0].dtype)]


def _reshape(site: OnnxSite, cells: np.ndarray) -> np.ndarray | None:
    target = site.contents(1)
    if target is None or target.integers is None:
        return None
    keep = site.attribute("allowzero", 0)
    return cells.reshape([cells.shape[k] if n == 0 and not keep else n for k, n in enumerate(target.integers)])


def _split(site: OnnxSite) -> Results:
    contents, count = site.contents(0), len(site.outputs)
    if contents is None or len(contents.shape) != 1 or not count:
        return None
    total, chunk = len(contents.dims), -(-len(contents.dims) // count)
    even = (chunk,) * (count - 1) + (total - chunk * (count - 1),)
    lengths = site.integers(1, "the lengths") if site.has(1) else even
    if sum(lengths) != total or min(lengths) < 0 or len(lengths) != count:
        return None
    ends = np.cumsum(lengths)
    return [_contents_of(contents.cells[end - n : end], contents.dtype) for end, n in zip(ends, lengths, strict=True)]


def _constant_results(array: np.ndarray) -> Results:
    contents = constant_contents(array, from_numpy(array.dtype))
    return None if contents is None else [contents]


def _extents(site: OnnxSite, position: int) -> tuple[int, ...] | None:
    """Constant extents of a scalar or a small vector."""
    target = site.contents(position)
    extents = None if target is None else target.integers
    is_small = extents is not None and len(extents) <= 1 and 0 <= min(extents, default=0) <= _MOST_CELLS
    return extents if is_small else None


def _constant_of_shape(site: OnnxSite) -> Results:
    extents, value = _extents(site, 0), site.attribute("value", None)
    if extents is None or not isinstance(value, np.ndarray) or value.size != 1:
        return None
    return _constant_results(np.full(extents, value.flat[0], value.dtype))


def _expand(site: OnnxSite, cells: np.ndarray) -> np.ndarray | None:
    extents = _extents(site, 1)
    return None if extents is None else np.broadcast_to(cells, np.broadcast_shapes(cells.shape, extents))


def _range(site: OnnxSite) -> Results:
    bounds = all_known(site)
    if bounds is None or any(contents.integers is None for contents in bounds):
        return None
    start, end, step = (contents.dims[0].constant or 0 for contents in bounds)
    if not step or abs((end - start) // step) > _MOST_CELLS:
        return None
    cells = tuple(Dim.of(k) for k in range(start, end, step))
    return [Contents(cells, (len(cells),), bounds[0].dtype)]


ARITHMETIC: dict[str, Callable[[OnnxSite], Results]] = {
    "Abs": _integer(lambda a: a if never_negative(a) else -a if never_negative(-a) else None),
    "Add": _integer(lambda a, b: a + b),
    "And": partial(_cellwise, lambda a, b: a * b),
    "Cast": lambda site: _cast(site, from_onnx(site.attribute("to", 0))),
    "CastLike": lambda site: _cast(site, site.input(1).dtype if site.has(1) else None),
    "Div": _integer(_divide),
    "Equal": _truth(equal),
    "Greater": _truth(lambda a, b: _at_most(b, a - 1)),
    "GreaterOrEqual": _truth(lambda a, b: _at_most(b, a)),
    "Less": _truth(lambda a, b: _at_most(a, b - 1)),
    "LessOrEqual": _truth(_at_most),
    "Max": _integer(lambda *cells: reduce(maximum, cells)),
    "Min": _integer(lambda *cells: reduce(minimum, cells)),
    "Mod": lambda site: None if site.attribute("fmod", 0) == 1 else _integer(_modulo)(site),
    "Mul": _integer(lambda a, b: a * b),
    "Neg": _integer(lambda a: -a),
    "Not": partial(_cellwise, lambda a: 1 - a),
    "Or": partial(_cellwise, lambda a, b: a + b - a * b),
    "ReduceMax": partial(_reduction, lambda dims: reduce(maximum, dims)),
    "ReduceMin": partial(_reduction, lambda dims: reduce(minimum, dims)),
    "ReduceProd": partial(_reduction, product),
    "ReduceSum": partial(_reduction, lambda dims: sum(dims, Dim.of(0))),
    "Sub": _integer(lambda a, b: a - b),
    "Where": partial(_cellwise, _choose, operands=slice(1, None)),
    "Concat": _concat,
    "Constant": lambda site: _constant_results(constant_array(site)),
    "ConstantOfShape": _constant_of_shape,
    "Expand": partial(_move, _expand),
    "Gather": _gather,
    "Identity": partial(_move, lambda site, cells: cells),
    "Range": _range,
    "Reshape": partial(_move, _reshape),
    "Shape": _shape,
    "Size": lambda site: [Contents((product(_dims_of(site)),), (), DType.I64)],
    "Slice": partial(_move, _slice),
    "Split": _split,
    "Squeeze": partial(
        _move, lambda site, cells: np.squeeze(cells, site.integers(1, "the axes") if site.has(1) else None)
    ),
    "Transpose": partial(_move, lambda site, cells: np.transpose(cells, site.attributes.get("perm"))),
    "Unsqueeze": partial(_move, lambda site, cells: np.expand_dims(cells, site.integers(1, "the axes"))),
}
