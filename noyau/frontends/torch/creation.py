"""Values made of nothing, and triangles: ATen's fills, ranges and masks."""

from __future__ import annotations

from noyau.dtypes import DType
from noyau.frontends.torch.calculations import apply
from noyau.frontends.torch.sites import ATEN, AtenSite, Handler
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Node


def _full(position: int) -> Handler:
    """A value of one number everywhere."""
    return lambda site: site.builder.expand(site.operand(site.argument(position), site.dtype), site.shape)


def _number(number: float) -> Handler:
    return lambda site: site.builder.full(number, site.dtype, site.shape)


def _arange(site: AtenSite) -> Node:
    """start + step i: of integers an index, of floats computed."""
    count = {"aten.arange.default": 1, "aten.arange.start": 2}.get(str(site.node.target), 3)
    bounds = [site.argument(at) for at in range(count)]
    start, step = (bounds[0] if count > 1 else 0), (site.argument(2, "step", 1) if count > 2 else 1)
    if all(isinstance(each, int) or not isinstance(each, float) for each in (start, step)):
        index = Dim.of("#0") * site.dim(step) + site.dim(start)
        return site.builder.cast(site.builder.iota(index, site.shape), site.dtype)
    places = site.builder.cast(site.builder.iota(Dim.of("#0"), site.shape), site.dtype)
    first, by = (site.operand(each, site.dtype) for each in (start, step))
    return apply(site, "add", first, apply(site, "multiply", places, by))


def _triangle(lower: bool) -> Handler:
    """The cells on one side of a diagonal; 0 elsewhere."""

    def handle(site: AtenSite) -> Node:
        value, diagonal = site.value(0), int(site.number(1, "diagonal", 0))
        *_, rows, columns = indices(len(value.shape))
        away = site.builder.iota(columns - rows, value.shape)
        mask = apply(site, "less_equal" if lower else "greater_equal", away, site.builder.constant(diagonal, DType.I64))
        return apply(site, "where", mask, value, site.builder.constant(0, value.dtype))

    return handle


ATEN |= {
    "full.default": _full(1),
    "full_like.default": _full(1),
    "scalar_tensor.default": _full(0),
    "fill.Scalar": _full(1),
    **{f"{name}.default": _number(0) for name in ("zeros", "zeros_like", "new_zeros")},
    **{f"{name}.default": _number(1) for name in ("ones", "ones_like", "new_ones")},
    "new_full.default": _full(2),
    **{f"arange.{kind}": _arange for kind in ("default", "start", "start_step")},
    "tril.default": _triangle(True),
    "triu.default": _triangle(False),
}
