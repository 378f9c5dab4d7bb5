"""The unfused computation with other, equally right roundings: moved inputs, results up or down, sums in other orders.

Moves of the inputs alone miss what a function or a difference makes of the rounding before it: one right log-softmax in
10^4 cells of 3 columns is then beyond what is allowed, and every other asin(tanh(x)) in float64. Where a result is
exact nothing is rounded, so counters and masks in floats stay what they are.

Where a sum overflows on its way, or meets an infinity, it ends as inf, -inf or NaN as the order of its terms has it. No
order is more right than another, so each of the four that are tried is an unfused run like any other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from string import ascii_letters
from typing import Any, assert_never

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, product
from noyau.ir.graph import Contract, Graph, Input, Map, Node, Reduce, Scan
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.verify.floats import FORMATS, PATTERN, move_ulps, repeat_block, shift_ulps

Array = np.ndarray
Arrays = Mapping[str, np.ndarray]
Direction = Callable[[Any, Any], Any]  # where a result moves, by itself and by what rounding took from it
DIRECTIONS: tuple[Direction, ...] = (
    lambda result, lost: lost > 0,  # IEEE 754's own: up, down, away from 0, towards it
    lambda result, lost: lost < 0,
    lambda result, lost: (lost > 0) != (result < 0),
    lambda result, lost: (lost > 0) == (result < 0),
)
TURNS = 4  # as it is; what is above 0 first; what is below 0 first; each by itself, then both


def reorder_sum(result: Array, terms: Array, infinite: Array, turn: int) -> Array:
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


def reorder_contraction(equation: str, result: Array, operands: Sequence[Array], turn: int) -> Array:
    """`result`, the einsum of two operands, as its sums end in another order."""
    (first, second), output = equation.partition("->")[0].split(","), equation.partition("->")[2]
    extents = dict(zip(first + second, chain.from_iterable(x.shape for x in operands), strict=True))
    added = "".join(letter for letter in extents if letter not in output)
    terms = math.prod(extents[letter] for letter in added)
    if turn % TURNS == 0 or math.prod(extents.values()) > CELLS or not may_overflow(operands, terms):
        return result
    every = f"{first},{second}->{output}{added}"
    shape = (*result.shape, terms)
    with np.errstate(all="ignore"):
        products = np.einsum(every, *operands).reshape(shape)
        infinite = np.einsum(every, *(np.isinf(x).astype(np.int8) + 1 for x in operands)).reshape(shape) > 1
    return reorder_sum(result, products, infinite, turn)


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
    return RandomRounding(sizes, rng, turn).run(rebracket(graph, turn, sizes), inputs)


def move_runs(graph: Graph, inputs: Arrays, seed: int, count: int) -> Iterator[Arrays]:
    """Unfused runs that are rounded otherwise; without those in which an index leaves its table."""
    rng = np.random.default_rng([seed, count])
    for turn in range(count):
        with suppress(InputError):
            yield otherwise_rounded(graph, inputs, rng, turn)


def longer_runs(graph: Graph, inputs: Arrays, seed: int, directions: Sequence[Direction | None]) -> Iterator[Arrays]:
    """Unfused runs that keep more bits than the graph's floats have, as right kernels do: in float32 where there are
    shorter ones, and in float64, as the truth itself is, so that a cell shows what the truth loses where it cancels.

    One of each width is rounded in each direction: DIRECTIONS show a cancellation that hangs on one rounding or on two
    that go together; without a direction each result is rounded at random, and inputs move by an ulp of that width."""
    rng = np.random.default_rng([seed, len(directions)])
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    shortest = shortest_of(graph)
    widths = [width for width in LONG if width.bytes > shortest] or LONG[-1:]
    for width, (number, direction) in itertools.product(widths, enumerate(directions)):
        with suppress(InputError):
            yield RandomRounding(sizes, rng, 0 if direction else number, width, direction).run(graph, inputs)


def shortest_of(graph: Graph) -> int:
    """The bytes of the shortest floats of a graph; of one without, those of the longest."""
    return min((node.dtype.bytes for node in graph.nodes if node.dtype.is_float), default=LONG[-1].bytes)


class WideEvaluator(Evaluator):
    """An evaluation that keeps floats shorter than `width` in as many bits as that has, where it is given."""

    def __init__(self, sizes: Mapping[str, int], width: DType | None = None) -> None:
        super().__init__(False, sizes)
        self.width = width

    def dtype(self, dtype: DType) -> np.dtype:
        is_short = self.width is not None and dtype.is_float and dtype.bytes < self.width.bytes
        return (self.width if self.width is not None and is_short else dtype).numpy


class RandomRounding(WideEvaluator):
    """An evaluation that rounds up or down at random, or in a `direction`."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        rng: np.random.Generator,
        turn: int = 0,
        width: DType | None = None,
        direction: Direction | None = None,
    ) -> None:
        super().__init__(sizes, width)
        self.rng, self.turn, self.direction = rng, turn, direction
        self.overflows: dict[str, np.ndarray] = {}  # of products: which cells are infinite for their size alone
        self.products: dict[str, np.ndarray] = {}  # those products with more bits

    def value(self, node: Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        result = self.in_turn(node, super().value(node, operands, inputs), operands)
        if isinstance(node.kind, Input) and node.dtype.is_float:
            return move_ulps(result, self.rng) if self.direction is None else result
        kept = self.dtype(node.dtype)
        if node.kind == Map("cast") and kept == np.float32 and operands[0].dtype == np.float64:
            return self.round(result, operands[0])  # the cast hides how its operand was moved
        if kept not in LONGER or not is_rounded(node, kept):
            return result
        if kept == np.float64 and isinstance(node.kind, Map) and node.kind.function in ("add", "subtract"):
            return self.shift(result, rounding_loss(node.kind.function, operands, result))
        if isinstance(node.kind, Reduce) and node.kind.monoid == "sum":
            return self.shift(result, sum_loss(operands[0], node.kind.axes, result))
        exact = Longer(self.sizes, self.width).value(node, [_longer(each) for each in operands], inputs)
        if isinstance(node.kind, Map) and has(node.kind.function, Fact.BELOW_ONE | Fact.LEAVES_ONE):
            unseen = (exact == result) & np.isfinite(operands[0]) & (operands[0] != 0)  # no such number is exact
            side = np.where(operands[0] > 0, 2, 0) if has(node.kind.function, Fact.LEAVES_ONE) else 0
            exact = np.where(unseen, exact * np.nextafter(exact.dtype.type(1), np.asarray(side, exact.dtype)), exact)
        return self.round(result, exact)

    def in_turn(self, node: Node, result: Any, operands: Sequence[Any]) -> Any:
        """The result, of sums in the order of this run."""
        if self.turn % TURNS == 0 or self.dtype(node.dtype) not in LONGER:
            return result
        match node.kind:
            case Map("multiply"):
                self.overflows[node.output] = np.isinf(result) & np.isfinite(operands[0]) & np.isfinite(operands[1])
                self.products[node.output] = np.multiply(*map(_longer, operands))
            case Map("add" | "subtract" as function):
                return self.at_once(function == "subtract", node.inputs, result, operands)
            case Contract(equation):
                return reorder_contraction(equation, result, operands, self.turn)
            case Reduce("sum", axes):
                infinite = np.isinf(operands[0]) & ~self.overflows.get(node.inputs[0], np.array(False))
                count = math.prod(operands[0].shape[axis] for axis in axes)
                last, shape = tuple(range(-len(axes), 0)), (*result.shape, count)
                terms, always = (np.moveaxis(x, axes, last).reshape(shape) for x in (operands[0], infinite))
                return reorder_sum(result, terms, always, self.turn)
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

    def round(self, result: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """The result, or the neighbour of it on the other side of the exact one."""
        with np.errstate(invalid="ignore"):
            return self.shift(result, np.where(np.isfinite(exact), exact - result, 0))

    def shift(self, result: np.ndarray, lost: np.ndarray) -> np.ndarray:
        """The result, or the neighbour of it on the side of what was lost by rounding it."""
        if self.direction is None:
            goes = repeat_block(self.rng.random(min(result.size, PATTERN)) < 0.5, result.shape)
        else:
            goes = self.direction(result, lost)
        moves = goes & np.isfinite(result) & np.isfinite(lost) & (lost != 0)
        above = lost > 0
        bits = result.view(f"i{result.itemsize}")  # the next number away from 0 is the next in bits too
        steps = np.where(above == (bits >= 0), np.int8(1), np.int8(-1))
        shifted = np.asarray(bits + moves * steps).view(result.dtype)
        odd = moves & ((result == 0) | np.isinf(shifted))  # rare
        if odd.any():
            other = np.nextafter(result, np.where(above, *ENDS[result.dtype]))
            shifted = np.where(odd, np.where(np.isfinite(other), other, result), shifted)
        return shifted


def rounding_loss(function: str, operands: Sequence[Any], result: Any) -> Any:
    """The part that rounding took from a sum or difference, exactly (Knuth's two-sum): more bits do not see what is
    added to a number that is larger by more than they reach, as the exp(-50) of 1 + exp(-50)."""
    one, other = operands[0], -operands[1] if function == "subtract" else operands[1]
    with np.errstate(all="ignore"):
        share = result - one
        return (one - (result - share)) + (other - share)


def sum_loss(terms: np.ndarray, axes: Sequence[int], result: Any) -> Any:
    """The part that rounding took from a sum over some axes: what is lost where it is added in pairs, and between that
    sum and this one."""
    count = math.prod(terms.shape[axis] for axis in axes)
    total = np.moveaxis(terms, axes, range(-len(axes), 0)).reshape(*np.shape(result), count)
    lost: Any = np.zeros_like(result)
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        one, other, odd = total[..., :half], total[..., half : 2 * half], total[..., 2 * half :]
        with np.errstate(all="ignore"):
            pairs = one + other
            lost = lost + rounding_loss("add", (one, other), pairs).sum(-1)
        total = np.concatenate([pairs, odd], axis=-1)
    with np.errstate(all="ignore"):
        return total.sum(-1) - result + lost


def _longer(array: np.ndarray) -> np.ndarray:
    """The same numbers with more bits, where there is such a dtype."""
    return array.astype(LONGER[array.dtype]) if array.dtype in LONGER else array


class Longer(WideEvaluator):
    """An evaluation of one node with more bits than its dtype has, or those in which it is kept."""

    def dtype(self, dtype: DType) -> np.dtype:
        kept = super().dtype(dtype)
        return LONGER.get(kept, kept)


def is_rounded(node: Node, kept: np.dtype) -> bool:
    """Whether its result, kept in a dtype, is not exact, and can be had with more bits."""
    match node.kind:
        case Map(function):
            return has(function, Fact.ROUNDS) or OPERATORS[function].ulp > 0
        case Reduce(monoid, _):
            return not MONOIDS[monoid].exact and (bool(MONOIDS[monoid].function) or kept == np.float32)
        case Scan(monoid, _):
            return not MONOIDS[monoid].exact and kept == np.float32
        case Contract():
            return kept == np.float32
        case _:
            return False


# Chains of products in other brackets multiply other numbers by an infinity in each. No bracketing is more right
# than another: each that is tried, three of a chain, is an unfused run like any other.
BRACKETS = 3  # of a chain of products: as it is, from its other side, in pairs
CELLS = 1 << 22  # of all terms of a product; of more the order is left as it is
WORK = 1 << 28  # multiplications of a product that another bracketing makes: a tenth of a second
LONG = (DType.F32, DType.F64)  # which overflow seldom enough: in float16 a product of two usual ones is often infinite


def rebracket(graph: Graph, turn: int, sizes: Mapping[str, int]) -> Graph:
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
        replacement = self.rebracket(node)
        if not self.once:
            self.nodes[node.output] = replacement
        return [*self.fresh, replacement]

    def rebracket(self, node: Node) -> Node:
        """The node, as a product whose left operand is none, or else whose right one is none."""
        if not isinstance(node.kind, Contract) or node.dtype not in LONG:
            return node
        return self.rightwards(node, lambda each: each) or self.rightwards(node, _mirror) or node

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
        shapes = (self.nodes[name].shape for name in (*left.inputs, outer.inputs[1]))
        extents = dict(zip(first + second + third, chain.from_iterable(shapes), strict=True))
        inner = "".join(dict.fromkeys(letter for letter in second + third if letter in first + output))
        if not self.is_small(extents, CELLS, inner) or not self.is_small(extents, WORK, second + third, first + inner):
            return None
        shape = tuple[Dim, ...](extents[letter] for letter in inner)
        name = f"{node.output}, in other brackets, {len(self.fresh)}"
        operands = (left.inputs[1], outer.inputs[1])
        later = view(Node(name, Contract(f"{second},{third}->{inner}"), operands, node.dtype, shape))
        later = later if self.once else self.rebracket(later)
        self.fresh.append(later)
        self.nodes[name] = later
        return view(replace(outer, kind=Contract(f"{first},{inner}->{output}"), inputs=(left.inputs[0], name)))

    def is_small(self, extents: Mapping[str, Dim], most: int, *terms: str) -> bool:
        """Whether the axes of each of some terms together have no more cells; sizes that no input tells are large."""
        cells = [product([extents[letter] for letter in dict.fromkeys(term)]) for term in terms]
        is_bound = all(self.sizes.keys() >= each.names for each in cells)
        return is_bound and all(int(each.evaluate(self.sizes)) <= most for each in cells)


def _mirror(node: Node) -> Node:
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


SHIFTS = (0, -1, 1, -2, 2)  # ulp


def step_values(graph: nodes.Graph) -> frozenset[str]:
    """The values that depend on float inputs only through steps: roundings, comparisons, casts to integers.

    Between two jumps such a value does not depend on them at all."""
    depends = nodes.downstream(graph, [node.output for node in graph.inputs if node.dtype.is_float])
    return frozenset(depends - _smooth(graph))


def jumping(graph: nodes.Graph) -> frozenset[str]:
    """The values that jump where an operand moves with float inputs: roundings, comparisons, casts to integers."""
    smooth = _smooth(graph)
    maps = (node for node in graph.nodes if isinstance(node.kind, nodes.Map))
    jumps = (node for node in maps if (set(node.inputs) - set(_continuous(node))) & smooth)
    return frozenset(node.output for node in jumps)


def _smooth(graph: nodes.Graph) -> set[str]:
    """The values that move with float inputs, also between jumps."""
    names = {node.output for node in graph.inputs if node.dtype.is_float}
    for node in graph.nodes:
        if names.intersection(_continuous(node)):
            names.add(node.output)
    return names


def _continuous(node: nodes.Node) -> tuple[str, ...]:
    """The operands that a value follows without jumps, or between its jumps."""
    match node.kind:
        case nodes.Map("cast"):
            return node.inputs if node.dtype.is_float else ()  # to a float8 it jumps
        case nodes.Map("where"):
            return node.inputs[1:]
        case nodes.Map(function):
            return () if has(function, Fact.STEPS) or OPERATORS[function].result == "bool" else node.inputs
        case nodes.Reduce(monoid, _) | nodes.Scan(monoid, _):
            return () if MONOIDS[monoid].result(DType.F32) is DType.I64 else node.inputs
        case nodes.Gather():
            return node.inputs[:1]
        case nodes.Scatter():
            return (node.inputs[0], node.inputs[2])
        case nodes.Opaque() | nodes.Part() | nodes.Contract() | nodes.View() | nodes.Select():
            return node.inputs
        case nodes.Input() | nodes.Constant() | nodes.Iota():
            return ()
        case _:
            assert_never(node.kind)


def runs_at_jumps(graph: nodes.Graph, inputs: Arrays) -> Iterator[Arrays]:
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
                values = ShiftedEvaluator(sizes, jumps, steps, in_storage).run(graph, inputs)
                yield {name: value.astype(graph[name].dtype.numpy, copy=False) for name, value in values.items()}


class ShiftedEvaluator(Evaluator):
    """An evaluation that gives what jumps another number, so many ulp further from 0. Where not `in_storage`, floats
    shorter than float32 are rounded as inputs alone."""

    def __init__(self, sizes: Mapping[str, int], jumps: Collection[str], steps: int, in_storage: bool) -> None:
        super().__init__(False, sizes)
        self.jumps, self.steps, self.in_storage = jumps, np.int8(steps), in_storage

    def dtype(self, dtype: DType) -> np.dtype:
        return (dtype if self.in_storage else dtype.compute).numpy

    def value(self, node: nodes.Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        if node.output in self.jumps and from_numpy(operands[0].dtype) in FORMATS:
            operands = [shift_ulps(operands[0], self.steps), *operands[1:]]
        return super().value(node, operands, inputs)
