"""Matrix products and np.einsum as Contract nodes of two operands; np.linalg.norm."""

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.reductions import array_of, axes_of, put_out
from noyau.frontends.numpy.scopes import from_source
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, enter, tape_of
from noyau.frontends.numpy.ufuncs import apply, as_node, loop_dtypes, refuse, traced_arrays, write_out


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


enter(FUNCTIONS, dot, einsum, matmul, inner, vdot, tensordot, kron)
FUNCTIONS.update({"linalg.norm": norm, "linalg.vecdot": vecdot})
enter(UFUNCS, matmul, vecdot, matvec, vecmat)
