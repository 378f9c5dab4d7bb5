"""Composite operators that have no body in ONNX's schema, or whose body is worse than what its text says."""

from __future__ import annotations

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.reductions import mean
from noyau.frontends.onnx.sites import Importer, Site
from noyau.ir.dims import Dim
from noyau.ir.graph import Node


def _layer_normalization(site: Site) -> list[Node]:
    """As the text of the operator has it: the variance is the mean of squared deviations, over the axes from `axis` on.

    The schema's body takes E[x2] - E[x]2 of a flattened value, which loses half the digits."""
    value, rank = site.input(), site.rank()
    first = site.axis(site.attribute("axis", -1), rank)
    stash = from_onnx(site.attribute("stash_type", 1))
    if stash not in (DType.F32, DType.F64, DType.F16, DType.BF16):
        raise UnsupportedError("LayerNormalization computes in a type that is no float")
    wide = site.cast(value, stash)
    result, centre, inverse = normalised_rows(site, wide, tuple(range(first, rank)), site.attribute("epsilon", 1e-5))
    result = site.apply("multiply", site.cast(result, value.dtype), site.input(1))
    if site.has(2):
        result = site.apply("add", result, site.input(2))
    return [result, centre, inverse]


def normalised_rows(site: Site, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """Deviations from the mean over axes, divided by their spread; the mean; 1 over the spread."""
    centre = mean(site, value, axes)
    deviation = site.apply("subtract", value, centre)
    variance = mean(site, site.apply("multiply", deviation, deviation), axes)
    spread = site.apply("sqrt", site.apply("add", variance, site.like(epsilon, variance)))
    return site.apply("divide", deviation, spread), centre, site.apply("reciprocal", spread)


def root_mean_square(site: Site, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """The value divided by the root of its mean square over axes; and 1 over that root."""
    square = mean(site, site.apply("multiply", value, value), axes)
    spread = site.apply("sqrt", site.apply("add", square, site.like(epsilon, square)))
    return site.apply("divide", value, spread), site.apply("reciprocal", spread)


def _batch_normalization(site: Site) -> Node:
    if site.attribute("training_mode", 0):
        raise UnsupportedError("BatchNormalization in training mode gives running statistics")
    value = site.input()
    scale, shift, centre, variance = (_by_channel(site, value, site.input(k)) for k in range(1, 5))
    return _normalised(site, value, centre, variance, scale, shift)


def _normalised(site: Site, value: Node, centre: Node, variance: Node, scale: Node, shift: Node) -> Node:
    spread = site.apply("sqrt", site.apply("add", variance, site.like(site.attribute("epsilon", 1e-5), variance)))
    deviation = site.apply("subtract", value, site.cast(centre, value.dtype))
    result = site.apply("divide", deviation, site.cast(spread, value.dtype))
    result = site.apply("multiply", result, site.cast(scale, value.dtype))
    return site.apply("add", result, site.cast(shift, value.dtype))


def _by_channel(site: Site, value: Node, channel: Node) -> Node:
    """A vector along axis 1, aligned for broadcasting."""
    if len(channel.shape) != 1 or len(value.shape) < 2:
        raise UnsupportedError(f"{site.op} needs vectors over axis 1 of a value of rank 2 or more")
    return site.restore_axes(channel, range(1, len(value.shape) - 1))


def _instance_normalization(site: Site) -> Node:
    value = site.input()
    scale, shift = (_by_channel(site, value, site.input(k)) for k in (1, 2))
    axes = tuple(range(2, len(value.shape)))
    centre = mean(site, value, axes)
    deviation = site.apply("subtract", value, centre)
    variance = mean(site, site.apply("multiply", deviation, deviation), axes)
    return _normalised(site, value, centre, variance, scale, shift)


def _lp_normalization(site: Site) -> Node:
    """x / norm along an axis, and 0 where the norm is 0."""
    value, order = site.input(), site.attribute("p", 2)
    axis = site.axis(site.attribute("axis", -1), len(value.shape))
    if order not in (1, 2):
        raise UnsupportedError(f"LpNormalization of order {order} has no meaning")
    each = site.apply("multiply", value, value) if order == 2 else site.apply("abs", value)
    norm = site.reduce("sum", each, [axis], keep=True)
    norm = site.apply("sqrt", norm) if order == 2 else norm
    zero = site.like(0, value)
    return site.apply("where", site.apply("equal", norm, zero), zero, site.apply("divide", value, norm))


def _global_pool(monoid: str) -> Importer:
    def pool(site: Site) -> Node:
        value = site.input()
        if len(value.shape) < 3:
            raise UnsupportedError(f"{site.op} needs a rank of 3 or more")
        axes = tuple(range(2, len(value.shape)))
        return mean(site, value, axes) if monoid == "mean" else site.reduce(monoid, value, axes, keep=True)

    return pool


def _hardmax(site: Site) -> Node:
    """1 at the first of the largest along an axis, 0 elsewhere."""
    value = site.input()
    axis = site.axis(site.attribute("axis", -1), len(value.shape))
    best = site.reduce("argmax", value, [axis], keep=True)
    same = site.apply("equal", site.iota(Dim.of(f"#{axis}"), value.shape), best)
    return site.cast(same, value.dtype)


COMPOSITES: dict[str, Importer] = {
    "BatchNormalization": _batch_normalization,
    "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"),
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
}
