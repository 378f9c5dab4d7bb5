"""NumPy's functions that only change where cells are read: reshapes, transposes, broadcasts, diagonals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.reductions import array_of, axes_of, axis_of, is_of_none
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.traced_array import FUNCTIONS, Handler, TracedArray, call, enter, tape_of
from noyau.frontends.numpy.ufuncs import as_traced, refuse, traced_arrays
from noyau.ir.dims import Dim, Shape, index_name, indices, product
from noyau.ir.sizes import Size, dim_of


def extents_of(entries: Sequence[Any]) -> list[Any]:
    """The extents of a shape that is passed as one tuple, or as several numbers."""
    one = entries[0] if len(entries) == 1 and isinstance(entries[0], tuple | list) else entries
    if any(not isinstance(each, int | np.integer | Size) for each in one):
        raise UnsupportedError(f"{tuple(one)} is no shape of integers and sizes")
    return [int(each) if isinstance(each, np.integer) else each for each in one]


def shape_of(extents: Any) -> Shape:
    """The Shape of NumPy's argument for a shape: a tuple, or one number."""
    return tuple(map(dim_of, extents_of((extents,))))


def offsets(tape: Tape, shape: Shape) -> TracedArray:
    """For each cell of a matrix, its column minus its row."""
    return TracedArray(tape, tape.iota(Dim.of(index_name(1)) - Dim.of(index_name(0)), shape))


def _reshape(a: Any, *shape: Any, order: str = "C", copy: Any = None, **options: Any) -> Any:
    """np.reshape in C order; one in Fortran order is a reshape of the transposes."""
    if copy:
        return call("reshape", call("copy", a), *shape, order=order, **options)
    a = array_of(a)
    one = options.pop("newshape", None) if options.get("shape") is None else options.pop("shape")
    refuse("reshape", options)
    is_fortran = _is_fortran("reshape", order, a)
    extents = extents_of(shape if one is None else (one,))
    if is_fortran:
        return call("transpose", call("reshape", call("transpose", a), extents[::-1]))
    free = [k for k, each in enumerate(extents) if isinstance(each, int) and each == -1]
    dims = [Dim.of(1) if k in free else dim_of(each) for k, each in enumerate(extents)]
    if len(free) > 1:
        raise UnsupportedError("np.reshape can infer one extent only")
    if free:
        for each in dims:
            a.tape.demand_at_most(1, each)  # beside an extent of 0, any would fit, which NumPy refuses
        dims[free[0]] = product(a.node.shape) // product(dims)
    return TracedArray(a.tape, a.tape.reshape(a.node, tuple(dims)))


def _is_fortran(name: str, order: str, a: TracedArray) -> bool:
    """Whether an order is Fortran's. UnsupportedError for the order of the memory where that is unknown."""
    if order not in ("C", "F") and a.gaps() != []:
        raise UnsupportedError(f"np.{name} is traced in the orders C and F, not {order!r}, as the memory lies")
    return order == "F"


def _ravel(a: Any, order: str = "C") -> Any:
    a = array_of(a)
    if _is_fortran("ravel", order, a):
        return call("ravel", call("transpose", a))
    return TracedArray(a.tape, a.tape.reshape(a.node, (product(a.node.shape),)))


def _transpose(a: Any, *axes: Any, **options: Any) -> TracedArray:
    a = array_of(a)
    one = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list | np.ndarray)) else axes
    named = options.get("axes", one)
    order = [axis_of(each, a.ndim) for each in (() if named is None else named)] or list(range(a.ndim))[::-1]
    if sorted(order) != list(range(a.ndim)):
        raise UnsupportedError(f"{tuple(order)} does not permute {a.ndim} axes")
    return TracedArray(a.tape, a.tape.transpose(a.node, order))


def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    a = array_of(a)
    order, first, second = list(range(a.ndim)), axis_of(axis1, a.ndim), axis_of(axis2, a.ndim)
    order[first], order[second] = order[second], order[first]
    return _transpose(a, order)


def _squeeze(a: Any, axis: Any = None) -> TracedArray:
    a = array_of(a)
    tape, shape = a.tape, a.node.shape
    if axis is not None:
        return TracedArray(tape, tape.drop_axes(a.node, () if is_of_none(a, axis) else axes_of(axis, a.ndim)))
    short = [k for k, dim in enumerate(shape) if tape.at_most(dim, 1, usual=False)]
    return TracedArray(tape, tape.drop_axes(a.node, [k for k in short if tape.at_most(1, shape[k], usual=True)]))


def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> TracedArray:
    array, dims = as_traced(tape_of([array, shape]), array), shape_of(shape)
    if len(dims) < array.ndim:
        raise UnsupportedError(f"np.broadcast_to of {array.ndim} axes cannot give fewer axes")
    for have, want in zip(array.node.shape[::-1], dims[::-1], strict=False):
        if have != Dim.of(1):
            array.tape.demand_equal(have, want)
    return TracedArray(array.tape, array.tape.expand(array.node, dims))


def _broadcast_arrays(*arrays: Any, subok: bool = False) -> tuple[TracedArray, ...]:
    tape, nodes = tape_of(arrays), [each.node for each in traced_arrays(*arrays)]
    shape = tape.broadcast([node.shape for node in nodes])
    expanded = tuple(TracedArray(tape, tape.expand(node, shape)) for node in nodes)
    for one, other in zip(expanded, arrays, strict=True):
        if isinstance(other, TracedArray):
            one.look_at(other, "broadcast_to")
    return expanded


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TracedArray:
    """The cells on a diagonal of two axes, as a last axis."""
    a = array_of(a)
    tape, first, second = a.tape, axis_of(axis1, a.ndim), axis_of(axis2, a.ndim)
    if first == second:
        raise UnsupportedError("np.diagonal takes two axes")
    rest = [axis for axis in range(a.ndim) if axis not in (first, second)]
    start = (max(-offset, 0), max(offset, 0))
    left = a.node.shape[first] - start[0], a.node.shape[second] - start[1]
    count = left[0] if tape.at_most(left[0], left[1], usual=True) else left[1]
    count = count if tape.at_most(0, count, usual=True) else Dim.of(0)
    *own, last = indices(len(rest) + 1)
    index = {**dict(zip(rest, own, strict=True)), first: last + start[0], second: last + start[1]}
    shape = (*(a.node.shape[k] for k in rest), count)
    return TracedArray(tape, tape.view(a.node, shape, [index[axis] for axis in range(a.ndim)]))


enter(FUNCTIONS, _reshape, _ravel, _transpose, _swapaxes, _squeeze)
enter(FUNCTIONS, _broadcast_to, _broadcast_arrays, diagonal)
_BY_OTHERS: dict[str, Handler] = {
    "flatten": lambda a, order="C": call("copy", _ravel(a, order)),
    **dict.fromkeys(("matrix_transpose", "linalg.matrix_transpose"), lambda x: _swapaxes(x, -1, -2)),
    "trace": lambda a, offset=0, axis1=0, axis2=1, dtype=None, out=None: call(
        "sum", diagonal(a, offset, axis1, axis2), -1, dtype=dtype, out=out
    ),
    "shape": lambda a: array_of(a).shape,
    "ndim": lambda a: array_of(a).ndim,
    "size": lambda a, axis=None: array_of(a).size if axis is None else array_of(a).shape[axis],
}
FUNCTIONS |= _BY_OTHERS
