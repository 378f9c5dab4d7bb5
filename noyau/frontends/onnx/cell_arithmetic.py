"""Arithmetic of known cells: sums, quotients, comparisons, choices and reductions of Dims, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from noyau.dtypes import DType, from_onnx
from noyau.frontends.onnx.model_values import Contents
from noyau.frontends.onnx.sites import OnnxSite
from noyau.frontends.onnx.sizes import minimum
from noyau.ir.dims import Dim, equal, maximum, never_negative, product

_MOST_ROW = 1
_INTEGERS = (DType.I32, DType.I64)
Results: TypeAlias = "list[Contents] | None"


def all_known(site: OnnxSite) -> list[Contents] | None:
    operands = [site.contents(k) for k in range(len(site.inputs))]
    complete = [contents for contents in operands if contents is not None]
    return complete if operands and len(complete) == len(operands) else None


def _cellwise(
    function: Callable[..., Dim | None], *, result: DType | None = None, operands: slice = slice(None)
) -> Callable[[OnnxSite], Results]:
    """A function of cells, broadcast; `result` is the dtype where it is not that of the operands."""

    def call(site: OnnxSite) -> Results:
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

    return call


def _integer(function: Callable[..., Dim | None]) -> Callable[[OnnxSite], Results]:
    """A cellwise function of integers (bools have no sum)."""
    call = _cellwise(function)
    return lambda site: contents if (contents := call(site)) and contents[0].dtype in _INTEGERS else None


def _truth(function: Callable[[Dim, Dim], bool | None]) -> Callable[[OnnxSite], Results]:
    """A cellwise comparison, the answer of which may not be known."""
    return _cellwise(
        lambda a, b: None if (answer := function(a, b)) is None else Dim.of(int(answer)), result=DType.BOOL
    )


def _divide(left: Dim, right: Dim) -> Dim | None:
    """Division that truncates, which is floor division where nothing is negative."""
    a, b = left.constant, right.constant
    if a is not None and b:
        return Dim.of(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    return left // right if _is_positive(right) and never_negative(left) else None


def _is_positive(dim: Dim) -> bool:
    """Whether it is surely above 0; a size that is 0 divides nothing when the model runs."""
    return never_negative(dim) if dim.constant is None else dim.constant > 0


def _modulo(left: Dim, right: Dim) -> Dim | None:
    a, b = left.constant, right.constant
    if a is not None and b:
        return Dim.of(a % b)
    return left % right if _is_positive(right) and never_negative(left) else None


def _at_most(left: Dim, right: Dim) -> bool | None:
    if never_negative(right - left):
        return True
    return False if never_negative(left - right - 1) else None


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


def _reduction(function: Callable[[Sequence[Dim]], Dim]) -> Callable[[OnnxSite], Results]:
    def reduce(site: OnnxSite) -> Results:
        contents = site.contents(0)
        if contents is None or len(contents.shape) != 1 or not contents.dims or contents.dtype not in _INTEGERS:
            return None
        if site.has(1) and not site.integers(1, "the axes") and site.attribute("noop_with_empty_axes", 0):
            return [contents]
        shape = (1,) if site.attribute("keepdims", 1) == 1 else ()
        return [Contents((function(contents.dims),), shape, contents.dtype)]

    return reduce


CELL_ARITHMETIC: dict[str, Callable[[OnnxSite], Results]] = {
    "Abs": _integer(lambda a: a if never_negative(a) else -a if never_negative(-a) else None),
    "Add": _integer(lambda a, b: a + b),
    "And": _cellwise(lambda a, b: a * b),
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
    "Not": _cellwise(lambda a: 1 - a),
    "Or": _cellwise(lambda a, b: a + b - a * b),
    "ReduceMax": _reduction(lambda dims: reduce(maximum, dims)),
    "ReduceMin": _reduction(lambda dims: reduce(minimum, dims)),
    "ReduceProd": _reduction(product),
    "ReduceSum": _reduction(lambda dims: sum(dims, Dim.of(0))),
    "Sub": _integer(lambda a, b: a - b),
    "Where": _cellwise(_choose, operands=slice(1, None)),
}
