"""Scalar functions by ONNX's names, with its broadcasting and its dtype rules; activations composed of them."""

from functools import partial, reduce

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.graph import Node
from noyau.ir.operators import OPERATORS

_FIXED = {operator.names.onnx: operator for operator in OPERATORS.values() if operator.names.onnx}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _of_arity(function: str, arity: int) -> Importer:
    return lambda site: site.call(function, *(site.input(k) for k in range(arity)))


def _left_fold(function: str, site: OnnxSite) -> Node:
    values = site.all_inputs()
    return reduce(partial(site.call, function), values) if len(values) > 1 else site.call("identity", values[0])


def _mean(site: OnnxSite) -> Node:
    total = reduce(partial(site.call, "add"), site.all_inputs())
    return site.call("divide", total, site.like(len(site.inputs), total))


def _clip(site: OnnxSite) -> Node:
    value = site.input()
    for position, function in ((1, "maximum"), (2, "minimum")):
        if site.has(position):
            value = site.call(function, value, site.input(position))
    return value if value is not site.input() else site.call("identity", value)


def _pow(site: OnnxSite) -> Node:
    """The result has the dtype of the first operand, whatever the dtype of the second."""
    left, right = site.input(0), site.input(1)
    if left.dtype.is_float or not right.dtype.is_float:
        return site.call("power", left, site.cast(right, left.dtype))
    wide = DType.F64 if left.dtype.bytes >= 4 or right.dtype is DType.F64 else DType.F32
    return site.cast(site.call("power", site.cast(left, wide), site.cast(right, wide)), left.dtype)


def _bit_shift(site: OnnxSite) -> Node:
    direction = site.attribute("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise UnsupportedError(f"BitShift has no direction {direction!r}")
    return site.call(f"shift_{direction.lower()}", site.input(0), site.input(1))


def _is_inf(site: OnnxSite) -> Node:
    value = site.input()
    positive, negative = site.attribute("detect_positive", 1), site.attribute("detect_negative", 1)
    if positive and negative:
        return site.call("is_inf", value)
    if not positive and not negative:
        return site.full(False, DType.BOOL, value.shape)
    return site.call("equal", value, site.like(np.inf if positive else -np.inf, value))


def _dropout(site: OnnxSite) -> list[Node]:
    """The identity and a mask of True; UnsupportedError in training mode, which stays a boundary."""
    if site.has(2) and site.array(2, "the training mode").any():
        raise UnsupportedError("Dropout in training mode draws random numbers")
    return [site.call("identity", site.input()), site.full(True, DType.BOOL, site.input().shape)]


def _sloped_relu(slope: Importer, site: OnnxSite) -> Node:
    """The value, multiplied by a slope where it is negative."""
    value, factor = site.input(), slope(site)
    assert isinstance(factor, Node)
    return site.call("where", _negative(site, value), site.call("multiply", value, factor), value)


def _negative(site: OnnxSite, value: Node) -> Node:
    return site.call("less", value, site.like(0, value))


def _elu(site: OnnxSite, usual: float = 1.0) -> Node:
    value = site.input()
    scaled = site.call("multiply", site.like(site.attribute("alpha", usual), value), site.call("expm1", value))
    return site.call("where", _negative(site, value), scaled, value)


def _selu(site: OnnxSite) -> Node:
    gamma = site.like(site.attribute("gamma", 1.05070102214813232421875), site.input())
    return site.call("multiply", gamma, _elu(site, 1.67326319217681884765625))


def swish(usual: float, site: OnnxSite) -> Node:
    """x * sigmoid(alpha * x); `usual` is the default of alpha."""
    value, alpha = site.input(), site.attribute("alpha", usual)
    scaled = value if alpha == 1 else site.call("multiply", value, site.like(alpha, value))
    return site.call("multiply", value, site.call("sigmoid", scaled))


CALCULATIONS: dict[str, Importer] = {
    **{op: _of_arity(operator.name, operator.arity) for op, operator in _FIXED.items()},
    **{op: partial(_left_fold, function) for op, function in _VARIADIC.items()},
    "BitShift": _bit_shift,
    "Clip": _clip,
    "Dropout": _dropout,
    "Identity": _of_arity("identity", 1),
    "IsInf": _is_inf,
    "Mean": _mean,
    "Mod": lambda site: _of_arity("fmod" if site.attribute("fmod", 0) == 1 else "floor_mod", 2)(site),
    "Pow": _pow,
    "Where": _of_arity("where", 3),
    "Elu": _elu,
    "LeakyRelu": partial(_sloped_relu, lambda site: site.like(site.attribute("alpha", 0.01), site.input())),
    "PRelu": partial(_sloped_relu, lambda site: site.input(1)),
    "Relu": lambda site: site.call("maximum", site.input(), site.like(0, site.input())),
    "Selu": _selu,
}
