"""Conversions between dtypes: casts, and quantisation with one scale, scales along an axis, or scales of blocks."""

import numpy as np

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Node


def _cast(site: OnnxSite) -> Node:
    """Casts among noyau's dtypes; from float to bool, NaN is true."""
    number = site.attribute("to", 0)
    dtype = from_onnx(number)
    if dtype is None or dtype is DType.OTHER:
        from onnx import TensorProto

        is_listed = number in TensorProto.DataType.values()
        name = str(TensorProto.DataType.Name(number)).lower() if is_listed else f"type {number}"
        raise UnsupportedError(f"a cast to {name} has no meaning here")
    return site.cast(site.input(), dtype)


_WIDE = frozenset({DType.I8, DType.U8, DType.I16, DType.U16})


def _spread(site: OnnxSite, value: Node, factor: Node) -> Node:
    """A scale or a zero point, expanded to the value's shape or broadcastable to it."""
    block, rank = site.attribute("block_size", 0), len(value.shape)
    if not factor.shape or factor.shape == (Dim.of(1),):
        return site.drop_axes(factor, range(len(factor.shape)))
    axis = site.axis(site.attribute("axis", 1), rank)
    if len(factor.shape) == 1 and not block:
        site.demand_equal(factor.shape[0], value.shape[axis])
        return site.restore_axes(factor, range(1, rank - axis))
    if len(factor.shape) != rank or block < 1:
        raise UnsupportedError(f"{site.op} is given a scale of rank {len(factor.shape)} for a value of rank {rank}")
    index = list(indices(rank))
    index[axis] = index[axis] // block
    return site.view(factor, value.shape, index)


def _quantize(site: OnnxSite) -> Node:
    """saturate(round(x / scale) + zero point); halves go to even."""
    value, scale = site.input(0), site.input(1)
    named = from_onnx(site.attribute("output_dtype", 0) or 0)
    target = site.input(2).dtype if site.has(2) else named if site.attribute("output_dtype", 0) else DType.U8
    if target not in _WIDE or target is None:
        raise UnsupportedError(f"QuantizeLinear gives a type that noyau has not: {target.value if target else 'other'}")
    precision = from_onnx(site.attribute("precision", 0)) if site.attribute("precision", 0) else DType.F32
    if precision is None or not precision.is_float:
        raise UnsupportedError("QuantizeLinear divides in a type that is no float")
    divided = site.call("divide", site.cast(value, precision), _spread(site, value, site.cast(scale, precision)))
    rounded = site.call("round_even", divided)
    if site.has(2):
        rounded = site.call("add", rounded, site.cast(_spread(site, value, site.input(2)), precision))
    limits = np.iinfo(target.numpy)
    low = site.call("maximum", rounded, site.like(int(limits.min), rounded))
    return site.cast(site.call("minimum", low, site.like(int(limits.max), low)), target)


def _dequantize(site: OnnxSite) -> Node:
    """(x - zero point) * scale, in the type of the scale."""
    value, scale = site.input(0), site.input(1)
    if value.dtype not in (*_WIDE, DType.I32):
        raise UnsupportedError(f"DequantizeLinear takes no {value.dtype.value}")
    wide = site.cast(value, DType.I32)
    if site.has(2):
        wide = site.call("subtract", wide, site.cast(_spread(site, value, site.input(2)), DType.I32))
    target = from_onnx(site.attribute("output_dtype", 0)) if site.attribute("output_dtype", 0) else scale.dtype
    if target is None or not target.is_float:
        raise UnsupportedError("DequantizeLinear gives a type that is no float")
    product = site.call("multiply", site.cast(wide, DType.F32), site.cast(_spread(site, value, scale), DType.F32))
    return site.cast(product, target)


CONVERSIONS: dict[str, Importer] = {
    "Cast": _cast,
    "CastLike": lambda site: site.cast(site.input(0), site.input(1).dtype),
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
}
