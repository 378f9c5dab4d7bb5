"""The unfused computation with other, equally right roundings: inputs moved by an ulp, results rounded up or down, sums
in other orders of their terms, as a kernel or a library may add them up.

Moves of the inputs alone miss what a function or a difference makes of the rounding before it: one right log-softmax in
10^4 cells of 3 columns is then beyond what is allowed, and every other asin(tanh(x)) in float64. Where a result is
exact nothing is rounded, so counters and masks in floats stay what they are.

Where no sum overflows, order is a matter of rounding. Where one does on its way, or meets an infinity, it ends as inf,
-inf or NaN as the order has it: -1e308 - 1e308 + 1e308 + 1e308 is 0, -inf, inf or NaN. A term that overflows alone may
be finite to a sum that multiplies and adds at once. A chain of products multiplies other numbers by an infinity in each
bracketing. No order is more right than another, so each that is tried, four of sums and three of chains, is an unfused
run like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from string import ascii_letters
from typing import Any, assert_never

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError
from noyau.ir.dims import Dim, product
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Graph,
    Input,
    Iota,
    Map,
    Node,
    Opaque,
    Part,
    Reduce,
    Scan,
    Scatter,
    Select,
    View,
    downstream,
)
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.verify.floats import FORMATS, PATTERN, moved, repeated, shifted

Arrays = Mapping[str, np.ndarray]
SHIFTS = (0, -1, 1, -2, 2)  # ulp

LONGER: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.float64): np.dtype(np.longdouble),
}
ENDS = {dtype: (dtype.type(np.inf), dtype.type(-np.inf)) for dtype in LONGER}
Array = np.ndarray
TURNS = 4  # as it is; what is above 0 first; what is below 0 first; each by itself, then both
BRACKETS = 3  # of a chain of products: as it is, from its other side, in pairs
CELLS = 1 << 22  # of all terms of a product; of more the order is left as it is
WORK = 1 << 28  # multiplications of a product that another bracketing makes: a tenth of a second
LONG = (DType.F32, DType.F64)  # which overflow seldom enough: in float16 a product of two usual ones is often infinite


def stepped(graph: Graph) -> frozenset[str]:
    """The values that depend on float inputs only through steps: roundings, comparisons, casts to integers.

    Between two jumps such a value does not depend on them at all."""
    depends = downstream(graph, [node.output for node in graph.inputs if node.dtype.is_float])
    return frozenset(depends - _smooth(graph))


def jumping(graph: Graph) -> frozenset[str]:
    """The values that jump where an operand moves that does so with float inputs: roundings, comparisons, casts to
    integers; not what is made of such."""
    smooth = _smooth(graph)
    maps = (node for node in graph.nodes if isinstance(node.kind, Map))
    jumps = (node for node in maps if (set(node.inputs) - set(_continuous(node))) & smooth)
    return frozenset(node.output for node in jumps)


def _smooth(graph: Graph) -> set[str]:
    """The values that move with float inputs, also between jumps."""
    names = {node.output for node in graph.inputs if node.dtype.is_float}
    for node in graph.nodes:
        if names.intersection(_continuous(node)):
            names.add(node.output)
    return names


def _continuous(node: Node) -> tuple[str, ...]:
    """The operands that a value follows without jumps, or between its jumps."""
    match node.kind:
        case Map("cast"):
            return node.inputs if node.dtype.is_float else ()  # to a float8 it jumps
        case Map("where"):
            return node.inputs[1:]
        case Map(function):
            return () if has(function, Fact.STEPS) or OPERATORS[function].result == "bool" else node.inputs
        case Reduce(monoid, _) | Scan(monoid, _):
            return () if MONOIDS[monoid].result(DType.F32) is DType.I64 else node.inputs
        case Gather():
            return node.inputs[:1]
        case Scatter():
            return (node.inputs[0], node.inputs[2])
        case Opaque() | Part() | Contract() | View() | Select():
            return node.inputs
        case Input() | Constant() | Iota():
            return ()
        case _:
            assert_never(node.kind)


def otherwise_rounded(graph: Graph, inputs: Arrays, rng: np.random.Generator, turn: int = 0) -> dict[str, np.ndarray]:
    """The outputs of an unfused run with each float input moved by -1, 0 or +1 ulp, and each float32 or float64 result
    that is not exact rounded up or down at random. Shorter floats are rounded coarsely enough as it is. `turn`: the
    order of sums that overflow, or meet an infinity, and of chains of products; 0 is that of the graph.

    InputError where an index leaves its table."""
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    return RandomRounding(sizes, rng, turn).run(bracketed(graph, turn, sizes), inputs)


def moved_runs(graph: Graph, inputs: Arrays, seed: int, count: int) -> Iterator[Arrays]:
    """Unfused runs that are rounded otherwise; without those in which an index leaves its table."""
    rng = np.random.default_rng([seed, count])
    for turn in range(count):
        with suppress(InputError):
            yield otherwise_rounded(graph, inputs, rng, turn)


def runs_at_jumps(graph: Graph, inputs: Arrays) -> Iterator[Arrays]:
    """The outputs of unfused runs in which what jumps, as a rounding, a comparison or a cast to integers does, is given
    a number that is up to 2 ulp away from its own on either side, as every number may be; so a cell whose argument lies
    by a jump may be on either side of it. Where there are shorter floats, also of runs that compute in float32 until
    the end, as a kernel does. None of those in which an index leaves its table."""
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    jumps = jumping(graph)
    is_short = any(node.dtype.is_float and node.dtype.compute is not node.dtype for node in graph.nodes)
    for in_storage in (True, False) if is_short else (True,):
        for steps in SHIFTS if jumps else ():
            with suppress(InputError):
                values = Shifted(sizes, jumps, steps, in_storage).run(graph, inputs)
                yield {name: value.astype(graph[name].dtype.numpy, copy=False) for name, value in values.items()}


class Shifted(Evaluator):
    """An evaluation that gives what jumps another number, so many ulp further from 0. Where not `in_storage`, floats
    shorter than float32 are rounded as inputs alone."""

    def __init__(self, sizes: Mapping[str, int], jumps: Collection[str], steps: int, in_storage: bool) -> None:
        super().__init__(False, sizes)
        self.jumps, self.steps, self.in_storage = jumps, np.int8(steps), in_storage

    def dtype(self, dtype: DType) -> np.dtype:
        return (dtype if self.in_storage else dtype.compute).numpy

    def value(self, node: Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        if node.output in self.jumps and from_numpy(operands[0].dtype) in FORMATS:
            operands = [shifted(operands[0], self.steps), *operands[1:]]
        return super().value(node, operands, inputs)


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
        if is_narrowing(node, operands):
            return self.rounded(result, operands[0])
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
            case Map("multiply") if np.isinf(result).any():
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
        """A sum or difference to which the first operand, or in another turn the second, is a product that overflows
        alone, as it ends where it is multiplied and added at once."""
        at = self.turn % TURNS - 1
        if at > 1 or names[at] not in self.overflows:
            return result
        terms = [_longer(each) for each in operands]
        terms[at] = self.products[names[at]]
        with np.errstate(all="ignore"):
            total = (terms[0] - terms[1] if minus else terms[0] + terms[1]).astype(result.dtype)
        return np.where(self.overflows[names[at]], total, result)

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
            ends = np.where(above, *ENDS[result.dtype])
            other = np.nextafter(result, ends)
            shifted = np.where(odd, np.where(np.isfinite(other), other, result), shifted)
        return shifted


def _longer(array: np.ndarray) -> np.ndarray:
    """The same numbers with more bits, where there is such a dtype."""
    return array.astype(LONGER[array.dtype]) if array.dtype in LONGER else array


class Longer(Evaluator):
    """An evaluation of one node with more bits than its dtype has."""

    def dtype(self, dtype: DType) -> np.dtype:
        return LONGER.get(dtype.numpy, dtype.numpy)


def is_narrowing(node: Node, operands: Sequence[Any]) -> bool:
    """Whether it casts a float64 to float32, which hides how its operand was moved."""
    return node.dtype is DType.F32 and node.kind == Map("cast") and operands[0].dtype == np.float64


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


def bracketed(graph: Graph, turn: int, sizes: Mapping[str, int]) -> Graph:
    """A graph in which chains of float32 or float64 products, ((a b) c) d, are as they are, a (b (c d)) or (a b) (c d),
    in turns, and those that begin from the right likewise from the left; the same graph where there are none, or where
    at these sizes the other bracketing needs a product of more than CELLS cells, or of more work than WORK."""
    if turn % BRACKETS == 0:
        return graph
    rewriter = _Bracketing(dict(graph.by_name), sizes, once=turn % BRACKETS == 2)
    nodes = [each for node in graph.nodes for each in rewriter.with_fresh(node)]
    return replace(graph, nodes=tuple(nodes)) if len(nodes) > len(graph.nodes) else graph


@dataclass(slots=True)
class _Bracketing:
    """The nodes by name, as they are by now, and those that the last one needs before it. `once`: a product changes
    places with its operand alone, not with what that has become."""

    nodes: dict[str, Node]
    sizes: Mapping[str, int]
    once: bool
    fresh: list[Node] = field(default_factory=list)

    def with_fresh(self, node: Node) -> list[Node]:
        """The node, after those that it needs."""
        self.fresh = []
        replacement = self.placed(node)
        if not self.once:
            self.nodes[node.output] = replacement
        return [*self.fresh, replacement]

    def placed(self, node: Node) -> Node:
        """The node, as a product whose left operand is none, or else whose right one is none."""
        if not isinstance(node.kind, Contract) or node.dtype not in LONG:
            return node
        replacement = self.rightwards(node, lambda each: each)
        return replacement or self.rightwards(node, _mirrored) or node

    def rightwards(self, node: Node, view: Callable[[Node], Node]) -> Node | None:
        """(a b) c as a (b c), or mirrored; None where the operand is no product, or the new inner one is too large."""
        outer = view(node)
        left = self.nodes[outer.inputs[0]]
        if not isinstance(left.kind, Contract) or left.dtype is not node.dtype:
            return None
        left = view(left)
        assert isinstance(left.kind, Contract) and isinstance(outer.kind, Contract)
        terms = three_terms(left.kind.equation, outer.kind.equation)
        if terms is None:
            return None
        first, second, third, output = terms
        extents = {
            letter: dim
            for term, name in ((first, left.inputs[0]), (second, left.inputs[1]), (third, outer.inputs[1]))
            for letter, dim in zip(term, self.nodes[name].shape, strict=True)
        }
        inner = "".join(dict.fromkeys(letter for letter in second + third if letter in first + output))
        if not self.is_small(extents, CELLS, inner) or not self.is_small(extents, WORK, second + third, first + inner):
            return None
        shape = tuple[Dim, ...](extents[letter] for letter in inner)
        name = f"{node.output}, in other brackets, {len(self.fresh)}"
        operands = (left.inputs[1], outer.inputs[1])
        later = view(Node(name, Contract(f"{second},{third}->{inner}"), operands, node.dtype, shape))
        later = later if self.once else self.placed(later)
        self.fresh.append(later)
        self.nodes[name] = later
        return view(replace(outer, kind=Contract(f"{first},{inner}->{output}"), inputs=(left.inputs[0], name)))

    def is_small(self, extents: Mapping[str, Dim], most: int, *terms: str) -> bool:
        """Whether the axes of each of some terms together have no more cells; sizes that no input tells are large."""
        cells = [product([extents[letter] for letter in dict.fromkeys(term)]) for term in terms]
        is_bound = all(self.sizes.keys() >= each.names for each in cells)
        return is_bound and all(int(each.evaluate(self.sizes)) <= most for each in cells)


def _mirrored(node: Node) -> Node:
    """The same product with its operands in the other order."""
    assert isinstance(node.kind, Contract)
    terms, output = node.kind.equation.split("->")
    first, second = terms.split(",")
    return replace(node, kind=Contract(f"{second},{first}->{output}"), inputs=node.inputs[::-1])


def three_terms(inner: str, outer: str) -> tuple[str, str, str, str] | None:
    """The letters of a, b, c and the result of two einsums, of which the first is the left operand of the second, with
    one name for each axis. None where a term has an axis twice, or there are not enough letters."""
    (first, second), middle = inner.partition("->")[0].split(","), inner.partition("->")[2]
    (product, third), output = outer.partition("->")[0].split(","), outer.partition("->")[2]
    if any(len(set(term)) < len(term) for term in (first, second, middle, product, third, output)):
        return None
    free = iter([letter for letter in ascii_letters if letter not in outer])
    names: Mapping[str, str] = dict(zip(middle, product, strict=True))
    for letter in dict.fromkeys(first + second):
        if letter not in names:
            names = {**names, letter: next(free, "")}
    if not all(names.values()):
        return None
    renamed = ["".join(names[letter] for letter in term) for term in (first, second)]
    return renamed[0], renamed[1], third, output
