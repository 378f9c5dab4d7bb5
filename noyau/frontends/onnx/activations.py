"""Activations: scalar functions that onnx defines by a few operators, and parameters of the node."""

from __future__ import annotations

from functools import partial

from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.graph import Node


def _sloped_relu(slope: Importer, site: OnnxSite) -> Node:
    """The value where it is not negative, else a slope times it."""
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


def _hard_sigmoid(site: OnnxSite) -> Node:
    value = site.input()
    scaled = site.call("multiply", value, site.like(site.attribute("alpha", 0.2), value))
    moved = site.call("add", scaled, site.like(site.attribute("beta", 0.5), value))
    return site.call("maximum", site.call("minimum", moved, site.like(1, value)), site.like(0, value))


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


def swish(usual: float, site: OnnxSite) -> Node:
    """x * sigmoid(alpha * x), with the usual alpha."""
    value, alpha = site.input(), site.attribute("alpha", usual)
    scaled = value if alpha == 1 else site.call("multiply", value, site.like(alpha, value))
    return site.call("multiply", value, site.call("sigmoid", scaled))


ACTIVATIONS: dict[str, Importer] = {
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": partial(_sloped_relu, lambda site: site.like(site.attribute("alpha", 0.01), site.input())),
    "PRelu": partial(_sloped_relu, lambda site: site.input(1)),
    "Relu": lambda site: site.call("maximum", site.input(), site.like(0, site.input())),
    "Selu": _selu,
    "Shrink": _shrink,
    "Softsign": lambda site: site.call(
        "divide", site.input(), site.call("add", site.call("abs", site.input()), site.like(1, site.input()))
    ),
    "Swish": partial(swish, 1.0),
    "ThresholdedRelu": _thresholded_relu,
}
