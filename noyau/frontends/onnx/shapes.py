"""Integer shape arithmetic: what Shape, Gather, Concat, Mul... of known cells give, as Dims.

A function takes the contents of the inputs it reads and gives those of the outputs, or None where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from noyau.dtypes import DType, from_numpy, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.building import Contents, light
from noyau.frontends.onnx.indexing import constant_array, minimum, sliced
from noyau.frontends.onnx.sites import Site
from noyau.ir.dims import Dim, equal, maximum, never_negative, product

_MOST_CELLS = 256
Results = list[Contents] | None


def shape_arithmetic(site: Site) -> Results:
    """The contents of a node's outputs, or None where it is no shape arithmetic."""
    function = ARITHMETIC.get(site.op)
    found = function(site) if function else None
    useful = found and all(len(contents.dims) <= _MOST_CELLS and light(contents.dims) for contents in found)
    return found if useful else None


def constant_contents(array: np.ndarray, dtype: DType | None) -> Contents | None:
    """The contents of a small integer or bool array of rank 0 or 1."""
    if dtype is None or dtype.kind not in ("int", "uint", "bool") or array.ndim > 1 or array.size > _MOST_CELLS:
        return None
    return Contents(tuple(Dim.of(int(cell)) for cell in array.flat), array.ndim, dtype)


def _all_known(site: Site) -> list[Contents] | None:
    found = [site.contents(k) for k in range(len(site.inputs))]
    return [contents for contents in found if contents is not None] if found and None not in found else None


def _dims_of(site: Site) -> tuple[Dim, ...] | None:
    """The shape of the first input, without making a node of it."""
    contents = site.contents(0)
    if contents is not None:
        return contents.shape
    return site.input().shape


def _shape(site: Site) -> Results:
    dims = _dims_of(site)
    if dims is None:
        return None
    return [_vector(dims[site.attribute("start", 0) : site.attribute("end", len(dims))], DType.I64)]


def _size(site: Site) -> Results:
    dims = _dims_of(site)
    return None if dims is None else [_scalar(product(dims), DType.I64)]


def _vector(dims: Sequence[Dim], dtype: DType) -> Contents:
    return Contents(tuple(dims), 1, dtype)


def _scalar(dim: Dim, dtype: DType) -> Contents:
    return Contents((dim,), 0, dtype)


def _cellwise(
    function: Callable[..., Dim | None], *, result: DType | None = None, operands: slice = slice(None)
) -> Callable[[Site], Results]:
    """A function of cells, broadcast; `result` is the dtype where it is not that of the operands."""

    def call(site: Site) -> Results:
        known = _all_known(site)
        if known is None or len({contents.dtype for contents in known[operands]}) != 1:
            return None
        count = max((len(c.dims) for c in known if len(c.dims) != 1), default=1)
        if any(len(contents.dims) not in (1, count) for contents in known):
            return None
        columns = [contents.dims * count if len(contents.dims) == 1 else contents.dims for contents in known]
        cells = [function(*cell) for cell in zip(*columns, strict=True)]
        if any(cell is None for cell in cells):
            return None
        rank = max(contents.rank for contents in known)
        dtype = result or known[operands][0].dtype
        return [Contents(tuple(cell for cell in cells if cell is not None), rank, dtype)]

    return call


def _integer(function: Callable[..., Dim | None]) -> Callable[[Site], Results]:
    """A cellwise function of integers (bools have no sum)."""
    call = _cellwise(function)

    def checked(site: Site) -> Results:
        found = call(site)
        return found if found and found[0].dtype in (DType.I32, DType.I64) else None

    return checked


def _divide(left: Dim, right: Dim) -> Dim | None:
    """Division that truncates, which is floor division where nothing is negative."""
    a, b = left.constant, right.constant
    if a is not None and b:
        return Dim.of(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    positive = (b is not None and b > 0) or (b is None and never_negative(right))
    return left // right if positive and never_negative(left) else None


def _modulo_of(site: Site) -> Results:
    return None if site.attribute("fmod", 0) else _integer(_modulo)(site)


def _modulo(left: Dim, right: Dim) -> Dim | None:
    a, b = left.constant, right.constant
    if a is not None and b:
        return Dim.of(a % b)
    return left % right if never_negative(left) and ((b or 0) > 0 or (b is None and never_negative(right))) else None


def _fold(function: Callable[[Dim, Dim], Dim]) -> Callable[..., Dim]:
    def fold(*cells: Dim) -> Dim:
        result = cells[0]
        for cell in cells[1:]:
            result = function(result, cell)
        return result

    return fold


def _truth(value: bool | None) -> Dim | None:
    return None if value is None else Dim.of(int(value))


def _less(left: Dim, right: Dim) -> bool | None:
    if never_negative(right - left - 1):
        return True
    return False if never_negative(left - right) else None


def _not(value: Dim) -> Dim:
    return 1 - value


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _choose(condition: Dim, left: Dim, right: Dim) -> Dim | None:
    if left == right:
        return left
    return None if condition.constant is None else left if condition.constant else right


def _abs(value: Dim) -> Dim | None:
    return value if never_negative(value) else -value if never_negative(-value) else None


def _cast(site: Site) -> Results:
    known, dtype = _all_known(site), from_onnx(site.attribute("to", 0))
    return None if known is None or dtype is None else _cast_to(known[0], dtype)


def _cast_to(known: Contents, dtype: DType) -> Results:
    if dtype.kind not in ("int", "uint", "bool"):
        return None
    if known.integers is not None:
        cells = np.array(known.integers).astype(dtype.numpy)
        return [Contents(tuple(Dim.of(int(cell)) for cell in cells), known.rank, dtype)]
    return [Contents(known.dims, known.rank, dtype)] if dtype in (DType.I32, DType.I64) else None


def _cast_like(site: Site) -> Results:
    known = site.contents(0)
    return None if known is None or not site.has(1) else _cast_to(known, site.input(1).dtype)


def _identity(site: Site) -> Results:
    known = _all_known(site)
    return None if known is None else [known[0]]


def _gather(site: Site) -> Results:
    table, at = site.contents(0), site.contents(1)
    if table is None or at is None or at.integers is None or not table.rank:
        return None
    count = len(table.dims)
    if any(not -count <= k < count for k in at.integers):
        raise UnsupportedError("Gather looks outside its table")
    return [Contents(tuple(table.dims[k] for k in at.integers), at.rank, table.dtype)]


def _slice(site: Site) -> Results:
    known = _all_known(site)
    if known is None or len(known) < 3 or any(contents.integers is None for contents in known[1:]):
        return None
    numbers = [contents.integers or () for contents in known[1:]]
    step = numbers[3][0] if len(numbers) > 3 and numbers[3] else 1
    if not numbers[0] or not numbers[1] or not step or not known[0].rank:
        return None
    first, length = sliced(Dim.of(len(known[0].dims)), numbers[0][0], numbers[1][0], step)
    at, count = first.constant or 0, length.constant or 0
    return [_vector([known[0].dims[at + k * step] for k in range(count)], known[0].dtype)]


def _concat(site: Site) -> Results:
    known = _all_known(site)
    if known is None or any(contents.rank != 1 for contents in known):
        return None
    return [_vector([dim for contents in known for dim in contents.dims], known[0].dtype)]


def _squeeze(site: Site) -> Results:
    known = site.contents(0)
    if known is None or known.rank != 1 or len(known.dims) != 1:
        return None
    keeps = site.has(1) and site.integers(1, "the axes") == ()
    return [known if keeps else _scalar(known.dims[0], known.dtype)]


def _unsqueeze(site: Site) -> Results:
    known, axes = site.contents(0), site.contents(1)
    if known is None or axes is None or known.rank or len(axes.dims) != 1:
        return None
    return [_vector(known.dims, known.dtype)]


def _reshape(site: Site) -> Results:
    known, target = site.contents(0), site.contents(1)
    if known is None or target is None or target.integers is None or len(target.dims) > 1:
        return None
    fits = target.integers in ((), (-1,), (len(known.dims),)) and (target.integers or len(known.dims) == 1)
    return [Contents(known.dims, len(target.dims), known.dtype)] if fits else None


def _split(site: Site) -> Results:
    known = site.contents(0)
    if known is None or known.rank != 1 or not site.outputs:
        return None
    count, total = len(site.outputs), len(known.dims)
    chunk = -(-total // count)
    even = (chunk,) * (count - 1) + (total - chunk * (count - 1),)
    lengths = site.integers(1, "the lengths") if site.has(1) else even
    if sum(lengths) != total or min(lengths) < 0 or len(lengths) != count:
        return None
    ends = np.cumsum(lengths)
    return [_vector(known.dims[end - n : end], known.dtype) for end, n in zip(ends, lengths, strict=True)]


def _constant(site: Site) -> Results:
    array = constant_array(site)
    known = constant_contents(array, from_numpy(array.dtype))
    return None if known is None else [known]


def _constant_of_shape(site: Site) -> Results:
    target, value = site.contents(0), site.attribute("value", None)
    if target is None or target.integers is None or len(target.dims) > 1:
        return None
    if not isinstance(value, np.ndarray) or value.size != 1:
        return None
    count = target.integers[0] if target.integers else 1
    if not 0 <= count <= _MOST_CELLS:
        return None
    filled = constant_contents(np.repeat(value.reshape(-1), count), from_numpy(value.dtype))
    return None if filled is None else [Contents(filled.dims, len(target.dims), filled.dtype)]


def _expand(site: Site) -> Results:
    known, target = site.contents(0), site.contents(1)
    if known is None or target is None or target.integers is None or len(target.dims) > 1:
        return None
    count, rank = len(known.dims), max(known.rank, len(target.dims))
    wanted = target.integers[0] if target.integers else 1
    if wanted == 1 or wanted == count:
        return [Contents(known.dims, rank, known.dtype)]
    return [Contents(known.dims * wanted, rank, known.dtype)] if count == 1 and 0 <= wanted <= _MOST_CELLS else None


def _range(site: Site) -> Results:
    known = _all_known(site)
    if known is None or any(contents.integers is None for contents in known):
        return None
    start, end, step = (contents.dims[0].constant or 0 for contents in known)
    if not step or abs((end - start) // step) > _MOST_CELLS:
        return None
    return [_vector([Dim.of(k) for k in range(start, end, step)], known[0].dtype)]


def _reduction(function: Callable[[Sequence[Dim]], Dim]) -> Callable[[Site], Results]:
    def reduce(site: Site) -> Results:
        known = site.contents(0)
        if known is None or known.rank != 1 or not known.dims or known.dtype not in (DType.I32, DType.I64):
            return None
        if site.has(1) and not site.integers(1, "the axes") and site.attribute("noop_with_empty_axes", 0):
            return [known]
        return [Contents((function(known.dims),), int(site.attribute("keepdims", 1) == 1), known.dtype)]

    return reduce


def _sum(dims: Sequence[Dim]) -> Dim:
    return sum(dims, Dim.of(0))


ARITHMETIC: dict[str, Callable[[Site], Results]] = {
    "Abs": _integer(_abs),
    "Add": _integer(lambda a, b: a + b),
    "And": _cellwise(lambda a, b: a * b),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _integer(_divide),
    "Equal": _cellwise(lambda a, b: _truth(equal(a, b)), result=DType.BOOL),
    "Expand": _expand,
    "Gather": _gather,
    "Greater": _cellwise(lambda a, b: _truth(_less(b, a)), result=DType.BOOL),
    "GreaterOrEqual": _cellwise(lambda a, b: _truth(_negated(_less(a, b))), result=DType.BOOL),
    "Identity": _identity,
    "Less": _cellwise(lambda a, b: _truth(_less(a, b)), result=DType.BOOL),
    "LessOrEqual": _cellwise(lambda a, b: _truth(_negated(_less(b, a))), result=DType.BOOL),
    "Max": _integer(_fold(maximum)),
    "Min": _integer(_fold(minimum)),
    "Mod": _modulo_of,
    "Mul": _integer(lambda a, b: a * b),
    "Neg": _integer(lambda a: -a),
    "Not": _cellwise(_not),
    "Or": _cellwise(lambda a, b: a + b - a * b),
    "Range": _range,
    "ReduceMax": _reduction(lambda dims: _fold(maximum)(*dims)),
    "ReduceMin": _reduction(lambda dims: _fold(minimum)(*dims)),
    "ReduceProd": _reduction(product),
    "ReduceSum": _reduction(_sum),
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _integer(lambda a, b: a - b),
    "Unsqueeze": _unsqueeze,
    "Where": _cellwise(_choose, operands=slice(1, None)),
}
