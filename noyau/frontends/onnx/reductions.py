"""Reductions and running results; Einsum, a view and a sum for one operand, a contraction for two."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim, product
from noyau.ir.graph import Contract, Node, Scan
from noyau.ir.monoids import MONOIDS

_Step: TypeAlias = Callable[[OnnxSite, Node], Node]


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
    return site.emit(Contract(f"{inputs[0]},{inputs[1]}->{output}"), operands, operands[0].dtype, shape)


def terms(equation: str) -> tuple[list[str], str]:
    """The letters of the operands and of the result; without -> the result has the letters that appear once."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not left.replace(",", "").isalpha() or not (right.isalpha() or not right):
        raise UnsupportedError("Einsum with an ellipsis is a library call")
    letters = left.replace(",", "")
    implied = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return left.split(","), right if arrow else implied


def _sum_diagonals(site: OnnxSite, value: Node, term: str, output: str, extents: dict[str, Dim]) -> Node:
    """Take the diagonals of one operand, sum over letters that the result lacks, and order axes as in the result."""
    summed = [letter for letter in dict.fromkeys(term) if letter not in output]
    order = [*output, *summed]
    index = [f"#{order.index(letter)}" for letter in term]
    spread = site.view(value, tuple(extents[letter] for letter in order), index)
    return site.reduce("sum", spread, range(len(output), len(order))) if summed else spread


def reduction_axes(site: OnnxSite) -> tuple[int, ...]:
    """The axes of a ReduceX, an attribute or (ReduceSum since 13, all since 18) a constant input."""
    rank, listed = site.rank(), site.attributes.get("axes")
    if listed is None and site.has(1):
        listed = site.integers(1, "the axes")
    if not listed:
        return () if site.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return site.axes(listed, rank)


def _reduction(before: _Step, monoid: str, after: _Step, site: OnnxSite) -> Node:
    """`after(monoid(before(x)))`. Half types are widened first where a sum or a square may overflow them."""
    axes, value = reduction_axes(site), site.input()
    wide = site.cast(value, value.dtype.compute) if monoid in ("sum", "prod") else value
    result = after(site, site.reduce(monoid, before(site, wide), axes, keep=_keeps(site)))
    return site.cast(site.call("identity", result) if result is value else result, value.dtype)


def _keeps(site: OnnxSite) -> bool:
    return bool(site.attribute("keepdims", 1) == 1)


def _same(site: OnnxSite, value: Node) -> Node:
    return value


def _call(function: str) -> _Step:
    """A step that applies a scalar function; integers are cast to float64."""
    return lambda site, value: site.call(function, value if value.dtype.is_float else site.cast(value, DType.F64))


def _square(site: OnnxSite, value: Node) -> Node:
    return site.call("multiply", value, value)


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


def _arg(monoid: str, site: OnnxSite) -> Node:
    value, last = site.input(), bool(site.attribute("select_last_index", 0))
    axis = site.axis(site.attribute("axis", 0), len(value.shape))
    source = site.slice(value, axis, value.shape[axis] - 1, value.shape[axis], -1) if last else value
    result = site.reduce(monoid, source, [axis], keep=_keeps(site))
    return site.call("subtract", site.iota(value.shape[axis] - 1), result) if last else result


def _scan(monoid: str, site: OnnxSite) -> Node:
    """CumSum and CumProd along a constant axis."""
    axes, value = site.integers(1, "the axis"), site.input()
    if len(axes) != 1:
        raise UnsupportedError(f"{site.op} is given {len(axes)} axes")
    exclusive, reverse = bool(site.attribute("exclusive", 0)), bool(site.attribute("reverse", 0))
    return site.scan(Scan(monoid, site.axis(axes[0], len(value.shape)), exclusive, reverse), value)


REDUCTIONS: dict[str, Importer] = {
    **{MONOIDS[name].onnx: partial(_arg, name) for name in ("argmax", "argmin")},
    **{MONOIDS[name].onnx: partial(_reduction, _same, name, _same) for name in ("sum", "prod", "max", "min")},
    "CumProd": partial(_scan, "prod"),
    "CumSum": partial(_scan, "sum"),
    "ReduceL1": partial(
        _reduction, lambda site, value: value if value.dtype.kind == "uint" else site.call("abs", value), "sum", _same
    ),
    "ReduceL2": partial(_reduction, _square, "sum", _call("sqrt")),
    "ReduceLogSum": partial(_reduction, _same, "sum", _call("log")),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMean": lambda site: mean(site, site.input(), reduction_axes(site), keep=_keeps(site)),
    "ReduceSumSquare": partial(_reduction, _square, "sum", _same),
    "Einsum": _einsum,
}
