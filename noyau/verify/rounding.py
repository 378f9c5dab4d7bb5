"""The unfused computation with other, equally right roundings: moved inputs, results up or down, sums in other orders.

Moves of the inputs alone miss what a function or a difference makes of the rounding before it: one right log-softmax in
10^4 cells of 3 columns is then beyond what is allowed, and every other asin(tanh(x)) in float64. Where a result is
exact nothing is rounded, so counters and masks in floats stay what they are.

Where a sum overflows on its way, or meets an infinity, it ends as inf, -inf or NaN as the order of its terms has it. No
order is more right than another, so each of the four that are tried is an unfused run like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import Contract, Graph, Input, Map, Node, Reduce, Scan
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.verify.brackets import CELLS, LONG, bracketed
from noyau.verify.floats import PATTERN, moved, repeated
from noyau.verify.jumps import Arrays

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


LONGER: dict[np.dtype[Any], np.dtype[Any]] = {np.dtype("f4"): np.dtype("f8"), np.dtype("f8"): np.dtype(np.longdouble)}
ENDS = {dtype: (dtype.type(np.inf), dtype.type(-np.inf)) for dtype in LONGER}


def otherwise_rounded(graph: Graph, inputs: Arrays, rng: np.random.Generator, turn: int = 0) -> dict[str, np.ndarray]:
    """The outputs of an unfused run with each float input moved by -1, 0 or +1 ulp, and each float32 or float64 result
    that is not exact rounded up or down at random. Shorter floats are rounded coarsely enough as it is. `turn`: the
    order of sums that overflow, or meet an infinity, and of chains of products; 0 is that of the graph. InputError
    where an index leaves its table."""
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    return RandomRounding(sizes, rng, turn).run(bracketed(graph, turn, sizes), inputs)


def moved_runs(graph: Graph, inputs: Arrays, seed: int, count: int) -> Iterator[Arrays]:
    """Unfused runs that are rounded otherwise; without those in which an index leaves its table."""
    rng = np.random.default_rng([seed, count])
    for turn in range(count):
        with suppress(InputError):
            yield otherwise_rounded(graph, inputs, rng, turn)


class RandomRounding(Evaluator):
    """An evaluation that rounds up or down at random."""

    def __init__(self, sizes: Mapping[str, int], rng: np.random.Generator, turn: int = 0) -> None:
        super().__init__(False, sizes)
        self.rng, self.turn = rng, turn
        self.overflows: dict[str, np.ndarray] = {}  # of products: which cells are infinite for their size alone
        self.products: dict[str, np.ndarray] = {}  # those products with more bits

    def value(self, node: Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        result = self.in_turn(node, super().value(node, operands, inputs), operands)
        if isinstance(node.kind, Input) and node.dtype.is_float:
            return moved(result, self.rng)
        if node.kind == Map("cast") and node.dtype is DType.F32 and operands[0].dtype == np.float64:
            return self.rounded(result, operands[0])  # the cast hides how its operand was moved
        if node.dtype not in LONG or not is_rounded(node):
            return result
        exact = Longer(self.wide, self.sizes).value(node, [_longer(each) for each in operands], inputs)
        if isinstance(node.kind, Map) and has(node.kind.function, Fact.BELOW_ONE):
            reached = (np.abs(exact) == 1) & np.isfinite(operands[0])
            exact = np.where(reached, exact * np.nextafter(exact.dtype.type(1), exact.dtype.type(0)), exact)
        return self.rounded(result, exact)

    def in_turn(self, node: Node, result: Any, operands: Sequence[Any]) -> Any:
        """The result, of sums in the order of this run."""
        if self.turn % TURNS == 0 or node.dtype not in LONG:
            return result
        match node.kind:
            case Map("multiply"):
                self.overflows[node.output] = np.isinf(result) & np.isfinite(operands[0]) & np.isfinite(operands[1])
                self.products[node.output] = np.multiply(*map(_longer, operands))
            case Map("add" | "subtract" as function):
                return self.at_once(function == "subtract", node.inputs, result, operands)
            case Contract(equation):
                return contracted(equation, result, operands, self.turn)
            case Reduce("sum", axes):
                infinite = np.isinf(operands[0]) & ~self.overflows.get(node.inputs[0], np.array(False))
                count = math.prod(operands[0].shape[axis] for axis in axes)
                last, shape = tuple(range(-len(axes), 0)), (*result.shape, count)
                terms, always = (np.moveaxis(x, axes, last).reshape(shape) for x in (operands[0], infinite))
                return summed(result, terms, always, self.turn)
            case _:
                pass
        return result

    def at_once(self, minus: bool, names: Sequence[str], result: Any, operands: Sequence[Any]) -> Any:
        """A sum or difference to which the first operand, or in another turn the second, is a product, as it ends where
        it is multiplied and added at once: a product that overflows alone, and one of which what is added leaves
        nothing but its rounding, as its mean does over an extent of 1."""
        at = self.turn % TURNS - 1
        if at > 1 or names[at] not in self.products:
            return result
        terms = [_longer(each) for each in operands]
        terms[at] = self.products[names[at]]
        with np.errstate(all="ignore"):
            total: Any = (terms[0] - terms[1] if minus else terms[0] + terms[1]).astype(result.dtype)
        return total

    def rounded(self, result: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """The result, or the neighbour of it on the other side of the exact one."""
        coins = repeated(self.rng.random(min(result.size, PATTERN)) < 0.5, result.shape)
        moves = coins & (exact != result) & np.isfinite(result) & np.isfinite(exact)
        above = exact > result
        bits = result.view(f"i{result.itemsize}")  # the next number away from 0 is the next in bits too
        steps = np.where(above == (bits >= 0), np.int8(1), np.int8(-1))
        shifted = np.asarray(bits + moves * steps).view(result.dtype)
        odd = moves & ((result == 0) | np.isinf(shifted))  # rare
        if odd.any():
            other = np.nextafter(result, np.where(above, *ENDS[result.dtype]))
            shifted = np.where(odd, np.where(np.isfinite(other), other, result), shifted)
        return shifted


def _longer(array: np.ndarray) -> np.ndarray:
    """The same numbers with more bits, where there is such a dtype."""
    return array.astype(LONGER[array.dtype]) if array.dtype in LONGER else array


class Longer(Evaluator):
    """An evaluation of one node with more bits than its dtype has."""

    def dtype(self, dtype: DType) -> np.dtype:
        return LONGER.get(dtype.numpy, dtype.numpy)


def is_rounded(node: Node) -> bool:
    """Whether its result is not exact, and can be had with more bits."""
    match node.kind:
        case Map(function):
            return has(function, Fact.ROUNDS) or OPERATORS[function].ulp > 0
        case Reduce(monoid, _):
            return not MONOIDS[monoid].exact and (bool(MONOIDS[monoid].function) or node.dtype is DType.F32)
        case Scan(monoid, _):
            return not MONOIDS[monoid].exact and node.dtype is DType.F32
        case Contract():
            return node.dtype is DType.F32
        case _:
            return False
