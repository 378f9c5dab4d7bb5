"""The unfused computation with other, equally right roundings: moved inputs, results up or down, sums in other orders.

Moved inputs alone do not show how functions and differences amplify earlier roundings: with them alone, one right
log-softmax in 10^4 cells of 3 columns exceeds the allowance, and every other asin(tanh(x)) in float64. Exact results
are not rounded, so counters and masks in floats stay unchanged.

A sum whose partial sums overflow, or with infinite terms, is inf, -inf or NaN depending on the order of its terms. No
order is more right than another, so each of the four that are tried counts as an unfused run."""

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
Direction = Callable[[Any, Any], Any]  # (result, lost part) -> mask of cells that move towards the lost part
DIRECTIONS: tuple[Direction, ...] = (
    lambda result, lost: lost > 0,  # the directed roundings of IEEE 754: up, down, and away from 0 and towards it
    lambda result, lost: lost < 0,
    lambda result, lost: (lost > 0) != (result < 0),
    lambda result, lost: (lost > 0) == (result < 0),
)
TURNS = 4  # orders of a sum: unchanged; positive terms first; negative first; both separately, then their sum
SHIFTS = (0, -1, 1, -2, 2)  # ulp


def reorder_sum(result: Array, terms: Array, infinite: Array, turn: int) -> Array:
    """The sums `result` over the last axis of `terms`, as they are in another order, `turn`. `infinite`: terms of
    infinite operands, which are infinite in every order; other terms may overflow."""
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
    """The einsum `result` of two operands with its sums in another order, `turn`."""
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
    """Whether a sum of `terms` products of cells of the operands may leave the range of their dtype."""
    with np.errstate(all="ignore"):
        most = math.prod(float(np.abs(each).max(initial=0)) for each in operands) * terms
    return not most < float(np.finfo(operands[0].dtype).max)  # NaN is not less


LONGER: dict[np.dtype[Any], np.dtype[Any]] = {np.dtype("f4"): np.dtype("f8"), np.dtype("f8"): np.dtype(np.longdouble)}
ENDS = {dtype: (dtype.type(np.inf), dtype.type(-np.inf)) for dtype in LONGER}


def otherwise_rounded(graph: Graph, inputs: Arrays, rng: np.random.Generator, turn: int = 0) -> dict[str, np.ndarray]:
    """The outputs of an unfused run with each float input moved by -1, 0 or +1 ulp, and each inexact float32 or float64
    result rounded up or down at random. Shorter floats are rounded coarsely enough anyway. `turn`: the order of sums
    that overflow or have infinite terms, and of chains of products; 0 is the graph's. InputError where an index leaves
    its table."""
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    return RandomRounding(sizes, rng, turn).run(rebracket(graph, turn, sizes), inputs)


def move_runs(graph: Graph, inputs: Arrays, seed: int, count: int) -> Iterator[Arrays]:
    """Unfused runs with other roundings, without those in which an index leaves its table."""
    rng = np.random.default_rng([seed, count])
    for turn in range(count):
        with suppress(InputError):
            yield otherwise_rounded(graph, inputs, rng, turn)


def longer_runs(graph: Graph, inputs: Arrays, seed: int, directions: Sequence[Direction | None]) -> Iterator[Arrays]:
    """Unfused runs with more bits than the graph's floats, as right kernels have: in float32 if the graph has shorter
    ones, and in float64, the width of the truth, which shows the truth's own loss by cancellation.

    There is a run for each width and direction. DIRECTIONS show a cancellation that depends on one rounding or on two
    in the same direction; with None each result is rounded at random, and inputs move by an ulp of the width."""
    rng = np.random.default_rng([seed, len(directions)])
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    shortest = shortest_of(graph)
    widths = [width for width in LONG if width.bytes > shortest] or LONG[-1:]
    for width, (number, direction) in itertools.product(widths, enumerate(directions)):
        with suppress(InputError):
            yield RandomRounding(sizes, rng, 0 if direction else number, width, direction).run(graph, inputs)


def shortest_of(graph: Graph) -> int:
    """The bytes of the shortest float dtype of a graph; without floats those of the longest width."""
    return min((node.dtype.bytes for node in graph.nodes if node.dtype.is_float), default=LONG[-1].bytes)


class WideEvaluator(Evaluator):
    """Evaluator that keeps floats shorter than `width`, if that is given, in `width`."""

    def __init__(self, sizes: Mapping[str, int], width: DType | None = None) -> None:
        super().__init__(False, sizes)
        self.width = width

    def dtype(self, dtype: DType) -> np.dtype:
        is_short = self.width is not None and dtype.is_float and dtype.bytes < self.width.bytes
        return (self.width if self.width is not None and is_short else dtype).numpy


class RandomRounding(WideEvaluator):
    """Evaluator that rounds inexact results up or down at random, or in a `direction`."""

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
        self.overflows: dict[str, np.ndarray] = {}  # of products: a mask of the cells with finite factors that overflow
        self.products: dict[str, np.ndarray] = {}  # the products with more bits

    def value(self, node: Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        result = self.in_turn(node, super().value(node, operands, inputs), operands)
        if isinstance(node.kind, Input) and node.dtype.is_float:
            return move_ulps(result, self.rng) if self.direction is None else result
        kept = self.dtype(node.dtype)
        if node.kind == Map("cast") and kept == np.float32 and operands[0].dtype == np.float64:
            return self.round(result, operands[0])  # otherwise the cast would hide its operand's move
        if kept not in LONGER or not is_rounded(node, kept):
            return result
        if kept == np.float64 and isinstance(node.kind, Map) and node.kind.function in ("add", "subtract"):
            return self.shift(result, rounding_loss(node.kind.function, operands, result))
        if isinstance(node.kind, Reduce) and node.kind.monoid == "sum":
            return self.shift(result, sum_loss(operands[0], node.kind.axes, result))
        exact = Longer(self.sizes, self.width).value(node, [_longer(each) for each in operands], inputs)
        if isinstance(node.kind, Map) and has(node.kind.function, Fact.BELOW_ONE | Fact.LEAVES_ONE):
            unseen = (exact == result) & np.isfinite(operands[0]) & (operands[0] != 0)  # inexact beyond these bits
            side = np.where(operands[0] > 0, 2, 0) if has(node.kind.function, Fact.LEAVES_ONE) else 0
            exact = np.where(unseen, exact * np.nextafter(exact.dtype.type(1), np.asarray(side, exact.dtype)), exact)
        return self.round(result, exact)

    def in_turn(self, node: Node, result: Any, operands: Sequence[Any]) -> Any:
        """The result, with sums in the order of this run."""
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
        """The sum or difference with a product as its first operand (in another turn the second), fused to one multiply
        and add: the product may overflow alone, or the addend may cancel all but its rounding, as the mean of it over
        an extent of 1 does."""
        at = self.turn % TURNS - 1
        if at > 1 or names[at] not in self.products:
            return result
        terms = [_longer(each) for each in operands]
        terms[at] = self.products[names[at]]
        with np.errstate(all="ignore"):
            total: Any = (terms[0] - terms[1] if minus else terms[0] + terms[1]).astype(result.dtype)
        return total

    def round(self, result: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """The result, or its neighbour on the other side of the exact value."""
        with np.errstate(invalid="ignore"):
            return self.shift(result, np.where(np.isfinite(exact), exact - result, 0))

    def shift(self, result: np.ndarray, lost: np.ndarray) -> np.ndarray:
        """The result, or its neighbour in the direction of `lost`, the part that rounding took from it."""
        if self.direction is None:
            goes = repeat_block(self.rng.random(min(result.size, PATTERN)) < 0.5, result.shape)
        else:
            goes = self.direction(result, lost)
        moves = goes & np.isfinite(result) & np.isfinite(lost) & (lost != 0)
        above = lost > 0
        bits = result.view(f"i{result.itemsize}")  # away from 0, neighbouring numbers are neighbouring integers
        steps = np.where(above == (bits >= 0), np.int8(1), np.int8(-1))
        shifted = np.asarray(bits + moves * steps).view(result.dtype)
        odd = moves & ((result == 0) | np.isinf(shifted))  # rare
        if odd.any():
            other = np.nextafter(result, np.where(above, *ENDS[result.dtype]))
            shifted = np.where(odd, np.where(np.isfinite(other), other, result), shifted)
        return shifted


def rounding_loss(function: str, operands: Sequence[Any], result: Any) -> Any:
    """The part that rounding took from a sum or difference, exactly (Knuth's two-sum). More bits would not suffice:
    they lose a far smaller addend, as the exp(-50) of 1 + exp(-50)."""
    one, other = operands[0], -operands[1] if function == "subtract" else operands[1]
    with np.errstate(all="ignore"):
        share = result - one
        return (one - (result - share)) + (other - share)


def sum_loss(terms: np.ndarray, axes: Sequence[int], result: Any) -> Any:
    """The part that rounding took from a sum over some axes: the loss of a pairwise sum, plus the difference between
    that sum and `result`."""
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
    """The array in a dtype with more bits, if there is one."""
    return array.astype(LONGER[array.dtype]) if array.dtype in LONGER else array


class Longer(WideEvaluator):
    """Evaluator with more bits than each dtype, or than the width in which it is kept."""

    def dtype(self, dtype: DType) -> np.dtype:
        kept = super().dtype(dtype)
        return LONGER.get(kept, kept)


def is_rounded(node: Node, kept: np.dtype) -> bool:
    """Whether a node's result in the dtype `kept` is inexact and can be computed with more bits."""
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


# In another bracketing, a chain of products multiplies other intermediate results by an infinity. No bracketing is
# more right than another, so each of the three that are tried counts as an unfused run.
BRACKETS = 3  # of a chain of products: unchanged, from the other side, in pairs
CELLS = 1 << 22  # of all terms of a product; larger products keep their order
WORK = 1 << 28  # multiplications of a product that another bracketing adds: a tenth of a second
LONG = (DType.F32, DType.F64)  # dtypes that overflow seldom; in float16 a product of two usual numbers often does


def rebracket(graph: Graph, turn: int, sizes: Mapping[str, int]) -> Graph:
    """The graph with chains of float32 or float64 products, ((a b) c) d, unchanged, as a (b (c d)) or as (a b) (c d),
    by `turn`; chains that begin from the right are mirrored. A chain stays unchanged if at these sizes the other
    bracketing needs a product of more than CELLS cells or more than WORK multiplications."""
    if turn % BRACKETS == 0:
        return graph
    rewriter = _Bracketing(dict(graph.by_name), sizes, once=turn % BRACKETS == 2)
    nodes = [each for node in graph.nodes for each in rewriter.with_fresh(node)]
    return replace(graph, nodes=tuple(nodes)) if len(nodes) > len(graph.nodes) else graph


@dataclass(slots=True)
class _Bracketing:
    """Rewriter of chains of products. `nodes`: the current nodes by name; `fresh`: new nodes that the last one needs;
    `once`: rebracket a product only with its original operand, not with a rewritten one."""

    nodes: dict[str, Node]
    sizes: Mapping[str, int]
    once: bool
    fresh: list[Node] = field(default_factory=list)

    def with_fresh(self, node: Node) -> list[Node]:
        """The rewritten node, preceded by the new nodes that it needs."""
        self.fresh = []
        replacement = self.rebracket(node)
        if not self.once:
            self.nodes[node.output] = replacement
        return [*self.fresh, replacement]

    def rebracket(self, node: Node) -> Node:
        """The node, rewritten so that its left operand is no product; if that fails, its right one."""
        if not isinstance(node.kind, Contract) or node.dtype not in LONG:
            return node
        return self.rightwards(node, lambda each: each) or self.rightwards(node, _mirror) or node

    def rightwards(self, node: Node, view: Callable[[Node], Node]) -> Node | None:
        """(a b) c as a (b c), or mirrored by `view`; None if the operand is no product or the new one is too large."""
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
        """Whether the extents of the axes of each term multiply to at most `most`; unbound sizes count as large."""
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
    """The terms a, b, c and the result of two einsums, the first of which is the left operand of the second, with
    consistent letters. None where a term has a letter twice, or there are not enough letters."""
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


def step_values(graph: nodes.Graph) -> frozenset[str]:
    """The values that depend on float inputs only by steps: roundings, comparisons, casts to integers.

    Between two jumps such a value is constant."""
    depends = nodes.downstream(graph, [node.output for node in graph.inputs if node.dtype.is_float])
    return frozenset(depends - _smooth(graph))


def jumping(graph: nodes.Graph) -> frozenset[str]:
    """The roundings, comparisons and casts to integers whose operands vary continuously with float inputs."""
    smooth = _smooth(graph)
    maps = (node for node in graph.nodes if isinstance(node.kind, nodes.Map))
    jumps = (node for node in maps if (set(node.inputs) - set(_continuous(node))) & smooth)
    return frozenset(node.output for node in jumps)


def _smooth(graph: nodes.Graph) -> set[str]:
    """The values that vary with float inputs between jumps too."""
    names = {node.output for node in graph.inputs if node.dtype.is_float}
    for node in graph.nodes:
        if names.intersection(_continuous(node)):
            names.add(node.output)
    return names


def _continuous(node: nodes.Node) -> tuple[str, ...]:
    """The operands with which a value varies continuously, or does so between its jumps."""
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
    """The outputs of unfused runs in which the operands of `jumping` values (roundings, comparisons, casts to integers)
    are moved by up to 2 ulp to either side, so that a cell whose operand is near a jump may be on either side of it. If
    the graph has floats shorter than float32, also of runs that compute in float32 to the end, as kernels do. Runs in
    which an index leaves its table are skipped."""
    sizes = graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])
    jumps = jumping(graph)
    is_short = any(node.dtype.is_float and node.dtype.compute is not node.dtype for node in graph.nodes)
    for in_storage in (True, False) if is_short else (True,):
        for steps in SHIFTS if jumps else ():
            with suppress(InputError):
                values = ShiftedEvaluator(sizes, jumps, steps, in_storage).run(graph, inputs)
                yield {name: value.astype(graph[name].dtype.numpy, copy=False) for name, value in values.items()}


class ShiftedEvaluator(Evaluator):
    """Evaluator that moves the first operand of the values `jumps` by `steps` ulp away from 0. Without `in_storage`,
    floats shorter than float32 are rounded only as inputs."""

    def __init__(self, sizes: Mapping[str, int], jumps: Collection[str], steps: int, in_storage: bool) -> None:
        super().__init__(False, sizes)
        self.jumps, self.steps, self.in_storage = jumps, np.int8(steps), in_storage

    def dtype(self, dtype: DType) -> np.dtype:
        return (dtype if self.in_storage else dtype.compute).numpy

    def value(self, node: nodes.Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        if node.output in self.jumps and from_numpy(operands[0].dtype) in FORMATS:
            operands = [shift_ulps(operands[0], self.steps), *operands[1:]]
        return super().value(node, operands, inputs)
