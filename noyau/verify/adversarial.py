"""Inputs made to show a wrong kernel: awkward sizes, and numbers at the ends of their range.

Sizes at which each launch of a kernel runs: which of several does, for short rows or long ones, its sizes say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product, zip_longest

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Iota, Node, Reduce, Scan, Scatter, Select, View
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loops import Call, Expr, Index, Kernel, Sizes, conditions_of, runs
from noyau.ir.sizes import Demand, plan
from noyau.text import printable
from noyau.verify import patterns
from noyau.verify.inputs import LookupTable, Maker
from noyau.verify.patterns import Floats
from noyau.verify.undefined import divides_integers, shifts_integers, traps
from noyau.verify.values import Case

Arrays = dict[str, np.ndarray]

CELLS = 1 << 16  # of the largest value of a case, where the fixed sizes leave room for that
BLOCKS = (17, 63, 129, 33, 15, 65, 16, 31, 127)
LONG = {129: (-1, 4099), 65: (0, 1021)}  # after these block sizes, the last and the first size grow long
PRIMES = (5, 3, 7, 2)
OTHERS, TRIES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 33, 64, 130, 260), 200  # where a graph demands more
MOST_CELLS = 1 << 21  # of the largest value of a case
_MOST = 4096  # choices of sizes
_FEW = (2, 1)  # of what need not be long: two show where a second row begins


@dataclass(frozen=True, slots=True)
class Effort:
    """The bounds of a search: at most `most` cases, and none once `total` cells were tried in `fewest` of them. Where
    `few` is given, it is what is tried of many rows that nothing connects: few different ones of them
    (noyau.verify.repeated_rows)."""

    fewest: int = 3
    most: int = 30
    total: int = 1 << 20
    few: Effort | None = None


FULL = Effort()
SMOKE = Effort(1, total=1 << 17, few=Effort(2, total=1 << 14))  # where somebody waits for a result


@dataclass(frozen=True, slots=True)
class Pattern:
    """The numbers of a case: floats; the style of its integers; and the share of bools that are true."""

    label: str
    floats: Floats
    integers: str = "small"
    true: float = 0.7


NORMAL = Pattern("normal numbers", patterns.normal)
PATTERNS = (
    Pattern("infinities mixed in", patterns.infinities, "extremes"),
    Pattern("NaN mixed in", patterns.nans),
    Pattern("one large number a row", patterns.outlier, "highest"),
    Pattern("denormals", patterns.denormals, "lowest"),
    Pattern("far from zero", patterns.offset),
    Pattern("all equal", patterns.equal, "equal", 1.0),
    Pattern("masked rows", patterns.masked, true=0.2),
    Pattern("zeros", patterns.zeros, "zeros", 0.0),
    Pattern("huge numbers", patterns.huge, "extremes"),
    Pattern("many magnitudes", patterns.magnitudes),
    Pattern("where functions turn", patterns.turning),
    Pattern("alternating signs", patterns.alternating),
)
BEYOND = Pattern("indices beyond their table", patterns.normal, "beyond")
SIZED = (NORMAL, Pattern("many magnitudes", patterns.magnitudes), Pattern("alternating signs", patterns.alternating))


def cases(graph: Graph, sizes_hint: Sizes, rng: np.random.Generator, effort: Effort = FULL) -> Iterator[Case]:
    """Adversarial inputs for a group's graph: at most 30 cases, fewer where they are large, or as `effort` says.

    Sizes that the shapes of inputs bind take 0, 1, primes, and block sizes with their neighbours; `sizes_hint` has
    usual values for them. Integers that index tables stay inside, but in one case, of which the label says so. Inputs
    that the graph refuses, or that divide an integer by zero, are left out. The same `rng` gives the same cases."""
    maker = CaseMaker(graph, rng)
    count = spent = 0
    for sizes, pattern in schedule(graph, sizes_hint, maker.indexes, maker.has_floats):
        if count >= effort.most or (count >= effort.fewest and spent >= effort.total):
            return
        with np.errstate(all="ignore"):
            inputs = maker.inputs(sizes, pattern)
        if inputs is not None:
            count, spent = count + 1, spent + cells(graph, sizes)
            yield Case(spell(pattern, sizes), tuple(inputs[node.output] for node in graph.inputs))


def spell(pattern: Pattern, sizes: Sizes) -> str:
    """A case in words: `denormals, rows = 5`."""
    return ", ".join([pattern.label, *(f"{printable(name)} = {size}" for name, size in sizes.items())])


def schedule(graph: Graph, hint: Sizes, indexes: bool, has_floats: bool) -> Iterator[tuple[Sizes, Pattern]]:
    """Sizes and patterns in turns: the patterns at usual sizes, the sizes with patterns that hide nothing."""
    usual = usual_sizes(graph, hint)
    plain = [NORMAL, *([BEYOND] if indexes else []), *distinct(has_floats)]
    sized = fitting(graph, awkward_sizes(graph, usual))
    for at, (pattern, sizes) in enumerate(zip_longest(plain, sized)):
        if pattern is not None and fits(graph, usual):
            yield usual, pattern
        if sizes is not None:
            yield sizes, SIZED[at % len(SIZED)]


def distinct(has_floats: bool) -> tuple[Pattern, ...]:
    """The patterns; without floats, those that differ in their integers or bools."""
    if has_floats:
        return PATTERNS
    return tuple({(pattern.integers, pattern.true): pattern for pattern in reversed(PATTERNS)}.values())


def usual_sizes(graph: Graph, hint: Sizes) -> dict[str, int]:
    """The hinted sizes, or small primes, made small enough to be tried with every pattern; where the graph does not
    hold for these, the first of some others that it holds for."""
    names = [binding.size for binding in plan([node.shape for node in graph.inputs])]
    usual = {name: hint.get(name, PRIMES[at % len(PRIMES)]) for at, name in enumerate(names)}
    small = shrunk(graph, usual, CELLS // 4)
    rng = np.random.default_rng(0)
    others = (dict(zip(names, map(int, rng.choice(OTHERS, len(names))), strict=True)) for _ in range(TRIES))
    return next((sizes for sizes in fitting(graph, chain([small, usual], others))), small)


def fitting(graph: Graph, every: Iterable[Sizes]) -> Iterator[dict[str, int]]:
    """Those sizes that a graph holds for; in the place of others, once, what becomes of them where its demands are met
    one by one, if it holds for that."""
    yielded: list[dict[str, int]] = []
    for sizes in every:
        sizes_met = dict(sizes)
        if not fits(graph, sizes):
            sizes_met = _met(graph, sizes)
            if sizes_met in yielded or not fits(graph, sizes_met):
                continue
            yielded.append(sizes_met)
        yield sizes_met


def _met(graph: Graph, sizes: Sizes) -> dict[str, int]:
    """The sizes, of which one is changed for each demand that does not hold: to where its two ends are equal."""
    sizes_met = dict(sizes)
    for demand in graph.demands:
        names = sorted((demand.left.names | demand.right.names) & sizes_met.keys())
        if not demand.holds(sizes_met):
            repairs = ((name, _where_equal(demand, sizes_met, name)) for name in names)
            sizes_met |= dict(islice(((name, number) for name, number in repairs if number), 1))
    return sizes_met


def _where_equal(demand: Demand, sizes: Sizes, name: str) -> int:
    """The size, from 1 on, at which the ends of a demand are equal if they move apart in even steps; else 0."""
    try:
        one, two = ((demand.left - demand.right).evaluate({**sizes, name: number}) for number in (1, 2))
    except ZeroDivisionError:
        return 0
    step = two - one
    return max(0, int(1 - one // step)) if step and one % step == 0 else 0


def awkward_sizes(graph: Graph, usual: Sizes) -> Iterator[Sizes]:
    """Each size at 0 and at 1, all at 1, then each in turn at block sizes and beyond, among others of that kind."""
    names = list(usual)
    few = {name: PRIMES[at % len(PRIMES)] for at, name in enumerate(names)}
    yield from ({**few, name: extent} for name in names[:3] for extent in (0, 1))
    if len(names) > 1:
        yield dict.fromkeys(names, 1)
    for at, extent in enumerate(BLOCKS if names else ()):
        main = names[-1 - at % len(names)]
        others = {name: BLOCKS[(at + 4 * k) % len(BLOCKS)] for k, name in enumerate(names)}
        yield shrunk(graph, {**others, main: extent}, CELLS, main)
        if extent in LONG:
            place, length = LONG[extent]
            yield shrunk(graph, {**few, names[place]: length}, CELLS, names[place])


def shrunk(graph: Graph, sizes: Sizes, limit: int, fixed: str | None = None) -> dict[str, int]:
    """The sizes, the largest halved until no value of the graph has more cells than the limit; `fixed` last."""
    smaller = dict(sizes)
    while cells(graph, smaller) > limit:
        free = [name for name in smaller if smaller[name] > 1 and name != fixed] or [
            name for name in smaller if smaller[name] > 1
        ]
        if not free:
            break
        largest = max(free, key=lambda name: smaller[name])
        smaller[largest] = (smaller[largest] + 1) // 2
    return smaller


def cells(graph: Graph, sizes: Sizes) -> int:
    """The number of cells of the largest value; 0 where an extent would be divided by 0."""
    try:
        return max((math.prod(extents(node, sizes)) for node in graph.nodes), default=0)
    except ZeroDivisionError:
        return 0


def extents(node: Node, sizes: Sizes) -> tuple[int, ...]:
    return tuple(int(dim.evaluate(sizes)) for dim in node.shape)


def fits(graph: Graph, sizes: Sizes) -> bool:
    """Whether the graph means something at these sizes: no negative extent, view outside or division by 0."""
    try:
        holds = all(demand.holds(sizes) for demand in graph.demands)
        return holds and all(_fits(graph, node, sizes) for node in graph.nodes)
    except ZeroDivisionError:
        return False


def _fits(graph: Graph, node: Node, sizes: Sizes) -> bool:
    shape = extents(node, sizes)
    if min(shape, default=0) < 0:
        return False
    match node.kind:
        case View(index) | Gather(index) | Scatter(index, _):
            # The indices of a Scatter run over its updates.
            run = extents(graph[node.inputs[2]], sizes) if isinstance(node.kind, Scatter) else shape
            inner = extents(graph[node.inputs[0]], sizes)
            bounded = zip(index, inner, strict=True)
            return all(_inside(entry, extent, run, sizes) for entry, extent in bounded if isinstance(entry, Dim))
        case Select(axis, starts):
            ends = [*(int(start.evaluate(sizes)) for start in starts), shape[axis]]
            return ends[0] == 0 and ends == sorted(ends)
        case Iota(index):
            index.evaluate({**sizes, **{f"#{axis}": 0 for axis in range(len(shape))}})  # it may divide by a size
            return True
        case _:
            return True


def _inside(index: Dim, extent: int, shape: Sequence[int], sizes: Sizes) -> bool:
    """Whether an index map stays within [0, extent) for all indices of a shape."""
    if not math.prod(shape):
        return True
    grids = dict(zip((f"#{axis}" for axis in range(len(shape))), np.ogrid[tuple(map(slice, shape))], strict=True))
    values = np.asarray(index.evaluate({**sizes, **grids}))
    return bool(values.min() >= 0 and values.max() < extent)


class CaseMaker:
    """Arrays for the inputs of a graph, of one pattern at a time."""

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng
        self.divides, self.shifts = divides_integers(graph), shifts_integers(graph)
        self.multiplies = any(isinstance(n.kind, Reduce | Scan) and n.kind.monoid == "prod" for n in graph.nodes)
        self.looks_up = any(isinstance(node.kind, Gather | Scatter) for node in graph.nodes)
        self.indexes = any(Maker(graph, {}, rng, frozenset()).tables(node) for node in graph.inputs)
        self.has_floats = any(node.dtype.is_float or node.dtype.is_float8 for node in graph.inputs)

    def inputs(self, sizes: Sizes, pattern: Pattern) -> Arrays | None:
        """An array for each input, or None where there are none that the graph takes."""
        maker, arrays = Maker(self.graph, sizes, self.rng, frozenset()), Arrays()
        # What indexes a table comes last: its range may depend on the other inputs.
        for node in sorted(self.graph.inputs, key=lambda node: bool(maker.tables(node))):
            array = self.array(maker, node, pattern, arrays)
            if array is None:
                return None
            arrays[node.output] = array
        if traps(self.graph, arrays) or (pattern is not BEYOND and not self.accepts(arrays)):
            return None
        return arrays if pattern is not BEYOND or self.matters(maker, arrays) else None

    def matters(self, maker: Maker, beyond: Arrays) -> bool:
        """Whether any output depends on what is looked up: else a kernel may well look up nothing."""
        low, high = (self.outputs({**beyond, **self.all_indices(maker, beyond, end)}) for end in ("lowest", "highest"))
        return low is not None and high is not None and low != high

    def all_indices(self, maker: Maker, others: Arrays, style: str) -> Arrays:
        values = {
            node.output: self.indices(maker, node, tables, style, others)
            for node in self.graph.inputs
            if (tables := maker.tables(node))
        }
        return {name: array for name, array in values.items() if array is not None}

    def outputs(self, inputs: Arrays) -> list[bytes] | None:
        """The bits of the outputs; None where the graph does not take these inputs."""
        try:
            values = evaluate(self.graph, inputs)
        except InputError:
            return None
        return [values[name].tobytes() for name in self.graph.outputs]

    def accepts(self, inputs: Arrays) -> bool:
        """Whether the graph takes these inputs: no computed index leaves its table."""
        return not self.looks_up or self.outputs(inputs) is not None

    def array(self, maker: Maker, node: Node, pattern: Pattern, others: Arrays) -> np.ndarray | None:
        shape, dtype = extents(node, maker.sizes), node.dtype
        if dtype.is_float:
            numbers = maker.normal(node, list(shape))[0].astype(np.float64)
            values = pattern.floats(numbers, dtype, self.rng)
            return patterns.as_floats(patterns.multipliable(values) if self.multiplies else values, dtype)
        if dtype.is_float8:
            numbers = self.rng.standard_normal(shape)
            return patterns.as_floats(pattern.floats(numbers, DType.F16, self.rng), dtype)
        if dtype is DType.BOOL:
            return self.rng.random(shape) < pattern.true
        if tables := maker.tables(node):
            return self.indices(maker, node, tables, pattern.integers, others)
        array = patterns.whole(pattern.integers, dtype, shape, self.rng, mask=maker.is_mask(node))
        return patterns.defined(array, divides=self.divides, shifts=self.shifts)

    def indices(
        self, maker: Maker, node: Node, tables: Sequence[LookupTable], style: str, others: Arrays
    ) -> np.ndarray | None:
        """Integers that each of the tables has; None where one is empty and is looked into."""
        shape, extent = extents(node, maker.sizes), min(table.extent for table in tables)
        if not math.prod(shape):
            return np.empty(shape, node.dtype.numpy)
        if not extent:
            return None
        low, high = maker.fitted(node, list(shape), tables, others)
        match style:
            case "lowest":
                array = np.full(shape, low)
            case "highest":
                array = np.full(shape, high - 1)
            case "beyond":
                array = np.full(shape, max(high, extent))
            case _:
                array = self.rng.integers(low, max(high, low + 1), shape)
        return np.asarray(array).astype(node.dtype.numpy)


def covering(
    kernels: Iterable[Kernel],
    graph: Graph,
    earlier: Sequence[Sizes],
    sizes_of_call: Sizes | None = None,
    most: int = MOST_CELLS,
) -> list[dict[str, int]]:
    """For each launch that runs where a graph is called with some sizes, or for each at all, and at none of those that
    are `earlier` anyway, the sizes of fewest cells at which it does, each two, a number that it is compared with, or
    the next one, or multiple of 16; or one, where the launch takes more than `most` cells otherwise. None for one that
    takes as many however that is."""
    usual, covered = usual_sizes(graph, {}), list[dict[str, int]]()
    conditions = (
        when
        for kernel in kernels
        for when in conditions_of(kernel)
        if sizes_of_call is None or runs(when, sizes_of_call)
    )
    for when in conditions:
        if not any(runs(when, sizes) for sizes in (*earlier, *covered)):
            covered += islice(_running(when, usual, graph, most), 1)
    return covered


def _running(when: Expr, usual: Sizes, graph: Graph, most: int) -> Iterator[dict[str, int]]:
    """Sizes at which a launch runs: those first of which the fewest are one, then those of few cells."""
    limits = sorted({side.dim.constant for side in _indices(when) if side.dim.constant})
    names = {name for side in _indices(when) for name in side.dim.names} & usual.keys()
    some = [*_FEW, *(n for limit in limits for n in (limit, limit + 1)), *(_aligned(n) for n in limits[-1:])]
    choices = [some if n in names else [usual[n]] for n in usual]
    assignments = (dict(zip(usual, each, strict=True)) for each in islice(product(*choices), _MOST))
    fitting_sizes = [sizes for sizes in assignments if runs(when, sizes)]
    ranked = ((sum(n == 1 for n in sizes.values()), cells(graph, sizes), at) for at, sizes in enumerate(fitting_sizes))
    yield from (
        fitting_sizes[at] for _, count, at in sorted(ranked) if count <= most and fits(graph, fitting_sizes[at])
    )


def _aligned(size: int) -> int:
    """The next size at which rows of any dtype follow each other at multiples of 16 bytes."""
    return size - size % 16 + 16


def _indices(expr: Expr) -> Iterator[Index]:
    match expr:
        case Index():
            yield expr
        case Call(_, operands):
            for operand in operands:
                yield from _indices(operand)
        case _:
            pass
