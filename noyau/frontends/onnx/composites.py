"""Norms and other composite operators that have no body in ONNX's schema, or whose body is worse than its text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.reductions import mean
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.graph import Node


def _layer_normalization(site: OnnxSite) -> list[Node]:
    """As the text of the operator has it: the variance is the mean of squared deviations, over the axes from `axis` on.

    The schema's body takes E[x2] - E[x]2 of a flattened value, which loses half the digits."""
    value, rank = site.input(), site.rank()
    axes = tuple(range(site.axis(site.attribute("axis", -1), rank), rank))
    stash = from_onnx(site.attribute("stash_type", 1))
    if stash is None or not stash.is_float:
        raise UnsupportedError("LayerNormalization computes in a type that is no float")
    result, centre, inverse = normalize_rows(site, site.cast(value, stash), axes, epsilon_of(site, 1e-5))
    return [rescale(site, site.cast(result, value.dtype), 1, 2), centre, inverse]


def normalize_rows(site: OnnxSite, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """Deviations from the mean over axes, divided by their spread; the mean; 1 over the spread."""
    centre, deviation, variance = _moments(site, value, axes)
    spread = site.call("sqrt", site.call("add", variance, site.like(epsilon, variance)))
    return site.call("divide", deviation, spread), centre, site.call("reciprocal", spread)


def _moments(site: OnnxSite, value: Node, axes: tuple[int, ...]) -> tuple[Node, Node, Node]:
    """The mean over axes, the deviations from it, and the mean of their squares."""
    centre = mean(site, value, axes)
    deviation = site.call("subtract", value, centre)
    return centre, deviation, mean(site, site.call("multiply", deviation, deviation), axes)


def root_mean_square(site: OnnxSite, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """The value divided by the root of its mean square over axes; and 1 over that root."""
    square = mean(site, site.call("multiply", value, value), axes)
    spread = site.call("sqrt", site.call("add", square, site.like(epsilon, square)))
    return site.call("divide", value, spread), site.call("reciprocal", spread)


def _batch_normalization(site: OnnxSite) -> Node:
    if site.attribute("training_mode", 0):
        raise UnsupportedError("BatchNormalization in training mode gives running statistics")
    value = site.input()
    scale, shift, centre, variance = (_by_channel(site, value, site.input(k)) for k in range(1, 5))
    return _normalize(site, value, centre, variance, scale, shift)


def _normalize(site: OnnxSite, value: Node, centre: Node, variance: Node, scale: Node, shift: Node) -> Node:
    spread = site.call("sqrt", site.call("add", variance, site.like(site.attribute("epsilon", 1e-5), variance)))
    deviation = site.call("subtract", value, site.cast(centre, value.dtype))
    quotient = site.call("divide", deviation, site.cast(spread, value.dtype))
    scaled = site.call("multiply", quotient, site.cast(scale, value.dtype))
    return site.call("add", scaled, site.cast(shift, value.dtype))


def _by_channel(site: OnnxSite, value: Node, channel: Node) -> Node:
    """A vector along axis 1, aligned for broadcasting."""
    if len(channel.shape) != 1 or len(value.shape) < 2:
        raise UnsupportedError(f"{site.op} needs vectors over axis 1 of a value of rank 2 or more")
    return site.restore_axes(channel, range(1, len(value.shape) - 1))


def _instance_normalization(site: OnnxSite) -> Node:
    value = site.input()
    scale, shift = (_by_channel(site, value, site.input(k)) for k in (1, 2))
    centre, _, variance = _moments(site, value, tuple(range(2, len(value.shape))))
    return _normalize(site, value, centre, variance, scale, shift)


def _lp_normalization(site: OnnxSite) -> Node:
    """x / norm along an axis, and 0 where the norm is 0."""
    value, order = site.input(), site.attribute("p", 2)
    if order not in (1, 2):
        raise UnsupportedError(f"LpNormalization of order {order} has no meaning")
    each = site.call("multiply", value, value) if order == 2 else site.call("abs", value)
    norm = site.reduce("sum", each, [site.axis(site.attribute("axis", -1), site.rank())], keep=True)
    norm = site.call("sqrt", norm) if order == 2 else norm
    zero = site.like(0, value)
    return site.call("where", site.call("equal", norm, zero), zero, site.call("divide", value, norm))


def _global_pool(monoid: str, site: OnnxSite) -> Node:
    value, axes = site.input(), tuple(range(2, site.rank()))
    if not axes:
        raise UnsupportedError(f"{site.op} needs a rank of 3 or more")
    return mean(site, value, axes) if monoid == "mean" else site.reduce(monoid, value, axes, keep=True)


def _hardmax(site: OnnxSite) -> Node:
    """1 at the first of the largest along an axis, 0 elsewhere."""
    value, axis = site.input(), site.axis(site.attribute("axis", -1), site.rank())
    best = site.reduce("argmax", value, [axis], keep=True)
    return site.cast(site.call("equal", site.iota(f"#{axis}", value.shape), best), value.dtype)


def with_attributes(importer: Importer, *attributes: str) -> Importer:
    """The importer, for nodes that have no other attributes than these."""

    def checked(site: OnnxSite) -> Node | Sequence[Node]:
        unknown = sorted(site.attributes.keys() - set(attributes))
        if unknown:
            raise UnsupportedError(f"{site.op} has an attribute {unknown[0]!r} that noyau does not know")
        return importer(site)

    return checked


def _rms_normalization(site: OnnxSite) -> list[Node]:
    """RMSNormalization, of the dtype of its scale."""
    value, scale = site.input(0), site.input(1)
    if site.attribute("stash_type", 1) != DType.F32.onnx:
        raise UnsupportedError(f"{site.op} computes in a type that is not float32")
    first = site.axis(site.attribute("axis", -1), len(value.shape))
    wide = site.cast(value, value.dtype.compute)
    result, inverse = root_mean_square(site, wide, tuple(range(first, len(value.shape))), epsilon_of(site, 1e-5))
    return [site.call("multiply", site.cast(result, scale.dtype), scale), inverse]


def epsilon_of(site: OnnxSite, default: float = 1e-12) -> float:
    return float(site.attribute("epsilon", default))


def rescale(site: OnnxSite, value: Node, scale: int, shift: int | None = None) -> Node:
    value = site.call("multiply", value, site.input(scale))
    return site.call("add", value, site.input(shift)) if shift is not None and site.has(shift) else value


COMPOSITES: dict[str, Importer] = {
    "BatchNormalization": _batch_normalization,
    "GlobalAveragePool": partial(_global_pool, "mean"),
    "GlobalMaxPool": partial(_global_pool, "max"),
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    # onnxruntime's own, in the default domain, where ONNX has no such operator, or a later one
    "SimplifiedLayerNormalization": with_attributes(_rms_normalization, "axis", "epsilon", "stash_type"),
}
