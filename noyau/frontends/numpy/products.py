"""Matrix products and np.einsum as Contract nodes of two operands; np.linalg.norm; sliding windows, correlations and
gradients."""

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.reductions import array_of, axes_of, axis_of, put_out
from noyau.frontends.numpy.scopes import from_source
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, enter, tape_of
from noyau.frontends.numpy.ufuncs import (
    apply,
    as_node,
    as_traced,
    common_dtype,
    loop_dtypes,
    refuse,
    traced_arrays,
    write_out,
)
from noyau.ir.dims import Dim, indices
from noyau.ir.sizes import dim_of


def matmul(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
    """a @ b over the last two axes; leading axes are broadcast. A vector is a row on the left, else a column."""
    refuse("matmul", options)
    left, right = traced_arrays(a, b)
    if not left.ndim or not right.ndim:
        raise UnsupportedError("a matrix product takes no scalars; use *")
    # Without this demand an extent of 1 would be broadcast, as in np.einsum.
    left.tape.demand_equal(left.node.shape[-1], right.node.shape[-2 if right.ndim > 1 else -1])
    batch = ascii_letters[3 : 3 + max(left.ndim, right.ndim)]
    first = "B" if left.ndim == 1 else f"{batch[len(batch) - (left.ndim - 2) :] if left.ndim > 2 else ''}AB"
    second = "B" if right.ndim == 1 else f"{batch[len(batch) - (right.ndim - 2) :] if right.ndim > 2 else ''}BC"
    result = max((first[:-2], second[:-2]), key=len) + ("A" if left.ndim > 1 else "") + ("C" if right.ndim > 1 else "")
    return put_out(product_of(np.matmul, [left, right], f"{first},{second}->{result}"), out, np.matmul)


def product_of(ufunc: np.ufunc, pair: Sequence[Any], equation: str) -> TracedArray:
    """Contract two operands in the dtype of a ufunc's loop; for bools `and` is the product and `or` the sum."""
    tape, dtypes = tape_of(pair), loop_dtypes(ufunc, pair)
    nodes = [as_node(tape, *each) for each in zip(pair, dtypes, strict=False)]
    if nodes[0].dtype is DType.BOOL:
        count = tape.contract(equation, [tape.cast(node, DType.I64) for node in nodes])
        return TracedArray(tape, apply(tape, "greater", count, tape.constant(0, DType.I64)))
    return TracedArray(tape, tape.contract(equation, nodes))


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """np.dot: the last axis of `a` with the last but one of `b`."""
    left, right = traced_arrays(a, b)
    if not left.ndim or not right.ndim:
        return UFUNCS["multiply"](left, right, out=out, dtype=np.result_type(left.dtype, right.dtype))
    if right.ndim <= 2:
        return matmul(left, right, out=out)
    if out is not None:
        raise UnsupportedError("np.dot of more than two axes is traced without out=")
    return tensordot(left, right, axes=([left.ndim - 1], [right.ndim - 2]))


def inner(a: Any, b: Any) -> Any:
    """np.inner: the last axes of both."""
    left, right = traced_arrays(a, b)
    if not left.ndim or not right.ndim:
        return dot(left, right)
    return tensordot(left, right, axes=([left.ndim - 1], [right.ndim - 1]))


def vdot(a: Any, b: Any) -> Any:
    """np.vdot: the sum of products of all cells."""
    return matmul(*(call("ravel", each) for each in traced_arrays(a, b)))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, **options: Any) -> Any:
    """np.vecdot: sums of products along an axis; the others are broadcast."""
    refuse("vecdot", options)
    left, right = (call("moveaxis", each, axis, -1) for each in traced_arrays(x1, x2))
    return call("squeeze", matmul(left[..., None, :], right[..., :, None]), (-2, -1))


def matvec(x1: Any, x2: Any, /, **options: Any) -> Any:
    """np.matvec: stacks of matrices by stacks of vectors."""
    refuse("matvec", options)
    left, right = traced_arrays(x1, x2)
    return call("squeeze", matmul(left, right[..., None]), -1)


def vecmat(x1: Any, x2: Any, /, **options: Any) -> Any:
    """np.vecmat: stacks of vectors by stacks of matrices."""
    refuse("vecmat", options)
    left, right = traced_arrays(x1, x2)
    return call("squeeze", matmul(left[..., None, :], right), -2)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """np.tensordot over the last `axes` axes of `a` and the first of `b`, or over two lists of axes."""
    left, right = traced_arrays(a, b)
    if isinstance(axes, int):
        pairs = list(range(left.ndim - axes, left.ndim)), list(range(axes))
    else:
        pairs = list(axes_of(axes[0], left.ndim)), list(axes_of(axes[1], right.ndim))
    first, second = list(ascii_letters[: left.ndim]), list(ascii_letters[left.ndim : left.ndim + right.ndim])
    for one, other in zip(*pairs, strict=True):
        left.tape.demand_equal(left.node.shape[one], right.node.shape[other])
        second[other] = first[one]
    result = [x for x in (*first, *second) if (x in first) != (x in second)]
    return product_of(np.multiply, [left, right], f"{''.join(first)},{''.join(second)}->{''.join(result)}")


def einsum(equation: Any, *operands: Any, out: Any = None, optimize: Any = False, **options: Any) -> Any:
    """np.einsum; several operands are contracted from the left, two at a time."""
    dtype = options.pop("dtype", None)
    refuse("einsum", {k: v for k, v in options.items() if (k, v) != ("casting", "safe")})
    if not isinstance(equation, str):
        return einsum(*_with_letters([equation, *operands]), out=out, dtype=dtype)
    arrays = traced_arrays(*operands)
    terms, result = _parse_equation(equation, [each.ndim for each in arrays])
    common = np.result_type(*(each.dtype for each in arrays)) if dtype is None else np.dtype(dtype)
    if len(arrays) == 1 and set(terms[0]) <= set(result) and common == arrays[0].dtype and out is None:
        value, term = _once(operands[0] if isinstance(operands[0], TracedArray) else arrays[0], terms[0])
        arranged = call("transpose", value, [term.index(letter) for letter in result])
        arranged.fixed = arranged.memory.owner and arranged.fixed
        return arranged
    values = [_once(each.astype(common), term) for each, term in zip(arrays, terms, strict=True)]
    while len(values) > 1:
        (a, first), (b, second), *rest = values
        kept = set(result).union(*(term for _, term in rest))
        output = "".join(dict.fromkeys(x for x in first + second if x in kept))
        values = [(product_of(np.multiply, [a, b], f"{first},{second}->{output}"), output), *rest]
    arranged = _arrange(*values[0], result)
    return arranged if out is None else write_out(np.multiply, arranged, out)


def _with_letters(operands: Sequence[Any]) -> tuple[Any, ...]:
    """np.einsum's form with lists of axis numbers, converted to the form with letters."""
    numbers, result = operands[1::2], operands[-1] if len(operands) % 2 else None
    terms = ["".join("..." if k is Ellipsis else ascii_letters[k] for k in each) for each in (*numbers, result or ())]
    joined = ",".join(terms[: len(numbers)])
    return joined if result is None else f"{joined}->{terms[-1]}", *operands[: 2 * len(numbers) : 2]


def _parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, also for "...". UnsupportedError where they do not fit."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    spare = [letter for letter in ascii_letters[::-1] if letter not in equation]
    missing = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False)]
    more = "".join(spare[: max((n for n, term in zip(missing, terms, strict=False) if "..." in term), default=0)])
    full = [term.replace("...", more[len(more) - max(n, 0) :]) for term, n in zip(terms, missing, strict=False)]
    if not arrow:
        joined = "".join(full)
        result = more + "".join(sorted(x for x in set(joined) - set(more) if joined.count(x) == 1))
    result = result.replace("...", more)
    fits = len(terms) == len(ranks) and [len(each) for each in full] == list(ranks)
    if not fits or not set(result) <= set("".join(full)) or len(set(result)) < len(result):
        raise UnsupportedError(f"np.einsum({equation!r}) does not fit the axes of its operands")
    return full, result


def _once(value: Any, term: str) -> tuple[Any, str]:
    """Take diagonals of an operand, so that no letter occurs twice."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            value.tape.demand_equal(value.node.shape[first], value.node.shape[second])
            value = call("diagonal", value, 0, first, second)
            term = "".join(x for k, x in enumerate(term) if k not in (first, second)) + letter
    return value, term


def _arrange(value: Any, term: str, result: str) -> Any:
    """Transpose a value to the axes of the result, after a sum over axes that the result lacks."""
    summed = tuple(k for k, letter in enumerate(term) if letter not in result)
    if summed:
        value = call("sum", value, summed, dtype=value.dtype)
        term = "".join(x for x in term if x in result)
    return call("copy", call("transpose", value, [term.index(x) for x in result])) if term else value


def kron(a: Any, b: Any) -> Any:
    """np.kron: every cell of one times the other."""
    left, right = traced_arrays(a, b)
    rank = max(left.ndim, right.ndim)
    left, right = (x[(None,) * (rank - x.ndim) + (Ellipsis,)] for x in (left, right))
    blocks = left[(slice(None), None) * rank] * right[(None, slice(None)) * rank]
    return call("reshape", blocks, [m * n for m, n in zip(left.shape, right.shape, strict=True)])


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002  NumPy's own name
    """np.linalg.norm of vectors, and of matrices where it takes no singular values."""
    x = array_of(x)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    axes_of(axis, x.ndim)  # also for scalars, where np.sum takes axis 0, and np.linalg.norm does not
    if isinstance(axis, tuple) and len(axis) not in (1, 2):
        raise UnsupportedError("np.linalg.norm takes a vector or matrices")
    vector = ord is None or isinstance(axis, int) or (axis is None and x.ndim == 1)
    if not vector and ord not in (None, "fro", 1, -1, np.inf, -np.inf):
        what = f"np.linalg.norm of matrices is traced with ord= None, 'fro', 1, -1, inf and -inf, not {ord!r}"
        raise UnsupportedError(f"{what}, which takes singular values")
    if ord in (None, 2, "fro"):  # NumPy's own text calls a library for some of them
        return UFUNCS["sqrt"](call("sum", x * x, axis, keepdims=keepdims))
    return from_source("linalg.norm")(x, ord, axis, keepdims)


def windows(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False) -> Any:
    """np.lib.stride_tricks.sliding_window_view: the cells of a window stand along last axes."""
    x = array_of(x)
    wide = [dim_of(n) for n in (window_shape if isinstance(window_shape, tuple | list) else [window_shape])]
    axes = [axis_of(each, x.ndim) for each in (range(x.ndim) if axis is None else np.atleast_1d(axis).tolist())]
    if len(axes) != len(wide):
        raise UnsupportedError(f"windows of {len(wide)} extents are over {len(axes)} axes")
    shape, index = list(x.node.shape), list(indices(x.ndim))
    for at, (each, extent) in enumerate(zip(axes, wide, strict=True)):
        x.tape.demand_at_most(extent, shape[each])
        shape[each] = shape[each] - extent + 1
        index[each] = index[each] + Dim.of(f"#{x.ndim + at}")
    return TracedArray(x.tape, x.tape.view(x.node, (*shape, *wide), index))


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """np.correlate: for each shift of one vector along the other, the sum of products of cells that overlap."""
    tape, pair = tape_of([a, v]), traced_arrays(a, v)
    a, v = (call("atleast_1d", each.astype(common_dtype(pair).numpy)) for each in pair)
    for each in (a, v):
        tape.demand_at_most(1, each.node.shape[0])
    if not tape.at_most(v.node.shape[0], a.node.shape[0], usual=True):
        return _convolve(v, a, mode)[::-1]
    return _convolve(a, v, mode)


def _convolve(a: Any, v: Any, mode: str) -> Any:
    """Correlate the longer vector `a` with the shorter `v`."""
    tape, (short,) = a.tape, v.node.shape
    tape.settle_few(short)
    before = {"valid": Dim.of(0), "same": short // 2, "full": short - 1}.get(mode)
    if before is None:
        raise UnsupportedError(f"np.correlate takes mode= 'valid', 'same' or 'full', not {mode!r}")
    after = before if mode == "full" else short - before - 1
    head, tail = (
        [_head(a[::step], v[::step], count)[::step]] if mode != "valid" and tape.at_most(1, count, usual=True) else []
        for count, step in ((before, 1), (after, -1))
    )
    return call("concatenate", [*head, call("sum", windows(a, v.shape[0]) * v, 1, dtype=a.dtype), *tail])


def _head(a: Any, v: Any, count: Dim) -> Any:
    """The first cells of a correlation, where a part of the shorter vector lies before the longer one."""
    near = [a.tape.full(0, a.node.dtype, (count,)), a.tape.slice(a.node, 0, 0, v.node.shape[0] - 1)]
    products = windows(TracedArray(a.tape, a.tape.concat(near, 0)), v.shape[0]) * v
    place = TracedArray(a.tape, a.tape.iota(Dim.of("#0") + Dim.of("#1") - count, products.node.shape))
    # In front of the longer vector nothing overlaps, and 0 times an infinity would be NaN
    return call("sum", where(place >= 0, products, np.zeros((), a.dtype)), 1, dtype=a.dtype)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """np.gradient: central differences, one-sided at the ends."""
    f = as_traced(tape_of([f, *varargs]), f)
    axes = axes_of(axis, f.ndim)
    steps = varargs * len(axes) if len(varargs) == 1 and np.ndim(varargs[0]) == 0 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes) or edge_order not in (1, 2):
        raise UnsupportedError("np.gradient takes one step, or one for each axis, and edge_order= 1 or 2")
    f = f if f.dtype.kind == "f" else f.astype(np.float64) if f.dtype != bool else f
    slopes = tuple(_slopes(f, *pair, edge_order) for pair in zip(steps, axes, strict=True))
    return slopes[0] if len(slopes) == 1 else slopes


def _slopes(f: Any, step: Any, axis: int, order: int) -> Any:
    """The slopes along an axis; `step` is the distance of its cells, or their coordinates."""
    tape, dtype = f.tape, f.dtype if f.dtype.kind == "f" else np.float64
    f = call("moveaxis", f, axis, -1)
    tape.demand_at_most(order + 1, f.node.shape[-1])
    if np.ndim(step) > 0:
        places = as_traced(tape, step)
        tape.demand_equal(places.node.shape[0], f.node.shape[-1])
        gaps = call("diff", places if places.dtype.kind == "f" else places.astype(np.float64))
        one, other = gaps[:-1], gaps[1:]
        both = one + other
        middle = [-other / (one * both), (other - one) / (one * other), one / (other * both)]
        inside = _weigh(f[..., :-2], f[..., 1:-1], f[..., 2:], middle)
        ends = (gaps[0], gaps[1], gaps[-1], gaps[-2])
    else:
        inside, ends = (f[..., 2:] - f[..., :-2]) / (2.0 * step), (step,) * 4
    if order == 1:
        first, last = (f[..., 1] - f[..., 0]) / ends[0], (f[..., -1] - f[..., -2]) / ends[2]
    else:
        first = _weigh(f[..., 0], f[..., 1], f[..., 2], _first(ends[0], ends[1]))
        last = _weigh(f[..., -1], f[..., -2], f[..., -3], [-each for each in _first(ends[2], ends[3])])
    pieces = [call("astype", each, dtype) for each in (first[..., None], inside, last[..., None])]
    return call("moveaxis", call("concatenate", pieces, axis=-1), -1, axis)


def _weigh(a: Any, b: Any, c: Any, weights: Sequence[Any]) -> Any:
    return weights[0] * a + weights[1] * b + weights[2] * c


def _first(one: Any, other: Any) -> list[Any]:
    """The weights of three neighbours in the slope at the first one."""
    both = one + other
    return [-(2.0 * one + other) / (one * both), both / (one * other), -one / (other * both)]


enter(FUNCTIONS, dot, einsum, matmul, inner, vdot, tensordot, kron, correlate, gradient)
FUNCTIONS["sliding_window_view"] = windows
FUNCTIONS.update({"linalg.norm": norm, "linalg.vecdot": vecdot})
enter(UFUNCS, matmul, vecdot, matvec, vecmat)
