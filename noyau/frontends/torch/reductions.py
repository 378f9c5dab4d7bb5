"""ATen's reductions and scans, and the norms and softmaxes that it keeps whole."""

from __future__ import annotations

from functools import partial

from noyau.dtypes import DType
from noyau.frontends.torch.calculations import apply, in_result
from noyau.frontends.torch.sites import ATEN, AtenSite
from noyau.frontends.torch.tensors import dtype_of, shape_from
from noyau.ir.dims import product
from noyau.ir.graph import Node, Scan

_KINDS = ("default", "dim", "dims")


def _keeps(site: AtenSite, position: int) -> bool:
    return bool(site.argument(position, "keepdim", False))


def reduction(monoid: str, site: AtenSite, *, asks: DType | None = None) -> Node:
    """A reduction with `dim` and `keepdim`, or over everything; computed in the dtype of the result, or in `asks`."""
    value = site.operand(site.argument(0), asks or site.dtype)
    axes = site.axes(site.argument(1, "dim"), len(value.shape), none_is_all=asks is None)
    return site.builder.reduce(monoid, value, axes, keep=_keeps(site, 2))


def mean_of(site: AtenSite, value: Node, axes: tuple[int, ...], *, less: float = 0) -> Node:
    """The sum over axes that stay, over how many there are, less some."""
    total = site.builder.reduce("sum", value, axes, keep=True)
    count = site.builder.size(product([value.shape[axis] for axis in axes]), value.dtype)
    if less:
        zero = site.builder.constant(0, value.dtype)
        count = apply(site, "maximum", apply(site, "subtract", count, site.builder.constant(less, value.dtype)), zero)
    return apply(site, "divide", total, count)


def _mean(site: AtenSite) -> Node:
    value = in_result(site, 0)
    axes = site.axes(site.argument(1, "dim"), len(value.shape))
    result = mean_of(site, value, axes)
    return result if _keeps(site, 2) else site.builder.drop_axes(result, axes)


def _variance_over(site: AtenSite, value: Node, axes: tuple[int, ...], correction: float) -> tuple[Node, Node]:
    """The variance, by deviations from the mean, and the mean; axes stay."""
    centre = mean_of(site, value, axes)
    away = apply(site, "subtract", value, centre)
    return mean_of(site, apply(site, "multiply", away, away), axes, less=correction), centre


def _spread(site: AtenSite) -> tuple[Node, Node]:
    value, correction = site.value(0), site.argument(2, "correction")
    axes = site.axes(site.argument(1, "dim"), len(value.shape))
    spread, centre = _variance_over(site, value, axes, 1 if correction is None else float(correction))
    if _keeps(site, 3):
        return spread, centre
    return site.builder.drop_axes(spread, axes), site.builder.drop_axes(centre, axes)


def _ends(largest: str, place: str, site: AtenSite) -> tuple[Node, ...]:
    """The largest along an axis and where it is, as two results."""
    value = site.with_axis(site.value(0))
    axes = (site.axis(site.argument(1), len(value.shape)),)
    results = (site.builder.reduce(monoid, value, axes, keep=_keeps(site, 2)) for monoid in (largest, place))
    return tuple(site.builder.reshape(*each) for each in zip(results, map(shape_from, site.meta), strict=True))


def _place(monoid: str, site: AtenSite) -> Node:
    """argmax and argmin: without an axis, in the flat value."""
    value, axis = site.with_axis(site.value(0)), site.argument(1, "dim")
    if axis is None:
        value = site.builder.reshape(value, (product(value.shape),))
    axes = (site.axis(axis or 0, len(value.shape)),)
    return site.builder.reshape(site.builder.reduce(monoid, value, axes, keep=_keeps(site, 2)), site.shape)


def _scan(monoid: str, site: AtenSite) -> Node:
    value = in_result(site, 0)
    if not value.shape:
        return value
    return site.builder.scan(Scan(monoid, site.axis(site.argument(1), len(value.shape))), value)


def _softmax(site: AtenSite, *, log: bool) -> Node:
    """exp(x - max) over its sum along an axis, or the logarithm of that."""
    value = in_result(site, 0)
    axes = (site.axis(site.argument(1), len(value.shape)),) if value.shape else ()
    below = apply(site, "subtract", value, site.builder.reduce("max", value, axes, keep=True))
    raised = apply(site, "exp", below)
    total = site.builder.reduce("sum", raised, axes, keep=True)
    return apply(site, "subtract", below, apply(site, "log", total)) if log else apply(site, "divide", raised, total)


def _layer_norm(site: AtenSite) -> tuple[Node, ...]:
    """The normalised value, the mean and 1 over the spread, as aten.native_layer_norm gives them."""
    value = site.value(0)
    wide = site.builder.cast(value, value.dtype.compute)
    count, eps = len(site.argument(1)), float(site.number(4, "eps", 1e-5))
    variance, centre = _variance_over(site, wide, tuple(range(len(value.shape) - count, len(value.shape))), 0)
    inverse = apply(site, "rsqrt", apply(site, "add", variance, site.builder.constant(eps, wide.dtype)))
    normalized = apply(site, "multiply", apply(site, "subtract", wide, centre), inverse)
    for position, function in ((2, "multiply"), (3, "add")):
        if site.argument(position) is not None:
            normalized = apply(site, function, normalized, site.operand(site.argument(position), wide.dtype))
    results = zip([site.builder.cast(normalized, value.dtype), centre, inverse], site.meta, strict=True)
    return tuple(site.builder.cast(each, dtype_of(meta.dtype)) for each, meta in results)


ATEN |= {
    **dict.fromkeys(("sum.default", "sum.dim_IntList"), partial(reduction, "sum")),
    **dict.fromkeys(("prod.default", "prod.dim_int"), partial(reduction, "prod")),
    **dict.fromkeys(("max.default", "amax.default"), partial(reduction, "max")),
    **dict.fromkeys(("min.default", "amin.default"), partial(reduction, "min")),
    "logsumexp.default": partial(reduction, "logsumexp"),
    **{f"{name}.dim": partial(_ends, name, f"arg{name}") for name in ("max", "min")},
    **{f"{name}.default": partial(_place, name) for name in ("argmax", "argmin")},
    **{f"{n}.{kind}": partial(reduction, n, asks=DType.BOOL) for n in ("any", "all") for kind in _KINDS},
    **dict.fromkeys(("mean.default", "mean.dim"), _mean),
    "var.correction": lambda site: _spread(site)[0],
    "var_mean.correction": _spread,
    **{f"cum{name}.default": partial(_scan, name) for name in ("sum", "prod")},
    "_softmax.default": partial(_softmax, log=False),
    "_log_softmax.default": partial(_softmax, log=True),
    "native_layer_norm.default": _layer_norm,
}
