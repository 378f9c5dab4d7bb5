"""Integer shape arithmetic: what Shape, Gather, Concat, Mul... of known cells give, as Dims.

A function takes the contents of the inputs it reads and gives those of the outputs, or None where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.frontends.onnx.cell_arithmetic import CELL_ARITHMETIC, Results, all_known
from noyau.frontends.onnx.creation import constant_array
from noyau.frontends.onnx.model_values import Contents
from noyau.frontends.onnx.sites import OnnxSite
from noyau.frontends.onnx.sizes import light
from noyau.ir.dims import Dim, product

_MOST_CELLS = 256


def shape_arithmetic(site: OnnxSite) -> Results:
    """The contents of a node's outputs, or None where it is no shape arithmetic."""
    function = ARITHMETIC.get(site.op)
    try:
        results = function(site) if function else None
    except (ValueError, IndexError):  # NumPy's, where the cells do not fit; the operator itself then says why
        return None
    useful = results and all(len(contents.dims) <= _MOST_CELLS and light(contents.dims) for contents in results)
    return results if useful else None


def constant_contents(array: np.ndarray, dtype: DType | None) -> Contents | None:
    """The contents of a small integer or bool array."""
    if dtype is None or dtype.kind not in ("int", "uint", "bool") or array.size > _MOST_CELLS:
        return None
    return Contents(tuple(Dim.of(int(cell)) for cell in array.flat), array.shape, dtype)


def _contents_of(cells: Any, dtype: DType) -> Contents:
    """The contents that are the cells of an array of Dims."""
    array = np.asarray(cells, dtype=object)
    return Contents(tuple(array.flat), array.shape, dtype)


def _move(function: Callable[[OnnxSite, np.ndarray], np.ndarray | None]) -> Callable[[OnnxSite], Results]:
    """An operator that only moves the cells of its first input."""

    def call(site: OnnxSite) -> Results:
        contents = site.contents(0)
        cells = None if contents is None else function(site, contents.cells)
        return None if contents is None or cells is None else [_contents_of(cells, contents.dtype)]

    return call


def _dims_of(site: OnnxSite) -> tuple[Dim, ...]:
    """The shape of the first input, without making a node of it."""
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
    operands = [site.contents(k) for k in range(1, len(site.inputs)) if site.has(k)]
    numbers = [contents.integers for contents in operands if contents is not None]
    if len(numbers) != len(operands) or None in numbers or len(site.inputs) < 3:
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
    extents = [cells.shape[k] if n == 0 and not keep else n for k, n in enumerate(target.integers)]
    return cells.reshape(extents)


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


def _known(array: np.ndarray) -> Results:
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
    return _known(np.full(extents, value.flat[0], value.dtype))


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
    **CELL_ARITHMETIC,
    "Concat": _concat,
    "Constant": lambda site: _known(constant_array(site)),
    "ConstantOfShape": _constant_of_shape,
    "Expand": _move(_expand),
    "Gather": _gather,
    "Identity": _move(lambda site, cells: cells),
    "Range": _range,
    "Reshape": _move(_reshape),
    "Shape": _shape,
    "Size": lambda site: [Contents((product(_dims_of(site)),), (), DType.I64)],
    "Slice": _move(_slice),
    "Split": _split,
    "Squeeze": _move(lambda site, cells: np.squeeze(cells, site.integers(1, "the axes") if site.has(1) else None)),
    "Transpose": _move(lambda site, cells: np.transpose(cells, site.attributes.get("perm"))),
    "Unsqueeze": _move(lambda site, cells: np.expand_dims(cells, site.integers(1, "the axes"))),
}
