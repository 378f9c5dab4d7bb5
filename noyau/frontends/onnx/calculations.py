"""Operators that compute with cells: ONNX's names for scalar functions, with its broadcasting and its dtype rules;
quantising by a scale for all, along an axis, or by blocks; reductions and running results; Einsum, of one operand a
view and a sum, of two a contraction."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim, indices, product
from noyau.ir.graph import Constant, Contract, Node, Scan
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS

_FIXED = {operator.names.onnx: operator for operator in OPERATORS.values() if operator.names.onnx}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _of_arity(function: str, arity: int) -> Importer:
    return lambda site: site.call(function, *(site.input(k) for k in range(arity)))


def _left_fold(function: str) -> Importer:
    def fold(site: OnnxSite) -> Node:
        values = site.all_inputs()
        if len(values) == 1:
            return site.call("identity", values[0])
        return reduce(lambda a, b: site.call(function, a, b), values)

    return fold


def _mean(site: OnnxSite) -> Node:
    total = reduce(lambda a, b: site.call("add", a, b), site.all_inputs())
    return site.call("divide", total, site.like(len(site.inputs), total))


def _identity(site: OnnxSite) -> Node:
    return site.call("identity", site.input())


def _clip(site: OnnxSite) -> Node:
    value = site.input()
    for position, function in ((1, "maximum"), (2, "minimum")):
        if site.has(position):
            value = site.call(function, value, site.input(position))
    return value if value is not site.input() else _identity(site)


def _pow(site: OnnxSite) -> Node:
    """The result has the dtype of the first operand, whatever the second one has."""
    left, right = site.input(0), site.input(1)
    if left.dtype.is_float or not right.dtype.is_float:
        return site.call("power", left, site.cast(right, left.dtype))
    wide = DType.F64 if left.dtype.bytes >= 4 or right.dtype is DType.F64 else DType.F32
    return site.cast(site.call("power", site.cast(left, wide), site.cast(right, wide)), left.dtype)


def _bit_shift(site: OnnxSite) -> Node:
    direction = site.attribute("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise UnsupportedError(f"BitShift has no direction {direction!r}")
    value, count = site.input(0), site.input(1)
    width = value.dtype.bytes * 8
    if isinstance(count.kind, Constant) and ((count.kind.value >= 0) & (count.kind.value < width)).all():
        return site.call(f"shift_{direction.lower()}", value, count)
    return _guarded_shift(site, direction, value, count, width)


def _guarded_shift(site: OnnxSite, direction: str, value: Node, count: Node, width: int) -> Node:
    """A shift by a count that may be negative or beyond the width: nothing is left, or the sign where it goes right."""
    fits = site.call("less", count, site.like(width, count))
    if count.dtype.kind == "int":
        fits = site.call("logical_and", fits, site.call("greater_equal", count, site.like(0, count)))
    most = site.like(width - 1 if direction == "RIGHT" else 0, count)
    shifted = site.call(f"shift_{direction.lower()}", value, site.call("where", fits, count, most))
    signed = direction == "RIGHT" and value.dtype.kind == "int"
    return shifted if signed else site.call("where", fits, shifted, site.like(0, value))


def _is_inf(site: OnnxSite) -> Node:
    value = site.input()
    positive, negative = site.attribute("detect_positive", 1), site.attribute("detect_negative", 1)
    if positive and negative:
        return site.call("is_inf", value)
    if not positive and not negative:
        return site.full(False, DType.BOOL, value.shape)
    return site.call("equal", value, site.like(np.inf if positive else -np.inf, value))


def _cast(site: OnnxSite) -> Node:
    """Casts among noyau's dtypes; from float to bool, NaN is true."""
    number = site.attribute("to", 0)
    dtype = from_onnx(number)
    if dtype is None or dtype is DType.OTHER:
        raise UnsupportedError(f"a cast to {_type_name(number)} has no meaning here")
    return site.cast(site.input(), dtype)


def _type_name(number: int) -> str:
    from onnx import TensorProto

    is_listed = number in TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(number)).lower() if is_listed else f"type {number}"


def _sloped_relu(slope: Importer) -> Importer:
    """The value where it is not negative, else a slope times it."""

    def relu(site: OnnxSite) -> Node:
        value, factor = site.input(), slope(site)
        assert isinstance(factor, Node)
        return site.call("where", _negative(site, value), site.call("multiply", value, factor), value)

    return relu


def _negative(site: OnnxSite, value: Node) -> Node:
    return site.call("less", value, site.like(0, value))


def _elu(site: OnnxSite) -> Node:
    value = site.input()
    scaled = site.call("multiply", site.like(site.attribute("alpha", 1.0), value), site.call("expm1", value))
    return site.call("where", _negative(site, value), scaled, value)


def _selu(site: OnnxSite) -> Node:
    value = site.input()
    alpha = site.like(site.attribute("alpha", 1.67326319217681884765625), value)
    gamma = site.like(site.attribute("gamma", 1.05070102214813232421875), value)
    low = site.call("multiply", alpha, site.call("expm1", value))
    return site.call("multiply", gamma, site.call("where", _negative(site, value), low, value))


def _hard_sigmoid(site: OnnxSite) -> Node:
    value = site.input()
    scaled = site.call("multiply", value, site.like(site.attribute("alpha", 0.2), value))
    moved = site.call("add", scaled, site.like(site.attribute("beta", 0.5), value))
    return site.call("maximum", site.call("minimum", moved, site.like(1, value)), site.like(0, value))


def _softsign(site: OnnxSite) -> Node:
    value = site.input()
    return site.call("divide", value, site.call("add", site.call("abs", value), site.like(1, value)))


def _thresholded_relu(site: OnnxSite) -> Node:
    value = site.input()
    above = site.call("greater", value, site.like(site.attribute("alpha", 1.0), value))
    return site.call("where", above, value, site.like(0, value))


def _shrink(site: OnnxSite) -> Node:
    value = site.input()
    edge, bias = float(site.attribute("lambd", 0.5)), site.like(site.attribute("bias", 0.0), value)
    low = site.call("less", value, site.like(-edge, value))
    high = site.call("greater", value, site.like(edge, value))
    outer = site.call("where", high, site.call("subtract", value, bias), site.like(0, value))
    return site.call("where", low, site.call("add", value, bias), outer)


def swish(usual: float) -> Importer:
    """x * sigmoid(alpha * x), with the usual alpha."""

    def swish(site: OnnxSite) -> Node:
        value, alpha = site.input(), site.attribute("alpha", usual)
        scaled = value if alpha == 1 else site.call("multiply", value, site.like(alpha, value))
        return site.call("multiply", value, site.call("sigmoid", scaled))

    return swish


def _dropout(site: OnnxSite) -> list[Node]:
    """The identity, with a mask of true: training is a boundary."""
    if site.has(2) and site.array(2, "the training mode").any():
        raise UnsupportedError("Dropout in training mode draws random numbers")
    mask = site.full(True, DType.BOOL, site.input().shape)
    return [_identity(site), mask]


_WIDE = frozenset({DType.I8, DType.U8, DType.I16, DType.U16})


def _spread(site: OnnxSite, value: Node, factor: Node) -> Node:
    """A scale or a zero point, one for each cell of the value's shape or broadcastable to it."""
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


def _einsum(site: OnnxSite) -> Node:
    inputs, output = terms(site.attribute("equation", ""))
    operands = site.all_inputs()
    if len(inputs) != len(operands) or any(len(t) != len(o.shape) for t, o in zip(inputs, operands, strict=True)):
        raise UnsupportedError("Einsum is given operands that do not fit its equation")
    extents: dict[str, Dim] = {}
    for term, operand in zip(inputs, operands, strict=True):
        for letter, dim in zip(term, operand.shape, strict=True):
            site.demand_equal(extents.setdefault(letter, dim), dim)
    if len(set(output)) != len(output) or not set(output) <= set(extents):
        raise UnsupportedError("Einsum names an axis of its result that no operand has")
    if len(operands) == 1:
        return _sum_diagonals(site, operands[0], inputs[0], output, extents)
    if len(operands) != 2 or any(len(set(term)) != len(term) for term in inputs):
        raise UnsupportedError("Einsum of more than two operands, or of a diagonal, is a library call")
    shape = tuple(extents[letter] for letter in output)
    equation = f"{inputs[0]},{inputs[1]}->{output}"
    return site.emit(Contract(equation), operands, operands[0].dtype, shape)


def terms(equation: str) -> tuple[list[str], str]:
    """The letters of the operands and of the result; the result of an equation without -> is what appears once."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not left.replace(",", "").isalpha() or not (right.isalpha() or not right):
        raise UnsupportedError("Einsum with an ellipsis is a library call")
    letters = left.replace(",", "")
    implied = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return left.split(","), right if arrow else implied


def _sum_diagonals(site: OnnxSite, value: Node, term: str, output: str, extents: dict[str, Dim]) -> Node:
    """The diagonals of one operand, summed over what the result does not name, in the result's order."""
    summed = [letter for letter in dict.fromkeys(term) if letter not in output]
    order = [*output, *summed]
    index = [f"#{order.index(letter)}" for letter in term]
    spread = site.view(value, tuple(extents[letter] for letter in order), index)
    return site.reduce("sum", spread, range(len(output), len(order))) if summed else spread


def reduction_axes(site: OnnxSite) -> tuple[int, ...]:
    """The axes of a ReduceX, an attribute or (ReduceSum since 13, all since 18) a constant input."""
    rank = site.rank()
    listed = site.attributes.get("axes")
    if listed is None and site.has(1):
        listed = site.integers(1, "the axes")
    if not listed:
        return () if site.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return site.axes(listed, rank)


def _reduction(
    before: Callable[[OnnxSite, Node], Node], monoid: str, after: Callable[[OnnxSite, Node], Node]
) -> Importer:
    """`after(monoid(before(x)))`. Half types are widened first where a sum or a square may overflow them."""

    def reduce(site: OnnxSite) -> Node:
        axes, value = reduction_axes(site), site.input()
        wide = site.cast(value, value.dtype.compute) if monoid in ("sum", "prod") else value
        result = after(site, site.reduce(monoid, before(site, wide), axes, keep=_keeps(site)))
        return site.cast(site.call("identity", result) if result is value else result, value.dtype)

    return reduce


def _keeps(site: OnnxSite) -> bool:
    return bool(site.attribute("keepdims", 1) == 1)


def _same(site: OnnxSite, value: Node) -> Node:
    return value


def _call(function: str) -> Callable[[OnnxSite, Node], Node]:
    """A scalar function; on integers it is computed in float64."""
    return lambda site, value: site.call(function, value if value.dtype.is_float else site.cast(value, DType.F64))


def _square(site: OnnxSite, value: Node) -> Node:
    return site.call("multiply", value, value)


def _absolute(site: OnnxSite, value: Node) -> Node:
    return value if value.dtype.kind == "uint" else site.call("abs", value)


def mean(site: OnnxSite, value: Node, axes: tuple[int, ...], *, keep: bool = True) -> Node:
    """The sum over axes divided by their number of cells."""
    wide = site.cast(value, value.dtype.compute)
    total = site.reduce("sum", wide, axes, keep=keep)
    count = site.iota(product(value.shape[axis] for axis in axes), (), wide.dtype)
    return site.cast(site.call("divide", total, count), value.dtype)


def _log_sum_exp(site: OnnxSite) -> Node:
    axes, value = reduction_axes(site), site.input()
    if not axes:
        return site.call("identity", value)
    wide = value if value.dtype.is_float else site.cast(value, DType.F64)
    return site.cast(site.reduce("logsumexp", wide, axes, keep=_keeps(site)), value.dtype)


def _arg(monoid: str) -> Importer:
    def reduce(site: OnnxSite) -> Node:
        value = site.input()
        axis = site.axis(site.attribute("axis", 0), len(value.shape))
        last = bool(site.attribute("select_last_index", 0))
        source = site.slice(value, axis, value.shape[axis] - 1, value.shape[axis], -1) if last else value
        result = site.reduce(monoid, source, [axis], keep=_keeps(site))
        return site.call("subtract", site.iota(value.shape[axis] - 1), result) if last else result

    return reduce


def _scan(monoid: str) -> Importer:
    """CumSum and CumProd along a constant axis."""

    def scan(site: OnnxSite) -> Node:
        axes, value = site.integers(1, "the axis"), site.input()
        if len(axes) != 1:
            raise UnsupportedError(f"{site.op} is given {len(axes)} axes")
        exclusive, reverse = bool(site.attribute("exclusive", 0)), bool(site.attribute("reverse", 0))
        return site.scan(Scan(monoid, site.axis(axes[0], len(value.shape)), exclusive, reverse), value)

    return scan


CALCULATIONS: dict[str, Importer] = {
    **{op: _of_arity(operator.name, operator.arity) for op, operator in _FIXED.items()},
    **{op: _left_fold(function) for op, function in _VARIADIC.items()},
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": lambda site: site.cast(site.input(0), site.input(1).dtype),
    "Clip": _clip,
    "Dropout": _dropout,
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "Identity": _identity,
    "IsInf": _is_inf,
    "LeakyRelu": _sloped_relu(lambda site: site.like(site.attribute("alpha", 0.01), site.input())),
    "Mean": _mean,
    "Mod": lambda site: _of_arity("fmod" if site.attribute("fmod", 0) == 1 else "floor_mod", 2)(site),
    "PRelu": _sloped_relu(lambda site: site.input(1)),
    "Pow": _pow,
    "Relu": lambda site: site.call("maximum", site.input(), site.like(0, site.input())),
    "Selu": _selu,
    "Shrink": _shrink,
    "Softsign": _softsign,
    "Swish": swish(1.0),
    "ThresholdedRelu": _thresholded_relu,
    "Where": _of_arity("where", 3),
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
    **{MONOIDS[name].onnx: _arg(name) for name in ("argmax", "argmin")},
    **{MONOIDS[name].onnx: _reduction(_same, name, _same) for name in ("sum", "prod", "max", "min")},
    "CumProd": _scan("prod"),
    "CumSum": _scan("sum"),
    "ReduceL1": _reduction(_absolute, "sum", _same),
    "ReduceL2": _reduction(_square, "sum", _call("sqrt")),
    "ReduceLogSum": _reduction(_same, "sum", _call("log")),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMean": lambda site: mean(site, site.input(), reduction_axes(site), keep=_keeps(site)),
    "ReduceSumSquare": _reduction(_square, "sum", _same),
    "Einsum": _einsum,
}
