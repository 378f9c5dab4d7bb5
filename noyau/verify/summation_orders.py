"""Sums in other orders of their terms, as a kernel or a library may add them up.

Where no sum overflows, order is a matter of rounding. Where one does on its way, or meets an infinity, it ends as inf,
-inf or NaN as the order has it: -1e308 - 1e308 + 1e308 + 1e308 is 0, -inf, inf or NaN. No order is more right than
another, so each of the four that are tried is an unfused run like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noyau.verify.brackets import CELLS

Array = np.ndarray
TURNS = 4  # as it is; what is above 0 first; what is below 0 first; each by itself, then both


def summed(result: Array, terms: Array, infinite: Array, turn: int) -> Array:
    """`result`, the sums over the last axis of terms, as they end in another order. `infinite`: terms of infinite
    operands, which are infinite in every order; others overflow, or do not."""
    turn = turn % TURNS
    if turn == 0 or not may_overflow([terms], terms.shape[-1]):
        return result
    with np.errstate(all="ignore"):
        above, below = (np.where(part, terms, 0).sum(-1, dtype=terms.dtype) for part in (terms > 0, terms < 0))
        up, down = ((infinite & part).any(-1) for part in (terms > 0, terms < 0))
        ends = [above - np.where(down, np.inf, 0), below + np.where(up, np.inf, 0), above + below][turn - 1]
    lost = [np.isinf(above), np.isinf(below), np.isinf(above) | np.isinf(below)][turn - 1]
    return np.where(lost & ~np.isnan(terms).any(-1), ends, result).astype(result.dtype)


def contracted(equation: str, result: Array, operands: Sequence[Array], turn: int) -> Array:
    """`result`, the einsum of two operands, as its sums end in another order."""
    (first, second), output = equation.partition("->")[0].split(","), equation.partition("->")[2]
    extents = {
        letter: size
        for term, x in zip((first, second), operands, strict=True)
        for letter, size in zip(term, x.shape, strict=True)
    }
    added = "".join(letter for letter in extents if letter not in output)
    terms = math.prod(extents[letter] for letter in added)
    if turn % TURNS == 0 or math.prod(extents.values()) > CELLS or not may_overflow(operands, terms):
        return result
    every = f"{first},{second}->{output}{added}"
    shape = (*result.shape, terms)
    with np.errstate(all="ignore"):
        products = np.einsum(every, *operands).reshape(shape)
        infinite = np.einsum(every, *(np.isinf(x).astype(np.int8) + 1 for x in operands)).reshape(shape) > 1
    return summed(result, products, infinite, turn)


def may_overflow(operands: Sequence[Array], terms: int) -> bool:
    """Whether sums of so many products of the numbers of some arrays may leave the range of their dtype."""
    with np.errstate(all="ignore"):
        most = math.prod(float(np.abs(each).max(initial=0)) for each in operands) * terms
    return not most < float(np.finfo(operands[0].dtype).max)  # NaN is not less
