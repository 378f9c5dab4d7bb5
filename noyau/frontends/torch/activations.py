"""ATen's activation functions."""

from __future__ import annotations

import math

from noyau.frontends.torch.calculations import apply, in_result, scale_by
from noyau.frontends.torch.sites import ATEN, AtenSite
from noyau.ir.graph import Node


def _hardtanh(site: AtenSite) -> Node:
    low = site.operand(site.number(1, "min_val", -1), site.dtype)
    high = site.operand(site.number(2, "max_val", 1), site.dtype)
    return apply(site, "minimum", apply(site, "maximum", in_result(site, 0), low), high)


def _leaky_relu(site: AtenSite) -> Node:
    value, slope = in_result(site, 0), site.number(1, "negative_slope", 0.01)
    above = apply(site, "greater", value, site.builder.constant(0, value.dtype))
    return apply(site, "where", above, value, scale_by(site, value, slope))


def _elu(site: AtenSite) -> Node:
    value = in_result(site, 0)
    alpha, scale, inner = (site.number(*each) for each in ((1, "alpha", 1), (2, "scale", 1), (3, "input_scale", 1)))
    above = apply(site, "greater", value, site.builder.constant(0, value.dtype))
    below = scale_by(site, apply(site, "expm1", scale_by(site, value, inner)), alpha * scale)
    return apply(site, "where", above, scale_by(site, value, scale), below)


def _gelu(site: AtenSite) -> Node:
    """x P(X <= x), exactly or by tanh (Hendrycks and Gimpel, Gaussian Error Linear Units, 2016)."""
    value = in_result(site, 0)
    half, one = (site.builder.constant(number, value.dtype) for number in (0.5, 1.0))
    if site.number(1, "approximate", "none") == "none":
        bent = apply(site, "erf", scale_by(site, value, math.sqrt(0.5)))
    else:
        cube = apply(site, "multiply", apply(site, "multiply", value, value), value)
        inner = apply(site, "add", value, scale_by(site, cube, 0.044715))
        bent = apply(site, "tanh", scale_by(site, inner, math.sqrt(2 / math.pi)))
    return apply(site, "multiply", apply(site, "multiply", half, value), apply(site, "add", one, bent))


ATEN |= {
    "relu.default": lambda site: apply(site, "maximum", in_result(site, 0), site.builder.constant(0, site.dtype)),
    "hardtanh.default": _hardtanh,
    "leaky_relu.default": _leaky_relu,
    "elu.default": _elu,
    "gelu.default": _gelu,
    "silu.default": lambda site: apply(
        site, "multiply", in_result(site, 0), apply(site, "sigmoid", in_result(site, 0))
    ),
}
