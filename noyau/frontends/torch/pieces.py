"""ATen's fills, ranges and triangles; splits, concatenations, pads and writes into slices."""

from functools import partial

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.calculations import apply
from noyau.frontends.torch.sites import ATEN, AtenSite, Handler
from noyau.frontends.torch.tensors import shape_from
from noyau.frontends.torch.views import first_of
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Node


def _split(site: AtenSite) -> tuple[Node, ...]:
    axis = site.axis(site.argument(2, "dim", 0), len(site.value(0).shape))
    return tuple(site.builder.split(site.value(0), axis, [shape_from(piece)[axis] for piece in site.meta]))


def _unbind(site: AtenSite) -> tuple[Node, ...]:
    axis = site.axis(site.argument(1, "dim", 0), len(site.value(0).shape))
    pieces = site.builder.split(site.value(0), axis, [Dim.of(1)] * len(site.meta))
    return tuple(site.builder.drop_axes(piece, (axis,)) for piece in pieces)


def _concatenate(site: AtenSite) -> Node:
    pieces = [site.operand(piece, site.dtype) for piece in site.argument(0)]
    whole = [piece for piece in pieces if piece.shape != (Dim.of(0),)] or pieces  # torch skips empty vectors
    return site.builder.concat(whole, site.axis(site.argument(1, "dim", 0), len(whole[0].shape)))


def _stack(site: AtenSite) -> Node:
    pieces = [site.operand(piece, site.dtype) for piece in site.argument(0)]
    axis = site.axis(site.argument(1, "dim", 0), len(pieces[0].shape) + 1)
    return site.builder.concat([site.builder.restore_axes(piece, (axis,)) for piece in pieces], axis)


def _pad(site: AtenSite) -> Node:
    """Constant padding: pairs of before and after, from the last axis on; a negative one cuts."""
    value, pads = site.value(0), [site.dim(pad) for pad in site.argument(1)]
    filling = site.builder.constant(site.number(2, "value", 0), value.dtype)
    for at in range(len(pads) // 2):
        value = _pad_axis(site, value, len(value.shape) - 1 - at, pads[2 * at], pads[2 * at + 1], filling)
    return value


def _pad_axis(site: AtenSite, value: Node, axis: int, before: Dim, after: Dim, filling: Node) -> Node:
    for pad in (before, after):
        if pad.constant is None or pad.constant < 0:
            raise UnsupportedError(f"constant_pad_nd by {pad} is left to torch")

    def side(length: Dim) -> list[Node]:
        shape = (*value.shape[:axis], length, *value.shape[axis + 1 :])
        return [site.builder.expand(filling, shape)] if length != Dim.of(0) else []

    pieces = [*side(before), value, *side(after)]
    return site.builder.concat(pieces, axis) if len(pieces) > 1 else value


def _within(site: AtenSite, piece: Node, axis: int, start: Dim, whole: Node) -> Node:
    """`whole` with its cells from `start` on along an axis replaced by a piece."""
    end = start + piece.shape[axis]
    _, before = site.builder.split(whole, axis, [Dim.of(0), start])
    _, after = site.builder.split(whole, axis, [end, whole.shape[axis] - end])
    filled = [each for each in (before, piece, after) if each.shape[axis] != Dim.of(0)] or [piece]
    return site.builder.concat(filled, axis) if len(filled) > 1 else filled[0]


def _put(site: AtenSite, *, slices: bool, backward: bool) -> Node:
    """The first argument with a slice or an index along an axis replaced; `backward`: a gradient there, among zeros."""
    axis = site.axis(site.argument(2, "dim", 0), len(site.shape))
    if slices and int(site.number(5, "step", 1)) != 1:
        raise UnsupportedError(f"{site.node.target} with a step is left to torch")
    piece = site.value(0) if backward else site.operand(site.argument(1), site.dtype)
    piece = piece if slices else site.builder.restore_axes(piece, (axis,))
    whole = site.builder.full(0, site.dtype, site.shape) if backward else site.value(0)
    return _within(site, piece, axis, first_of(site, site.argument(3, "start"), site.meta, axis), whole)


ATEN |= {
    **{f"split.{kind}": _split for kind in ("Tensor", "default")},
    "split_with_sizes.default": _split,
    "chunk.default": _split,
    "unbind.int": _unbind,
    "cat.default": _concatenate,
    "stack.default": _stack,
    "constant_pad_nd.default": _pad,
    "slice_backward.default": partial(_put, slices=True, backward=True),
    "select_backward.default": partial(_put, slices=False, backward=True),
    "slice_scatter.default": partial(_put, slices=True, backward=False),
    "select_scatter.default": partial(_put, slices=False, backward=False),
}


def _full(position: int) -> Handler:
    """A value of one number everywhere."""
    return lambda site: site.builder.expand(site.operand(site.argument(position), site.dtype), site.shape)


def _number(number: float) -> Handler:
    return lambda site: site.builder.full(number, site.dtype, site.shape)


def _arange(site: AtenSite) -> Node:
    """start + step i: an index expression for integers, computed for floats."""
    count = {"aten.arange.default": 1, "aten.arange.start": 2}.get(str(site.node.target), 3)
    bounds = [site.argument(at) for at in range(count)]
    start, step = (bounds[0] if count > 1 else 0), (site.argument(2, "step", 1) if count > 2 else 1)
    if all(isinstance(each, int) or not isinstance(each, float) for each in (start, step)):
        index = Dim.of("#0") * site.dim(step) + site.dim(start)
        return site.builder.cast(site.builder.iota(index, site.shape), site.dtype)
    places = site.builder.cast(site.builder.iota(Dim.of("#0"), site.shape), site.dtype)
    first, by = (site.operand(each, site.dtype) for each in (start, step))
    return apply(site, "add", first, apply(site, "multiply", places, by))


def _triangle(lower: bool, site: AtenSite) -> Node:
    """The cells on one side of a diagonal; 0 elsewhere."""
    value, diagonal = site.value(0), int(site.number(1, "diagonal", 0))
    *_, rows, columns = indices(len(value.shape))
    away = site.builder.iota(columns - rows, value.shape)
    mask = apply(site, "less_equal" if lower else "greater_equal", away, site.builder.constant(diagonal, DType.I64))
    return apply(site, "where", mask, value, site.builder.constant(0, value.dtype))


ATEN |= {
    "full.default": _full(1),
    "full_like.default": _full(1),
    "scalar_tensor.default": _full(0),
    "fill.Scalar": _full(1),
    **{f"{name}.default": _number(0) for name in ("zeros", "zeros_like", "new_zeros")},
    **{f"{name}.default": _number(1) for name in ("ones", "ones_like", "new_ones")},
    "new_full.default": _full(2),
    **{f"arange.{kind}": _arange for kind in ("default", "start", "start_step")},
    "tril.default": partial(_triangle, True),
    "triu.default": partial(_triangle, False),
}
