"""NumPy's creation functions in a trace: the new arrays may be written, and their sizes may be symbolic."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.getitem import as_table
from noyau.frontends.numpy.shapes import offsets, shape_of
from noyau.frontends.numpy.tape import Tape, dtype_from
from noyau.frontends.numpy.traced_array import FUNCTIONS, Handler, TracedArray, call, enter
from noyau.frontends.numpy.traced_sizes import Number, as_size
from noyau.frontends.numpy.ufuncs import as_traced, has_traced
from noyau.ir.dims import Dim, Shape, index_name, product
from noyau.ir.sizes import Size, dim_of


def full(tape: Tape, shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **options: Any) -> TracedArray:
    """np.full: one value, or an array that is broadcast."""
    value = as_traced(tape, fill_value, None if dtype is None else dtype_from(dtype))
    result = TracedArray(tape, tape.expand(value.node, shape_of(shape)))
    result.lies(order)
    return result


def _full_of(value: int, tape: Tape, shape: Any, dtype: Any = None, order: Any = "C", **options: Any) -> TracedArray:
    """np.zeros and np.ones."""
    return full(tape, shape, value, float if dtype is None else dtype, order)


def index_array(tape: Tape, index: Dim, shape: Shape, dtype: Any = np.int64) -> TracedArray:
    """An array of the given shape whose cells hold an index expression over its axes."""
    return TracedArray(tape, tape.cast(tape.iota(index, shape), dtype_from(dtype)))


def arange(tape: Tape, *ends: Any, dtype: Any = None, **options: Any) -> Any:
    """np.arange of integers and sizes."""
    named = dict(zip(("start", "stop", "step", "dtype") if len(ends) > 1 else ("stop",), ends, strict=False))
    dtype = named.get("dtype", dtype)
    start, stop, step = map({"start": 0, "step": 1, **named, **options}.__getitem__, ("start", "stop", "step"))
    step = tape.settle(step.dim) if isinstance(step, Size) else step
    if not isinstance(step, int | np.integer) or step == 0 or not all(map(_is_end, (start, stop))):
        raise UnsupportedError("np.arange of sizes is traced with whole ends and a whole step that is known")
    first, last = (dim_of(start), dim_of(stop)) if step > 0 else (-dim_of(start), -dim_of(stop))
    reach = last - first if tape.at_most(first, last, usual=True) else Dim.of(0)
    length = (reach + (abs(int(step)) - 1)) // abs(int(step))
    return index_array(tape, Dim.of("#0") * int(step) + dim_of(start), (length,), np.int64 if dtype is None else dtype)


def _is_end(value: Any) -> bool:
    return isinstance(value, int | np.integer | Size)


def linspace(
    tape: Tape, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None
) -> Any:
    """np.linspace along a new first axis; with `endpoint` the last cell is exactly `stop`."""
    count = dim_of(num)
    parts = count - 1 if endpoint else count
    some = tape.at_most(1, parts, usual=True)
    first, last = (as_traced(tape, each).astype(np.float64) for each in (start, stop))
    divisor = Number(tape, tape.size(parts, DType.I64), parts.names)
    step = (last - first) / divisor if some else (last - first) * np.nan
    at = index_array(tape, Dim.of("#0"), (count, *[Dim.of(1)] * max(first.ndim, last.ndim)), np.float64)
    points: Any = at * step + first if some else at * 0.0 + first
    if endpoint and some:
        points = where(at == divisor, last, points)
    points = points if dtype is None else (np.floor(points) if np.dtype(dtype).kind in "iu" else points).astype(dtype)
    return (points, step) if retstep else points


def eye(tape: Tape, N: Any, M: Any = None, k: Any = 0, dtype: Any = float, **options: Any) -> Any:
    return (offsets(tape, shape_of((N, N if M is None else M))) == k).astype(dtype)


def tri(tape: Tape, N: Any, M: Any = None, k: Any = 0, dtype: Any = float, **options: Any) -> Any:
    return (offsets(tape, shape_of((N, N if M is None else M))) <= k).astype(dtype)


def indices(tape: Tape, dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """np.indices: the index along each axis, in arrays of the whole shape or, with `sparse`, of that axis alone."""
    shape, one = shape_of(tuple(dimensions)), Dim.of(1)
    shapes = [(*[one] * k, dim, *[one] * (len(shape) - 1 - k)) if sparse else shape for k, dim in enumerate(shape)]
    grids = [index_array(tape, Dim.of(index_name(axis)), own, dtype) for axis, own in enumerate(shapes)]
    return tuple(grids) if sparse else call("stack", grids)


def array(tape: Tape, value: Any, *args: Any, **options: Any) -> Any:
    """np.array of lists with traced numbers in them."""
    return call("array", value if isinstance(value, TracedArray) else as_traced(tape, value), *args, **options)


def prod(tape: Tape, a: Any, *args: Any, **options: Any) -> Any:
    """np.prod of a shape is a size; of anything else, an array."""
    if isinstance(a, tuple | list) and not args and not options and all(map(_is_end, a)):
        return as_size(tape, product(map(dim_of, a)), strong=True)
    return call("prod", a, *args, **options)


ALWAYS: dict[str, Handler] = {  # traced even without traced arguments, since the new arrays may be written
    **{name: partial(_full_of, value) for name, value in (("zeros", 0), ("ones", 1), ("empty", 0))},
    "full": full,
}
WHERE_SYMBOLIC: dict[str, Handler] = {
    "identity": lambda tape, n, dtype=None, **options: eye(tape, n, dtype=float if dtype is None else dtype),
    "fromfunction": lambda tape, function, shape, *, dtype=float, **options: function(
        *indices(tape, shape, dtype), **options
    ),
}
enter(WHERE_SYMBOLIC, arange, linspace, eye, tri, indices, array, prod)


def creator(tape: Tape, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of NumPy for traced code: ALWAYS is traced in any case, other tables with traced arguments."""

    def create(*args: Any, **kwargs: Any) -> Any:
        if name in ALWAYS:
            return ALWAYS[name](tape, *args, **kwargs)
        if not has_traced([*args, *kwargs.values()]):
            return as_table(plain(*args, **kwargs))
        if name in WHERE_SYMBOLIC:
            return WHERE_SYMBOLIC[name](tape, *args, **kwargs)
        return call(name, *args, **kwargs) if name in FUNCTIONS else plain(*args, **kwargs)

    return create
