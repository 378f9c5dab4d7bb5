"""ATen's scalar functions, activations, products, reductions, scans, and the norms and softmaxes it keeps whole.

Operands are cast to the dtype in which torch computes them."""

import math
from collections.abc import Callable
from functools import partial

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.sites import ATEN, AtenSite, Handler, promote
from noyau.frontends.torch.tensors import dtype_of, shape_from
from noyau.ir.dims import product
from noyau.ir.graph import Node, Scan, is_never_0
from noyau.ir.operators import BOOL, OPERATORS, Fact, Operator, has


def _names_of(is_one: Callable[[Operator], bool]) -> dict[str, str]:
    """The functions of the operator table by their names in ATen."""
    return {name: each.name for each in OPERATORS.values() if is_one(each) for name in each.names.torch.split()}


# Functions of tensors, or of a tensor and a number, in the dtype of the result: the one that torch computes in.
UNARY = _names_of(lambda each: each.arity == 1 and each.result == "same" and each.accepts != BOOL)
BINARY = _names_of(lambda each: each.arity == 2 and each.result == "same" and each.accepts != BOOL)
COMPARISONS = _names_of(lambda each: each.is_comparison)
LOGICAL = _names_of(lambda each: each.accepts == BOOL)
OF_FLOATS = _names_of(lambda each: each.arity == 1 and each.result == "bool")  # is_nan and is_inf: of integers, false


def apply(site: AtenSite, function: str, *operands: Node) -> Node:
    """A function of the operator table with torch's meaning, on bools too. UnsupportedError for integers divided by a
    value that may be 0: torch refuses that at run time, and no kernel checks it."""
    if has(function, Fact.ZERO_DIVISOR) and not operands[1].dtype.is_float and not is_never_0(operands[1], sizes=True):
        raise UnsupportedError("integers divided by what is not known now are left to torch, which refuses 0")
    return site.builder.call(OPERATORS[function].on(operands[0].dtype), *operands)


def in_result(site: AtenSite, position: int) -> Node:
    """An operand in the dtype of the result."""
    return site.operand(site.argument(position), site.dtype)


def of_operands(function: str, *places: int) -> Handler:
    """A function of operands in the dtype of the result."""
    return lambda site: apply(site, function, *(in_result(site, at) for at in places))


def compare(function: str, site: AtenSite) -> Node:
    common = promote(site.argument(0), site.argument(1))
    if common is DType.BOOL and has(function, Fact.ORDERED):  # bools are ordered as numbers
        common = DType.U8
    return apply(site, function, *(site.operand(site.argument(at), common) for at in (0, 1)))


def logical(function: str) -> Handler:
    places = range(OPERATORS[function].arity)
    return lambda site: apply(site, function, *(site.operand(site.argument(at), DType.BOOL) for at in places))


def _with_alpha(function: str, left: int, right: int, site: AtenSite) -> Node:
    """left + alpha right, or left - alpha right; the sum of two bools is `or`."""
    pair = in_result(site, left), in_result(site, right)
    if site.dtype is DType.BOOL and left < right:
        return site.builder.call("logical_or", *pair)
    return apply(site, function, pair[0], times(site, pair[1], site.number(2, "alpha", 1)))


def times(site: AtenSite, value: Node, factor: float) -> Node:
    """The value times a number, if that is not 1."""
    return value if factor == 1 else scale_by(site, value, factor)


def scale_by(site: AtenSite, value: Node, factor: float) -> Node:
    return apply(site, "multiply", value, site.builder.constant(factor, value.dtype))


def _divide(site: AtenSite) -> Node:
    """a / b in floats, or with `rounding_mode` rounded down or towards 0."""
    mode = site.number(2, "rounding_mode", None)
    if mode not in (None, "floor", "trunc"):
        raise UnsupportedError(f"aten.div has no rounding mode {mode!r}")
    quotient = apply(site, "floor_divide" if mode == "floor" else "divide", in_result(site, 0), in_result(site, 1))
    return apply(site, "truncate", quotient) if mode == "trunc" and site.dtype.is_float else quotient


def _choose(condition: int, one: int, other: int, site: AtenSite) -> Node:
    """One operand where a condition holds, else the other."""
    holds = site.operand(site.argument(condition), DType.BOOL)
    return apply(site, "where", holds, in_result(site, one), in_result(site, other))


def _clamp(site: AtenSite) -> Node:
    value = in_result(site, 0)
    low, high = site.argument(1, "min"), site.argument(2, "max")
    if low is not None:
        value = apply(site, "maximum", value, site.operand(low, site.dtype))
    return value if high is None else apply(site, "minimum", value, site.operand(high, site.dtype))


def _power(site: AtenSite) -> Node:
    exponent = site.argument(1)
    if not site.dtype.is_float and isinstance(exponent, int) and exponent < 0:
        raise UnsupportedError("an integer to a power below 0 is left to torch, which refuses it")
    return apply(site, "power", in_result(site, 0), in_result(site, 1))


def _sign(site: AtenSite) -> Node:
    """1 above 0, -1 below, else 0, also for NaN."""
    value = in_result(site, 0)
    if value.dtype is DType.BOOL:
        return value
    zero, one = (site.builder.constant(number, value.dtype) for number in (0, 1))
    above = apply(site, "where", apply(site, "greater", value, zero), one, zero)
    if value.dtype.kind == "uint":
        return above
    return apply(site, "where", apply(site, "less", value, zero), site.builder.constant(-1, value.dtype), above)


def _of_floats(function: str, site: AtenSite) -> Node:
    value = site.value(0)
    return site.builder.call(function, value if value.dtype.is_float else site.builder.cast(value, DType.F32))


_COPIES = ("clone", "alias", "detach", "lift_fresh_copy", "contiguous")
_CASTS = ("_to_copy.default", "prims.convert_element_type.default", "to.dtype")
ATEN |= {
    **{f"{name}.default": of_operands(function, 0) for name, function in UNARY.items()},
    **{f"{op}.{kind}": of_operands(f, 0, 1) for op, f in BINARY.items() for kind in ("Tensor", "Scalar", "default")},
    **{f"{name}.{kind}": partial(compare, f) for name, f in COMPARISONS.items() for kind in ("Tensor", "Scalar")},
    **{f"{name}.default": logical(function) for name, function in LOGICAL.items()},
    **{f"add.{kind}": partial(_with_alpha, "add", 0, 1) for kind in ("Tensor", "Scalar")},
    **{f"sub.{kind}": partial(_with_alpha, "subtract", 0, 1) for kind in ("Tensor", "Scalar")},
    **{f"rsub.{kind}": partial(_with_alpha, "subtract", 1, 0) for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}": _divide for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"floor_divide.{kind}": of_operands("floor_divide", 0, 1) for kind in ("default", "Scalar")},
    **{f"pow.{kind}": _power for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")},
    **{f"clamp.{kind}": _clamp for kind in ("default", "Tensor")},
    **{f"where.{kind}": partial(_choose, 0, 1, 2) for kind in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    **{f"masked_fill.{kind}": partial(_choose, 1, 2, 0) for kind in ("Scalar", "Tensor")},
    **dict.fromkeys((f"{name}.default" for name in _COPIES), lambda site: site.value(0)),
    "square.default": of_operands("multiply", 0, 0),
    "sign.default": _sign,
    **{f"{name}.default": partial(_of_floats, function) for name, function in OF_FLOATS.items()},
    **dict.fromkeys(_CASTS, lambda site: site.builder.cast(site.value(0), site.dtype)),
}


def einsum_of(equation: str) -> Handler:
    """An einsum of two operands."""
    return lambda site: site.builder.contract(equation, [site.value(0), site.value(1)])


def _matmul(site: AtenSite) -> Node:
    """A product of ranks 1 to n, with the axes before the last two broadcast."""
    left, right = site.value(0), site.value(1)
    if min(len(left.shape), len(right.shape)) > 2 and len(left.shape) != len(right.shape):
        raise UnsupportedError("aten.matmul of different ranks above 2 is left to torch")
    letters = "cdefgh"[: max(len(left.shape), len(right.shape), 2) - 2]
    rows = letters[len(letters) - max(len(left.shape) - 2, 0) :] + ("i" if len(left.shape) > 1 else "") + "k"
    columns = letters[len(letters) - max(len(right.shape) - 2, 0) :] + "k" + ("j" if len(right.shape) > 1 else "")
    result = letters + ("i" if len(left.shape) > 1 else "") + ("j" if len(right.shape) > 1 else "")
    return site.builder.contract(f"{rows},{columns}->{result}", [left, right])


def _linear(site: AtenSite) -> Node:
    value, weight = site.value(0), site.value(1)
    letters = "abcdefgh"[: len(value.shape) - 1]
    product = site.builder.contract(f"{letters}k,jk->{letters}j", [value, weight])
    return product if site.argument(2, "bias") is None else apply(site, "add", product, site.value(2, "bias"))


def _product_plus(equation: str, site: AtenSite) -> Node:
    """beta c + alpha a @ b."""
    beta, alpha = site.number(3, "beta", 1), site.number(4, "alpha", 1)
    product = times(site, site.builder.contract(equation, [site.value(1), site.value(2)]), alpha)
    if beta == 0:
        return product
    return apply(site, "add", times(site, site.operand(site.argument(0), product.dtype), beta), product)


ATEN |= {
    "mm.default": einsum_of("ik,kj->ij"),
    "bmm.default": einsum_of("bik,bkj->bij"),
    "mv.default": einsum_of("ik,k->i"),
    "dot.default": einsum_of("k,k->"),
    "outer.default": einsum_of("i,j->ij"),
    "matmul.default": _matmul,
    "linear.default": _linear,
    "addmm.default": partial(_product_plus, "ik,kj->ij"),
    "baddbmm.default": partial(_product_plus, "bik,bkj->bij"),
    "addmv.default": partial(_product_plus, "ik,k->i"),
}


def _hardtanh(site: AtenSite) -> Node:
    low = site.operand(site.number(1, "min_val", -1), site.dtype)
    high = site.operand(site.number(2, "max_val", 1), site.dtype)
    return apply(site, "minimum", apply(site, "maximum", in_result(site, 0), low), high)


def _leaky_relu(site: AtenSite) -> Node:
    value, slope = in_result(site, 0), site.number(1, "negative_slope", 0.01)
    above = apply(site, "greater", value, site.builder.constant(0, value.dtype))
    return apply(site, "where", above, value, scale_by(site, value, slope))


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
    "gelu.default": _gelu,
    "silu.default": lambda site: apply(site, "multiply", value := in_result(site, 0), apply(site, "sigmoid", value)),
}


_KINDS = ("default", "dim", "dims")


def _keeps(site: AtenSite, position: int) -> bool:
    return bool(site.argument(position, "keepdim", False))


def reduction(monoid: str, site: AtenSite, *, asks: DType | None = None) -> Node:
    """A reduction with `dim` and `keepdim`, or over everything; computed in the dtype of the result, or in `asks`."""
    value = site.operand(site.argument(0), asks or site.dtype)
    axes = site.axes(site.argument(1, "dim"), len(value.shape), none_is_all=asks is None)
    return site.builder.reduce(monoid, value, axes, keep=_keeps(site, 2))


def mean_of(site: AtenSite, value: Node, axes: tuple[int, ...], *, less: float = 0) -> Node:
    """The sum over axes, which are kept, divided by their number of cells minus `less`."""
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
    """The variance, by deviations from the mean, and the mean; the axes are kept."""
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
    """The largest, or the least, along an axis and its index, as two results."""
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
    """The normalised value, the mean and 1 over the spread, as aten.native_layer_norm returns them."""
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
