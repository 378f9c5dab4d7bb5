"""The arrays of an adversarial case: floats of a pattern, integers of a style, indices within their tables."""

import math
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import Gather, Graph, Node, Reduce, Scan, Scatter
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.sizes import Sizes, extents_at
from noyau.verify import patterns
from noyau.verify.inputs import Maker
from noyau.verify.lookup_tables import Tables, index_range, is_searched, tables_of
from noyau.verify.patterns import Array, Floats
from noyau.verify.undefined import divides_integers, shifts_integers, traps
from noyau.verify.uses import Uses

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The numbers of a case: a function for floats, a style of integers, and the share of true bools."""

    label: str
    floats: Floats
    integers: str = "small"
    true: float = 0.7


BEYOND = Pattern("indices beyond their table", patterns.normal, "beyond")


class CaseMaker:
    """Maker of arrays for the inputs of a graph, by one pattern at a time."""

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng
        self.divides, self.shifts = divides_integers(graph), shifts_integers(graph)
        self.multiplies = any(isinstance(n.kind, Reduce | Scan) and n.kind.monoid == "prod" for n in graph.nodes)
        self.looks_up = any(isinstance(node.kind, Gather | Scatter) for node in graph.nodes)
        self.indexes = any(tables_of(Uses(graph, {}, frozenset()), node) for node in graph.inputs)
        self.searched = {node.output for node in graph.inputs if self.looks_up and is_searched(graph, node)}
        self.has_floats = any(node.dtype.is_float or node.dtype.is_float8 for node in graph.inputs)

    def inputs(self, sizes: Sizes, pattern: Pattern) -> Arrays | None:
        """An array for each input; None where the graph refuses them."""
        maker, arrays = Maker(self.graph, sizes, self.rng, frozenset()), Arrays()
        # Make indices into tables last: their range may depend on the other inputs.
        for node in sorted(self.graph.inputs, key=lambda node: bool(tables_of(maker.uses, node))):
            array = self.array(maker, node, pattern, arrays)
            if array is None:
                return None
            arrays[node.output] = np.sort(array) if node.output in self.searched else array
        if traps(self.graph, arrays) or (pattern is not BEYOND and not self.accepts(arrays)):
            return None
        return arrays if pattern is not BEYOND or self.matters(maker, arrays) else None

    def matters(self, maker: Maker, beyond: Arrays) -> bool:
        """Whether any output depends on the indices; if not, a kernel need not look anything up, nor refuse."""
        low, high = (self.outputs({**beyond, **self.all_indices(maker, beyond, end)}) for end in ("lowest", "highest"))
        return low is not None and high is not None and low != high

    def all_indices(self, maker: Maker, others: Arrays, style: str) -> Arrays:
        pairs = ((node, tables_of(maker.uses, node)) for node in self.graph.inputs)
        values = {node.output: self.indices(maker, node, tables, style, others) for node, tables in pairs if tables}
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
        shape, dtype = extents_at(maker.sizes, node.shape), node.dtype
        if dtype.is_float:
            numbers = maker.normal(node, list(shape))[0].astype(np.float64)
            values = pattern.floats(numbers, dtype, self.rng)
            return patterns.as_floats(patterns.multipliable(values) if self.multiplies else values, dtype)
        if dtype.is_float8:
            numbers = self.rng.standard_normal(shape)
            return patterns.as_floats(pattern.floats(numbers, DType.F16, self.rng), dtype)
        if dtype is DType.BOOL:
            return self.rng.random(shape) < pattern.true
        if tables := tables_of(maker.uses, node):
            return self.indices(maker, node, tables, pattern.integers, others)
        array = whole(pattern.integers, dtype, shape, self.rng, mask=maker.uses.is_mask(node))
        return define_operands(array, divides=self.divides, shifts=self.shifts)

    def indices(self, maker: Maker, node: Node, tables: Tables, style: str, others: Arrays) -> np.ndarray | None:
        """Indices of a style that all of the tables have ("beyond": lack); None where an indexed table is empty."""
        shape, extent = extents_at(maker.sizes, node.shape), min(table.extent for table in tables)
        if not math.prod(shape):
            return np.empty(shape, node.dtype.numpy)
        if not extent:
            return None
        low, high = index_range(maker.uses, node, shape, tables, others)
        ends = {"lowest": low, "highest": high - 1, "beyond": max(high, extent)}
        array = np.full(shape, ends[style]) if style in ends else self.rng.integers(low, max(high, low + 1), shape)
        return np.asarray(array).astype(node.dtype.numpy)


def whole(style: str, dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, *, mask: bool) -> Array:
    """Integers of a dtype that index no table: "small", "zeros", "equal", "lowest", "highest" or "extremes"."""
    limits = np.iinfo(dtype.numpy)
    match style:
        case "zeros":
            return np.zeros(shape, dtype.numpy)
        case "equal":
            return np.full(shape, rng.integers(1, 10), dtype.numpy)
        case "extremes":
            ends = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype.numpy)
            return np.asarray(rng.choice(ends, shape))
        case "lowest" | "highest" if not mask:
            near = rng.integers(0, 100, shape, dtype.numpy, endpoint=True)
            return np.asarray(limits.min + near if style == "lowest" else limits.max - near, dtype.numpy)
        case _:
            values = rng.integers(max(int(limits.min), -100), 100, shape, endpoint=True)
            few = np.where(rng.random(shape) < 0.7, rng.integers(0, 2, shape), rng.integers(0, 40, shape))
            return np.asarray(few if mask else values).astype(dtype.numpy)


def define_operands(array: Array, *, divides: bool, shifts: bool) -> Array:
    """Replace integers for which an operator is undefined: for a division 0 and the least, for a shift all beyond 7."""
    if shifts:
        return np.asarray(np.abs(array % 8)).astype(array.dtype)
    if not divides:
        return array
    least = np.iinfo(array.dtype).min
    return np.where(array == 0, 1, np.where((array == least) & (least < 0), least + 1, array)).astype(array.dtype)
