"""Values calculated from few numbers or from positions: constants, ranges, OneHot, EyeLike, Trilu."""

import numpy as np

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim, maximum, never_negative
from noyau.ir.graph import Node, constant


def _range(site: OnnxSite) -> Node:
    bounds = [contents.dims for contents in (site.contents(k) for k in range(3)) if contents is not None]
    if len(bounds) < 3 or any(len(dims) != 1 for dims in bounds):
        return _float_range(site)
    (start,), (end,), (delta,) = bounds
    step = delta.constant
    if not step:
        raise UnsupportedError("the step of Range is only known when the model runs")
    count = ((end - start if step > 0 else start - end) + (abs(step) - 1)) // abs(step)
    count = count if never_negative(count) else maximum(count, 0)
    return site.iota(start + Dim.of("#0") * step, (count,), site.input(0).dtype)


def _float_range(site: OnnxSite) -> Node:
    """A range of constants that are not integers."""
    start, end, step = (site.array(k, "what Range is given").flat[0] for k in range(3))
    cells = np.ceil((float(end) - float(start)) / float(step)) if step else np.nan
    if not np.isfinite(cells):
        raise UnsupportedError("Range is given a step of 0, or a bound that is not finite")
    count, dtype = max(int(cells), 0), site.input(0).dtype
    at = site.cast(site.iota("#0", (Dim.of(count),)), dtype)
    return site.call("add", site.call("multiply", at, site.constant(step, dtype)), site.constant(start, dtype))


def _trilu(site: OnnxSite) -> Node:
    value = site.input()
    if len(value.shape) < 2:
        raise UnsupportedError("Trilu needs a rank of 2 or more")
    ahead = site.iota(Dim.of("#1") - "#0", value.shape[-2:])
    edge = site.input(1) if site.has(1) else site.constant(0, DType.I64)
    edge = site.drop_axes(edge, range(len(edge.shape)))
    mask = site.call("greater_equal" if site.attribute("upper", 1) else "less_equal", ahead, edge)
    return site.call("where", mask, value, site.like(0, value))


def _eye_like(site: OnnxSite) -> Node:
    value = site.input()
    dtype = from_onnx(site.attribute("dtype", value.dtype.onnx))
    if dtype is None or dtype is DType.OTHER or len(value.shape) != 2:
        raise UnsupportedError("EyeLike needs a rank of 2 and a type that noyau has")
    ahead = site.iota(Dim.of("#1") - "#0", value.shape)
    return site.cast(site.call("equal", ahead, site.constant(site.attribute("k", 0), DType.I64)), dtype)


def _one_hot(site: OnnxSite) -> Node:
    """values[1] where the index along the new axis equals the (wrapped) index, else values[0]."""
    value, values = site.input(0), site.input(2)
    depth, rank = _depth(site), len(value.shape) + 1
    axis = site.axis(site.attribute("axis", -1), rank)
    shape = (*value.shape[:axis], depth, *value.shape[axis:])
    positions = site.cast(value, DType.I64)
    wrapped = site.call("add", positions, site.iota(depth))
    positions = site.call("where", site.call("less", positions, site.like(0, positions)), wrapped, positions)
    same = site.call("equal", site.iota(f"#{axis}", shape), site.restore_axes(positions, [axis]))
    return site.call("where", same, site.pick(values, 0, 1), site.pick(values, 0, 0))


def _depth(site: OnnxSite) -> Dim:
    depth = site.contents(1)
    if depth is not None and len(depth.dims) == 1:
        return depth.dims[0]
    return Dim.of(int(site.array(1, "the depth").flat[0]))


def _constant_of_shape(site: OnnxSite) -> Node:
    target = site.vector(0, "the extents").dims
    array = site.attributes.get("value", np.zeros(1, np.float32))
    if not isinstance(array, np.ndarray) or array.size != 1 or any((dim.constant or 0) < 0 for dim in target):
        raise UnsupportedError("ConstantOfShape is given a value that is no single cell, or a negative extent")
    return site.expand(_emit_constant(site, array.reshape(())), target)


def constant_array(site: OnnxSite) -> np.ndarray:
    """The array of a Constant, from whichever attribute holds it."""
    spellings = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, dtype in spellings.items():
        if name in site.attributes:
            return np.array(site.attributes[name], dtype)
    value = site.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise UnsupportedError("a Constant of strings, or of a type that noyau has not")
    return value


def _emit_constant(site: OnnxSite, array: np.ndarray) -> Node:
    node = constant("", array)
    return site.emit(node.kind, [], node.dtype, node.shape)


CREATION: dict[str, Importer] = {
    "Constant": lambda site: _emit_constant(site, constant_array(site)),
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "OneHot": _one_hot,
    "Range": _range,
    "Trilu": _trilu,
}
